"""The key that signs webhooks: created at the first deployment, then rotated.

It is separate from the key of tokens: the executor can read this one, and cannot make tokens.
"""

import secrets
from typing import Any

from infra.operations.account import NotReady
from punctual.domain.tenants.webhooks import KEY_BYTES, keys_of, keys_text, rotated
from punctual.lambdas.ssm_secrets import WEBHOOK_KEY

__all__ = ["WEBHOOK_KEY", "ensure_key", "forget_key", "rotate"]


def ensure_key(ssm: Any, knobs: str) -> None:
    """Create a key if there is none. An existing key stays valid for all receivers."""
    try:
        _put(ssm, knobs, (secrets.token_bytes(KEY_BYTES),), again=False)
    except ssm.exceptions.ParameterAlreadyExists:
        _standing(ssm, knobs)


def rotate(ssm: Any, knobs: str) -> None:
    """Add a new key. Webhooks carry signatures of both keys, so no receiver misses one."""
    new = rotated(_standing(ssm, knobs), secrets.token_bytes(KEY_BYTES))
    _put(ssm, knobs, new, again=True)


def forget_key(ssm: Any, knobs: str) -> None:
    try:
        ssm.delete_parameter(Name=knobs + WEBHOOK_KEY)
    except ssm.exceptions.ParameterNotFound:
        return  # an earlier destroy has removed it


def _standing(ssm: Any, knobs: str) -> tuple[bytes, ...]:
    name = knobs + WEBHOOK_KEY
    try:
        found = ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    except ssm.exceptions.ParameterNotFound:
        raise NotReady(f"{name} is not there: this stage is not deployed here") from None
    keys = keys_of(str(found))
    if not keys:
        raise NotReady(f"{name} holds no key: delete it, and every receiver needs a new secret")
    return keys


def _put(ssm: Any, knobs: str, keys: tuple[bytes, ...], again: bool) -> None:
    ssm.put_parameter(
        Name=knobs + WEBHOOK_KEY,
        Value=keys_text(keys),
        Type="SecureString",
        Description="The keys that webhooks are signed by, the newest first",
        Overwrite=again,
    )
