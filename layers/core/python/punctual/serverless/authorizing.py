"""Who calls: one token for the whole deployment, of which only a hash is stored.

The answer is always that the call may go on, with a caller or without: only our own functions can
refuse it in the words of the contract (docs/decisions/authorizer.md). Nothing heavy is imported
here, for this runs before every call.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from punctual.domain.errors import Unavailable

FRESH = 60.0  # seconds that a hash is taken for the one in force
STALE = 600.0  # and for so long where a new one cannot be read

NOBODY: Mapping[str, str] = {}
ADMIN: Mapping[str, str] = {"tenant": "default", "caller": "admin"}
UNSURE: Mapping[str, str] = {"unsure": "yes"}

_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{1,4096})")
_HASH = re.compile(r"[0-9a-f]{64}")


class Authorizer:
    """`read` gives the hash as stored, `seconds` those of a clock that goes on while frozen.

    A steady clock need not: a token that was taken back would stay good in an environment that
    nobody woke. One that is set back is seen, and the hash read again.
    """

    def __init__(
        self,
        read: Callable[[], str],
        seconds: Callable[[], float],
        problem: Callable[[str], None],
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._problem = problem
        self._known = ""
        self._read_at: float | None = None

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {"isAuthorized": True, "context": dict(self._caller(event))}

    def _caller(self, event: Mapping[str, Any]) -> Mapping[str, str]:
        token = _token(event.get("headers") or {})
        if token is None:
            return NOBODY
        try:
            wanted = self._hash()
        except Unavailable as error:
            self._problem(error.message)
            return UNSURE
        given = sha256(token.encode()).hexdigest()
        known = _HASH.fullmatch(wanted) is not None
        return ADMIN if compare_digest(given, wanted if known else "-" * 64) else NOBODY

    def _hash(self) -> str:
        now = self._seconds()
        age = None if self._read_at is None else now - self._read_at
        if age is not None and 0 <= age < FRESH:
            return self._known
        try:
            self._known = self._read().strip()
        except Unavailable:
            if age is None or not 0 <= age < STALE:
                raise
            return self._known
        self._read_at = now
        return self._known


def _token(headers: Mapping[str, str]) -> str | None:
    """Header names come in lower case, from a console's test perhaps not."""
    for name, value in headers.items():
        if name.lower() == "authorization":
            found = _BEARER.fullmatch(value.strip())
            return None if found is None else found[1]
    return None
