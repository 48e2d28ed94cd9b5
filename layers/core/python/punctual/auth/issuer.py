"""Check JWTs of the configured issuer: key, signature and claims."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from punctual.auth.authenticator import Identity
from punctual.auth.cache import ExpiringCache
from punctual.auth.issuer_config import IssuerConfig
from punctual.auth.issuer_keys import KEY_TYPES, Fetch, IssuerKeys, Jwk
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import is_valid_tenant

CLOCK_LEEWAY_SECONDS = 30.0  # the clock of the issuer may differ by this
JWT_CACHE_SECONDS = 45.0  # a signature is not checked again for this time
MAX_CACHED_JWTS = 1_000
MAX_SUBJECT_CHARACTERS = 256

# Control characters and lone surrogates.
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_EPOCH_SECONDS = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class JwtVerifier:
    """Check JWTs. One thread at a time may call `identify`, any thread `cached_identity`."""

    def __init__(
        self,
        config: IssuerConfig,
        fetch: Fetch,
        clock: Callable[[], datetime],
        wall_seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._clock = clock
        self._keys = IssuerKeys(config.issuer, fetch, wall_seconds)
        self._verified_identities: ExpiringCache[Identity] = ExpiringCache(
            wall_seconds, MAX_CACHED_JWTS
        )

    def identify(self, text: str) -> Identity | None:
        """Return the identity that a JWT proves, or None.

        1. Take the key and algorithm of the header only if the issuer published such a key.
        2. Check the signature.
        3. Check the claims.
        """
        cached = self.cached_identity(text)
        if cached is not None:
            return cached
        header = _parse_header(text)
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or not isinstance(algorithm, str) or "crit" in header:
            return None
        jwk = self._keys.find(kid, algorithm) if algorithm in KEY_TYPES else None
        payload = None if jwk is None else _verified_payload(text, jwk, algorithm)
        identity = None if payload is None else self._identity_of_claims(_parse_claims(payload))
        if identity is not None:
            self._verified_identities.put(_cache_key(text), identity, JWT_CACHE_SECONDS)
        return identity

    def cached_identity(self, text: str) -> Identity | None:
        """Return the identity of a JWT that was checked recently and has not expired, or None."""
        entry = self._verified_identities.get(_cache_key(text))
        if entry is None or entry.value.expires_at is None:
            return None
        leeway = timedelta(seconds=CLOCK_LEEWAY_SECONDS)
        return entry.value if self._clock() < entry.value.expires_at + leeway else None

    def _identity_of_claims(self, claims: Mapping[str, Any]) -> Identity | None:
        epoch_seconds = self._clock().timestamp()
        expiry_seconds = _parse_epoch_seconds(claims.get("exp"))
        start_times = [_parse_epoch_seconds(claims.get(name, 0)) for name in ("nbf", "iat")]
        if expiry_seconds is None or epoch_seconds >= expiry_seconds + CLOCK_LEEWAY_SECONDS:
            return None
        if any(
            start_seconds is None or epoch_seconds < start_seconds - CLOCK_LEEWAY_SECONDS
            for start_seconds in start_times
        ):
            return None
        if claims.get("iss") != self._config.issuer or not self._is_audience(claims.get("aud")):
            return None
        name, tenant = claims.get("sub"), claims.get(self._config.tenant_claim)
        role = _highest_role(claims.get(self._config.role_claim))
        if not isinstance(tenant, str) or not is_valid_tenant(tenant) or role is None:
            return None
        if (
            not isinstance(name, str)
            or not 1 <= len(name) <= MAX_SUBJECT_CHARACTERS
            or _FORBIDDEN_CHARACTER.search(name)
        ):
            return None
        return Identity(tenant, name, role, expires_at=datetime.fromtimestamp(expiry_seconds, UTC))

    def _is_audience(self, audience: Any) -> bool:
        expected = self._config.audience
        return audience == expected or (isinstance(audience, list) and expected in audience)


def _parse_header(text: str) -> Mapping[str, Any]:
    import jwt  # takes 50 ms, so only a JWT imports it

    try:
        return dict(jwt.get_unverified_header(text))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}


def _verified_payload(text: str, jwk: Jwk, algorithm: str) -> bytes | None:
    """Return the payload if this key signed it, or None."""
    import jwt

    try:
        key = jwt.PyJWK(dict(jwk), algorithm=algorithm)
        return bytes(jwt.PyJWS().decode(text, key, algorithms=[algorithm]))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None


def _parse_claims(payload: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _parse_epoch_seconds(value: Any) -> float | None:
    """Return the seconds since the epoch, or None for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _MAX_EPOCH_SECONDS else None


def _highest_role(claim: Any) -> Role | None:
    """Return the highest role that the claim names. A claim may be a list, as of groups."""
    names = claim if isinstance(claim, list) else [claim]
    roles = [Role.from_label(name) for name in names if isinstance(name, str)]
    return max((role for role in roles if role is not None), default=None)


def _cache_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()
