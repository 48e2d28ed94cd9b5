"""The admin token: created here and shown once. The account holds only its keyed hash.

The key is a SecureString, which no template can create. It is created once, before the functions
that read it. A new key would invalidate every token.
"""

import os
import secrets
from base64 import b64encode
from pathlib import Path
from typing import Any

from infra.operations.account import NotReady, parameter
from punctual.auth.authenticator import admin_hash
from punctual.domain.tenants.tokens import KEY_BYTES, RANDOM_BYTES, secret
from punctual.lambdas.ssm_secrets import TOKEN_HASH, TOKEN_KEY, UNSET, key_of

__all__ = [
    "TOKEN_HASH",
    "TOKEN_KEY",
    "UNSET",
    "ensure_key",
    "forget_key",
    "keep",
    "put_first",
    "put_new",
]


def ensure_key(ssm: Any, knobs: str) -> bytes:
    """Return the key; create it if there is none."""
    name = knobs + TOKEN_KEY
    made = b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    try:
        ssm.put_parameter(
            Name=name,
            Value=made,
            Type="SecureString",
            Description="The key of the hashes of all tokens; with another one none is good",
            Overwrite=False,
        )
    except ssm.exceptions.ParameterAlreadyExists:
        made = str(ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    key = key_of(made)
    if len(key) != KEY_BYTES:
        raise NotReady(f"{name} holds no key: delete it, and all tokens are to be made anew")
    return key


def forget_key(ssm: Any, knobs: str) -> None:
    try:
        ssm.delete_parameter(Name=knobs + TOKEN_KEY)
    except ssm.exceptions.ParameterNotFound:
        return  # an earlier destroy has removed it


def put_new(ssm: Any, knobs: str) -> str:
    """Return a new token, and replace the stored hash."""
    key = ensure_key(ssm, knobs)
    token = secret(key, secrets.token_bytes(RANDOM_BYTES))
    value = admin_hash(key, token)
    ssm.put_parameter(Name=knobs + TOKEN_HASH, Value=value, Type="String", Overwrite=True)
    return token


def put_first(ssm: Any, knobs: str) -> str | None:
    """Return a new token if the stage has none, else None."""
    return put_new(ssm, knobs) if standing(ssm, knobs) == UNSET else None


def keep(path: Path, token: str) -> None:
    """Write the token to a file that only its owner can read; replace an older file."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    new.replace(path)


def standing(ssm: Any, knobs: str) -> str:
    found = parameter(ssm, knobs + TOKEN_HASH)
    if found is None:
        raise NotReady(f"{knobs}{TOKEN_HASH} is not there: this stage is not deployed here")
    return found
