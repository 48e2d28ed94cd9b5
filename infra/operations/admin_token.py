"""The admin token: created here and shown once. The account holds only its keyed hash.

The key is a SecureString, which no template can create. It is created once, before the functions
that read it. A new key would invalidate every token.
"""

import os
import secrets
from base64 import b64encode
from pathlib import Path
from typing import Any

from infra.operations.account import NotReady, read_parameter
from punctual.auth.authenticator import admin_hash
from punctual.domain.tenants.tokens import TOKEN_KEY_BYTES, TOKEN_RANDOM_BYTES, make_secret
from punctual.lambdas.ssm_secrets import (
    ADMIN_HASH_PARAMETER,
    TOKEN_KEY_PARAMETER,
    UNSET_SECRET,
    decode_key,
)


def ensure_key(ssm: Any, prefix: str) -> bytes:
    """Return the key; create it if there is none."""
    name = prefix + TOKEN_KEY_PARAMETER
    key_text = b64encode(secrets.token_bytes(TOKEN_KEY_BYTES)).decode()
    try:
        ssm.put_parameter(
            Name=name,
            Value=key_text,
            Type="SecureString",
            Description="The key of the hashes of all tokens. Another key makes all tokens invalid",
            Overwrite=False,
        )
    except ssm.exceptions.ParameterAlreadyExists:
        key_text = str(ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    key = decode_key(key_text)
    if len(key) != TOKEN_KEY_BYTES:
        raise NotReady(f"{name} has no valid key. Delete it, then create all tokens again")
    return key


def put_new_token(ssm: Any, prefix: str) -> str:
    """Return a new token, and replace the stored hash."""
    key = ensure_key(ssm, prefix)
    token = make_secret(key, secrets.token_bytes(TOKEN_RANDOM_BYTES))
    token_hash = admin_hash(key, token)
    ssm.put_parameter(
        Name=prefix + ADMIN_HASH_PARAMETER, Value=token_hash, Type="String", Overwrite=True
    )
    return token


def put_first_token(ssm: Any, prefix: str) -> str | None:
    """Return a new token if the stage has none, else None."""
    return put_new_token(ssm, prefix) if read_token_hash(ssm, prefix) == UNSET_SECRET else None


def write_token_file(path: Path, token: str) -> None:
    """Write the token to a file that only its owner can read; replace an older file."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new_path = path.with_name(f"{path.name}.{os.getpid()}")
    new_path.unlink(missing_ok=True)
    with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    new_path.replace(path)


def read_token_hash(ssm: Any, prefix: str) -> str:
    token_hash = read_parameter(ssm, prefix + ADMIN_HASH_PARAMETER)
    if token_hash is None:
        raise NotReady(
            f"{prefix}{ADMIN_HASH_PARAMETER} does not exist: the stage is not deployed here"
        )
    return token_hash
