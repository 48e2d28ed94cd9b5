"""Find the token of a call and its identity, for the node and for the authorizer on AWS."""

import re
from collections.abc import Callable
from datetime import datetime
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple, Protocol

from punctual.auth.cache import ExpiringCache
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import LAST_USED_RESOLUTION, Token, has_valid_mac, keyed_hash

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


if TYPE_CHECKING:  # the authorizer must start fast, so it imports no engine code
    from punctual.engine.ports.tenants.token_rows import TokenLookup

TOKEN_CACHE_SECONDS = 45.0  # a revoked token may stay valid for this time
MAX_CACHED_TOKENS = 1_000  # the same limit holds for rejected tokens
ADMIN_HASH_PREFIX = "k1:"  # a placeholder from the template does not begin so

LogProblem = Callable[[str], None]


class TokenSecrets(NamedTuple):
    key: bytes  # of the hashes of all tokens; empty if there is no key
    admin: str = ""  # the stored hash of the admin token


class TokenVerifier(Protocol):
    def identify(self, text: str) -> Identity | None:
        """Return the identity of a token, or None for an invalid token.

        Raise `Unavailable` if the token cannot be checked now.
        """


class TokenAuthenticator:
    """Check the tokens of Punctual.

    `admin` is the identity of the token that a deployment creates. `cache_seconds` is 0 for a
    store that is cheap to read.
    """

    def __init__(
        self,
        secrets: Callable[[], TokenSecrets],
        rows: "TokenLookup",
        clock: Callable[[], datetime],
        wall_seconds: Callable[[], float],
        log_problem: LogProblem,
        admin: Identity | None = None,
        cache_seconds: float = TOKEN_CACHE_SECONDS,
    ) -> None:
        self._secrets = secrets
        self._rows = rows
        self._clock = clock
        self._log_problem = log_problem
        self._admin = admin
        self._cache_seconds = cache_seconds
        self._valid_tokens: ExpiringCache[Token] = ExpiringCache(wall_seconds, MAX_CACHED_TOKENS)
        self._rejected_hashes: ExpiringCache[None] = ExpiringCache(wall_seconds, MAX_CACHED_TOKENS)

    def identify(self, text: str) -> Identity | None:
        """Return the identity of a token, or None.

        1. Compare the token with the hash of the admin token, which needs no read.
        2. Reject a token that the key did not make, which needs no read either.
        3. Read the row of the token, and cache the result whether the token is valid or not.
        """
        key, admin = self._secrets()
        if self._admin is not None and _is_admin(admin, key, text):
            return self._admin
        if not has_valid_mac(key, text):
            return None
        token_hash = keyed_hash(key, text)
        token, now = self._find_token(token_hash), self._clock()
        if token is None or not token.is_valid(now):
            return None
        self._record_use(token, token_hash, now)
        return Identity(token.tenant, token.name, token.role, token.token_id, token.expires_at)

    def _find_token(self, token_hash: str) -> Token | None:
        entry = self._valid_tokens.get(token_hash)
        if entry is not None:
            return entry.value
        if self._rejected_hashes.get(token_hash) is not None:
            return None
        token = self._rows.find(token_hash)
        if not self._cache_seconds:
            return token
        if token is None or token.revoked_at is not None:
            self._rejected_hashes.put(token_hash, None, self._cache_seconds)
            return None
        self._valid_tokens.put(token_hash, token, self._cache_seconds)
        return token

    def _record_use(self, token: Token, token_hash: str, now: datetime) -> None:
        """Store the time of the last use. The call goes on if that fails."""
        if token.last_used_at is not None and now - token.last_used_at < LAST_USED_RESOLUTION:
            return
        self._valid_tokens.change(token_hash, token._replace(last_used_at=now))
        try:
            self._rows.record_use(token_hash, now)
        except Unavailable as error:
            self._log_problem(error.message)


class Authenticator:
    """Check tokens of Punctual, and JWTs if an issuer is configured."""

    def __init__(self, tokens: TokenVerifier, issuer: TokenVerifier | None = None) -> None:
        self._tokens = tokens
        self._issuer = issuer

    def identify(self, text: str) -> Identity | None:
        if self._issuer is not None and is_jwt(text):
            return self._issuer.identify(text)
        return self._tokens.identify(text)


def is_jwt(text: str) -> bool:
    """Return True for text of three parts. A token of Punctual has no dot.

    >>> is_jwt("e30.e30.c2ln"), is_jwt("pnc_abc")
    (True, False)
    """
    return text.count(".") == 2


def admin_hash(key: bytes, text: str) -> str:
    """Return the hash of the admin token as it is stored.

    >>> admin_hash(b"k", "pnc_a")[:5]
    'k1:27'
    """
    return ADMIN_HASH_PREFIX + keyed_hash(key, text)


def admin_identity(home_tenant: str) -> Identity:
    return Identity(home_tenant, "admin", Role.ADMIN)


def _is_admin(stored_hash: str, key: bytes, text: str) -> bool:
    """Return True if the text is the admin token. A placeholder matches no token."""
    return (
        bool(key)
        and stored_hash.startswith(ADMIN_HASH_PREFIX)
        and compare_digest(stored_hash.encode(), admin_hash(key, text).encode())
    )
