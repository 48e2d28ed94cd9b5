"""Who calls the deployed API: a token of ours, the one that a deploy made, or an issuer's JWT.

The answer is always that the call may go on, with a caller or without: only our own functions can
refuse it in the words of the contract (docs/decisions/0021-tokens.md). Nothing heavy is imported
here, for this runs before every call.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from punctual.auth.authenticator import TokenSecrets
from punctual.auth.bearer import Identity, bearer_token
from punctual.domain.errors import Unavailable
from punctual.lambdas.ssm_secrets import TOKEN_HASH, TOKEN_KEY, key_of

FRESH = 45.0  # seconds that key and hash are taken for those in force
STALE = 600.0  # and for so long where they cannot be read
SECONDS = 3.0  # for calls to AWS; with the last try's four it is told in time what nobody knows

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
    """The key and the admin token's hash, as `make deploy` and `make token` put them.

    `seconds` are those of a clock that goes on while frozen; one that is set back is seen.
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
    """What an authorizer's context can hold: text by name, nothing that is empty."""
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
    """Header names come in lower case, from a console's test perhaps not."""
    for name, value in headers.items():
        if name.lower() == "authorization":
            return bearer_token(value)
    return None
