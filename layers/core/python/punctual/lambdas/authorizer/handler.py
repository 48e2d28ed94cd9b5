"""Identifies the caller of the API by a token, the admin token, or a JWT of an issuer.

The answer always allows the call, with or without a caller. Only the API functions can refuse it
with the errors of the contract (docs/decisions/0021-tokens.md). Heavy imports are avoided, because
this function runs before each call.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from punctual.auth.authenticator import TokenSecrets
from punctual.auth.bearer import Identity, bearer_token
from punctual.domain.errors import Unavailable
from punctual.lambdas.ssm_secrets import TOKEN_HASH, TOKEN_KEY, key_of

FRESH = 45.0  # seconds for which read secrets count as current
STALE = 600.0  # the same while SSM cannot be read
# Seconds in which AWS calls may start. The last call takes up to 4 s more, so the authorizer can
# still answer `UNSURE` in time.
SECONDS = 3.0

UNSURE: Mapping[str, str] = {"unsure": "yes"}


class Checking(Protocol):
    def identify(self, text: str) -> Identity | None: ...


class Authorizer:
    def __init__(self, door: Checking, problem: Callable[[str], None]) -> None:
        self._door = door
        self._problem = problem

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {"isAuthorized": True, "context": dict(self._caller(event))}

    def _caller(self, event: Mapping[str, Any]) -> Mapping[str, str]:
        token = _token(event.get("headers") or {})
        if token is None:
            return {}
        try:
            who = self._door.identify(token)
        except Unavailable as error:
            self._problem(error.message)
            return UNSURE
        return {} if who is None else said_of(who)


class DeployedSecrets:
    """Reads the token key and the hash of the admin token from SSM.

    `make deploy` and `make token` store them.

    `seconds` proceeds in a frozen environment. A clock that was set back causes a new read.
    """

    def __init__(
        self, read: Callable[[], Mapping[str, str]], knobs: str, seconds: Callable[[], float]
    ) -> None:
        self._read = read
        self._knobs = knobs
        self._seconds = seconds
        self._known = TokenSecrets(b"")
        self._read_at: float | None = None

    @staticmethod
    def names(knobs: str) -> list[str]:
        return [knobs + TOKEN_KEY, knobs + TOKEN_HASH]

    def __call__(self) -> TokenSecrets:
        now = self._seconds()
        age = None if self._read_at is None else now - self._read_at
        if age is not None and 0 <= age < FRESH:
            return self._known
        try:
            found = self._read()
        except Unavailable:
            if age is None or not 0 <= age < STALE:
                raise
            return self._known
        key, stored = (found.get(name, "") for name in self.names(self._knobs))
        if not stored:
            raise Unavailable(f"There is no parameter {self._knobs}{TOKEN_HASH}.")
        self._known, self._read_at = TokenSecrets(key_of(key), stored.strip()), now
        return self._known


def said_of(who: Identity) -> dict[str, str]:
    """Return the context of an authorizer response.

    It may hold only text, and omits empty values.
    """
    said = {
        "tenant": who.tenant,
        "caller": who.name,
        "role": who.role.word,
        "token_id": who.token_id,
        "expires_at": "" if who.expires_at is None else who.expires_at.isoformat(),
    }
    return {name: text for name, text in said.items() if text}


def clock_of(seconds: Callable[[], float]) -> Callable[[], datetime]:
    return lambda: datetime.fromtimestamp(seconds(), UTC)


def _token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token. A test event of the console may have header names in upper case."""
    for name, value in headers.items():
        if name.lower() == "authorization":
            return bearer_token(value)
    return None
