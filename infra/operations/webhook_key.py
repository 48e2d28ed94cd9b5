"""The key that signs webhooks: created at the first deployment, then rotated.

It is separate from the key of tokens: the executor can read this one, and cannot make tokens.
"""

import secrets
from typing import Any

from infra.operations.account import NotReady
from punctual.domain.tenants.webhooks import WEBHOOK_KEY_BYTES, format_keys, parse_keys, rotate_keys
from punctual.lambdas.ssm_secrets import WEBHOOK_KEY_PARAMETER


def ensure_key(ssm: Any, prefix: str) -> None:
    """Create a key if there is none. An existing key stays valid for all receivers."""
    try:
        _put_keys(ssm, prefix, (secrets.token_bytes(WEBHOOK_KEY_BYTES),), overwrite=False)
    except ssm.exceptions.ParameterAlreadyExists:
        _read_keys(ssm, prefix)


def rotate_key(ssm: Any, prefix: str) -> None:
    """Add a new key. Webhooks carry signatures of both keys, so no receiver misses one."""
    new_keys = rotate_keys(_read_keys(ssm, prefix), secrets.token_bytes(WEBHOOK_KEY_BYTES))
    _put_keys(ssm, prefix, new_keys, overwrite=True)


def _read_keys(ssm: Any, prefix: str) -> tuple[bytes, ...]:
    name = prefix + WEBHOOK_KEY_PARAMETER
    try:
        keys_value = ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    except ssm.exceptions.ParameterNotFound:
        raise NotReady(f"{name} does not exist: the stage is not deployed here") from None
    keys = parse_keys(str(keys_value))
    if not keys:
        raise NotReady(
            f"{name} has no valid key. Delete it; every receiver then needs a new secret"
        )
    return keys


def _put_keys(ssm: Any, prefix: str, keys: tuple[bytes, ...], overwrite: bool) -> None:
    ssm.put_parameter(
        Name=prefix + WEBHOOK_KEY_PARAMETER,
        Value=format_keys(keys),
        Type="SecureString",
        Description="The keys that sign webhooks, newest first",
        Overwrite=overwrite,
    )
