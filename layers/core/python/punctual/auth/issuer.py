"""JWTs of the one issuer that is trusted: everything about them is checked, or nobody gets in."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from punctual.auth.bearer import Identity
from punctual.auth.cache import ExpiringCache
from punctual.auth.issuer_config import IssuerConfig
from punctual.auth.issuer_keys import KEY_TYPES, Fetch, IssuerKeys, Jwk
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import is_tenant

CLOCK_LEEWAY_SECONDS = 30.0  # seconds that its clock and ours may differ
JWT_CACHE_SECONDS = 45.0  # seconds that a signature is not checked again
MAX_CACHED_JWTS = 1_000
MAX_SUBJECT_CHARACTERS = 256

_FORBIDDEN_CHARACTER = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
)  # controls, and halves of characters
_MAX_EPOCH_SECONDS = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class JwtVerifier:
    """Not for several threads at a time, but that `remembered` may be asked by another."""

    def __init__(
        self,
        trust: IssuerConfig,
        fetch: Fetch,
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
    ) -> None:
        self._trust = trust
        self._clock = clock
        self._keys = IssuerKeys(trust.issuer, fetch, seconds)
        self._good: ExpiringCache[Identity] = ExpiringCache(seconds, MAX_CACHED_JWTS)

    def identify(self, text: str) -> Identity | None:
        """1. What its header says is only a wish: algorithm and key must be the issuer's own.
        2. The signature. 3. The claims. Wrong in any way is None, whatever is wrong.
        """
        known = self.cached_identity(text)
        if known is not None:
            return known
        header = _header(text)
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or not isinstance(algorithm, str) or "crit" in header:
            return None
        jwk = self._keys.find(kid, algorithm) if algorithm in KEY_TYPES else None
        payload = None if jwk is None else _verified_payload(text, jwk, algorithm)
        who = None if payload is None else self._claimed(_object(payload))
        if who is not None:
            self._good.put(_cache_key(text), who, JWT_CACHE_SECONDS)
        return who

    def cached_identity(self, text: str) -> Identity | None:
        """Whom it was found to belong to, if that was a moment ago and it has not expired."""
        entry = self._good.get(_cache_key(text))
        if entry is None or entry.value.expires_at is None:
            return None
        leeway = timedelta(seconds=CLOCK_LEEWAY_SECONDS)
        return entry.value if self._clock() < entry.value.expires_at + leeway else None

    def _claimed(self, claims: Mapping[str, Any]) -> Identity | None:
        now = self._clock().timestamp()
        expires = _time(claims.get("exp"))
        starts = [_time(claims.get(name, 0)) for name in ("nbf", "iat")]
        if expires is None or now >= expires + CLOCK_LEEWAY_SECONDS:
            return None
        if any(start is None or now < start - CLOCK_LEEWAY_SECONDS for start in starts):
            return None
        if claims.get("iss") != self._trust.issuer or not self._is_meant(claims.get("aud")):
            return None
        name, tenant = claims.get("sub"), claims.get(self._trust.tenant_claim)
        role = _role(claims.get(self._trust.role_claim))
        if not isinstance(tenant, str) or not is_tenant(tenant) or role is None:
            return None
        if (
            not isinstance(name, str)
            or not 1 <= len(name) <= MAX_SUBJECT_CHARACTERS
            or _FORBIDDEN_CHARACTER.search(name)
        ):
            return None
        return Identity(tenant, name, role, expires_at=datetime.fromtimestamp(expires, UTC))

    def _is_meant(self, audience: Any) -> bool:
        wanted = self._trust.audience
        return audience == wanted or (isinstance(audience, list) and wanted in audience)


def _header(text: str) -> Mapping[str, Any]:
    import jwt  # 50 ms, for who brings one

    try:
        return dict(jwt.get_unverified_header(text))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}


def _verified_payload(text: str, jwk: Jwk, algorithm: str) -> bytes | None:
    """What was signed, if it was, with this key."""
    import jwt

    try:
        key = jwt.PyJWK(dict(jwk), algorithm=algorithm)
        return bytes(jwt.PyJWS().decode(text, key, algorithms=[algorithm]))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None


def _object(payload: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _time(value: Any) -> float | None:
    """Seconds of the epoch; what is no number, or none of this age, is None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _MAX_EPOCH_SECONDS else None


def _role(claim: Any) -> Role | None:
    """Of several, as groups are, the highest that we know."""
    said = claim if isinstance(claim, list) else [claim]
    known = [role for one in said if isinstance(one, str) and (role := Role.of(one)) is not None]
    return max(known, default=None)


def _cache_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()
