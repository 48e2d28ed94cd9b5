"""Who a token belongs to: the same code lets calls in on the node and before the deployed API."""

from collections.abc import Callable
from datetime import datetime
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple, Protocol

from punctual.auth.bearer import Identity
from punctual.auth.cache import ExpiringCache
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import USED, Token, is_ours, keyed_hash

if TYPE_CHECKING:  # the engine's values are more than a call must wait for
    from punctual.engine.commands.tokens import KnownTokens

TOKEN_CACHE_SECONDS = 45.0  # seconds that what was read of a token is taken for true
MAX_CACHED_TOKENS = 1_000  # tokens that are remembered, and as many that are no tokens
ADMIN_HASH_PREFIX = "k1:"  # begins the stored hash of the admin token; a template's value has none

LogProblem = Callable[[str], None]


class TokenSecrets(NamedTuple):
    """The key of all tokens, empty where there is none, and the stored hash of the admin's."""

    key: bytes
    admin: str = ""


class TokenVerifier(Protocol):
    def identify(self, text: str) -> Identity | None:
        """None where it is no good token; `Unavailable` where nobody can tell."""


class TokenAuthenticator:
    """`admin` is whom the token of a deploy belongs to; `fresh` is 0 where a read costs nothing."""

    def __init__(
        self,
        secrets: Callable[[], TokenSecrets],
        rows: "KnownTokens",
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
        problem: LogProblem,
        admin: Identity | None = None,
        fresh: float = TOKEN_CACHE_SECONDS,
    ) -> None:
        self._secrets = secrets
        self._rows = rows
        self._clock = clock
        self._problem = problem
        self._admin = admin
        self._fresh = fresh
        self._good: ExpiringCache[Token] = ExpiringCache(seconds, MAX_CACHED_TOKENS)
        self._bad: ExpiringCache[None] = ExpiringCache(seconds, MAX_CACHED_TOKENS)

    def identify(self, text: str) -> Identity | None:
        """1. The admin token's hash is at hand. 2. What the key did not make costs no read.
        3. What is known of the others is remembered for a while, that they are no good as well.
        """
        key, admin = self._secrets()
        if self._admin is not None and _is_admin(admin, key, text):
            return self._admin
        if not is_ours(key, text):
            return None
        hashed = keyed_hash(key, text)
        token, now = self._token(hashed), self._clock()
        if token is None or not token.good(now):
            return None
        self._note(token, hashed, now)
        return Identity(token.tenant, token.name, token.role, token.token_id, token.expires_at)

    def _token(self, hashed: str) -> Token | None:
        known = self._good.get(hashed)
        if known is not None:
            return known.value
        if self._bad.get(hashed) is not None:
            return None
        token = self._rows.find(hashed)
        if not self._fresh:
            return token
        if token is None or token.revoked_at is not None:
            self._bad.put(hashed, None, self._fresh)
            return None
        self._good.put(hashed, token, self._fresh)
        return token

    def _note(self, token: Token, hashed: str, now: datetime) -> None:
        """That its use could not be noted refuses nobody."""
        if token.last_used_at is not None and now - token.last_used_at < USED:
            return
        self._good.change(hashed, token._replace(last_used_at=now))
        try:
            self._rows.used(hashed, now)
        except Unavailable as error:
            self._problem(error.message)


class Authenticator:
    """Our own tokens, and those of an issuer where one is trusted."""

    def __init__(self, tokens: TokenVerifier, issuer: TokenVerifier | None = None) -> None:
        self._tokens = tokens
        self._issuer = issuer

    def identify(self, text: str) -> Identity | None:
        if self._issuer is not None and is_jwt(text):
            return self._issuer.identify(text)
        return self._tokens.identify(text)


def is_jwt(text: str) -> bool:
    """By its form alone: three parts, which no token of ours has.

    >>> is_jwt("e30.e30.c2ln"), is_jwt("pnc_abc")
    (True, False)
    """
    return text.count(".") == 2


def admin_hash(key: bytes, text: str) -> str:
    """As it is stored.

    >>> admin_hash(b"k", "pnc_a")[:5]
    'k1:27'
    """
    return ADMIN_HASH_PREFIX + keyed_hash(key, text)


def admin_identity(home: str) -> Identity:
    return Identity(home, "admin", Role.ADMIN)


def _is_admin(stored: str, key: bytes, text: str) -> bool:
    """Return whether the text is the admin token; a value that is not a hash admits no token."""
    return (
        bool(key)
        and stored.startswith(ADMIN_HASH_PREFIX)
        and compare_digest(stored.encode(), admin_hash(key, text).encode())
    )
