"""The admin token: made here, shown once; the account holds its hash alone."""

import secrets
from hashlib import sha256
from typing import Any

from infra.account import NotReady, parameter

PREFIX = "pnc_"
BYTES = 32
TOKEN_HASH = "token-hash"
UNSET = "unset"
"""What the template writes: the hash of no token."""


def put_new(ssm: Any, name: str) -> str:
    """A new token, whose hash takes the place of the former's."""
    token = PREFIX + secrets.token_urlsafe(BYTES)
    ssm.put_parameter(Name=name, Value=digest(token), Type="String", Overwrite=True)
    return token


def put_first(ssm: Any, name: str) -> str | None:
    """A token where there is none yet, else None."""
    return put_new(ssm, name) if standing(ssm, name) == UNSET else None


def standing(ssm: Any, name: str) -> str:
    found = parameter(ssm, name)
    if found is None:
        raise NotReady(f"{name} is not there: this stage is not deployed here")
    return found


def digest(token: str) -> str:
    """
    >>> digest("pnc_a")[:8]
    'c0eebf89'
    """
    return sha256(token.encode()).hexdigest()
