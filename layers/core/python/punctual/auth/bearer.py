"""The Authorization header, and what is found by it."""

import re
from datetime import datetime
from typing import NamedTuple

from punctual.domain.tenants.roles import Role

MAX_BEARER_CHARACTERS = 8_192  # characters; a JWT may be long

_BEARER = re.compile(
    rf"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{{1,{MAX_BEARER_CHARACTERS}}})"
)


class Identity(NamedTuple):
    """Whose call it is, and what they may."""

    tenant: str
    name: str
    role: Role
    token_id: str = ""  # empty where it is no token of ours with an id
    expires_at: datetime | None = None


def bearer_token(value: str) -> str | None:
    """The token in an Authorization header; None where it holds none, or more than one.

    >>> bearer_token("bearer  abc"), bearer_token("Bearer a, Bearer b")
    ('abc', None)
    """
    found = _BEARER.fullmatch(value.strip(" \t"))
    return None if found is None else found[1]
