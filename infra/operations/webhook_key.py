"""The key that webhooks are signed by: made with the first deploy, and anew beside the former.

Apart from the key of tokens: the executor may read this one, and nobody can make a token of it.
"""

import secrets
from typing import Any

from infra.operations.account import NotReady
from punctual.domain.tenants.webhooks import KEY_BYTES, keys_of, keys_text, rotated
from punctual.lambdas.ssm_secrets import WEBHOOK_KEY

__all__ = ["WEBHOOK_KEY", "ensure_key", "forget_key", "rotate"]


def ensure_key(ssm: Any, knobs: str) -> None:
    """A key where there is none; what stands is good for all receivers, and stays."""
    try:
        _put(ssm, knobs, (secrets.token_bytes(KEY_BYTES),), again=False)
    except ssm.exceptions.ParameterAlreadyExists:
        _standing(ssm, knobs)


def rotate(ssm: Any, knobs: str) -> None:
    """By the new key and by the one before is signed: no receiver misses anything meanwhile."""
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
