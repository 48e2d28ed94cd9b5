"""Read the token in an Authorization header, and describe the identity that it proves."""

import re
from datetime import datetime
from typing import NamedTuple

from punctual.domain.tenants.roles import Role

MAX_BEARER_CHARACTERS = 8_192  # a JWT may be long

_BEARER = re.compile(
    rf"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{{1,{MAX_BEARER_CHARACTERS}}})"
)


class Identity(NamedTuple):
    """The tenant, name and role of a caller."""

    tenant: str
    name: str
    role: Role
    token_id: str = ""  # empty for a JWT and for the admin token
    expires_at: datetime | None = None


def bearer_token(value: str) -> str | None:
    """Return the only token in an Authorization header, or None.

    >>> bearer_token("bearer  abc"), bearer_token("Bearer a, Bearer b")
    ('abc', None)
    """
    match = _BEARER.fullmatch(value.strip(" \t"))
    return None if match is None else match[1]
