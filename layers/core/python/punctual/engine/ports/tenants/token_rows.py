"""The ports for tokens: the rows, the key and the source of random bytes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.domain.tenants.tokens import Token

# Returns the secret key. It is loaded only when a token is created.
LoadTokenKey = Callable[[], bytes]
RandomBytes = Callable[[int], bytes]


class TokenCounts(NamedTuple):
    valid: int
    listed: int


class TokenRows(Protocol):
    """Stores tokens. A read never returns rows past their `Token.delete_at`."""

    def put(self, token: Token, token_hash: str) -> None:
        """Store a new token. It is usable on return."""

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None: ...

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> Sequence[Token]:
        """Return tokens of a tenant with `token_id < before`, newest first."""

    def store_revocation_request(
        self, tenant: str, token_id: str, request: str, expected: str = "", /
    ) -> str | None:
        """Store the first revocation request of a token and return the request that stands.

        A stored request is replaced only if it equals `expected`. None means that the token is
        missing.
        """

    def count(self, tenant: str, now: datetime) -> TokenCounts:
        """Return the number of valid tokens and of listed tokens."""

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        """Revoke a token and return it, or None if it is missing. The first revocation counts."""


class TokenLookup(Protocol):
    """The port that authentication uses on the same rows."""

    def find(self, token_hash: str) -> Token | None:
        """Return the token with this hash, valid or not."""

    def record_use(self, token_hash: str, now: datetime) -> None:
        """Record a use, unless the last one is less than `LAST_USED_RESOLUTION` ago."""
