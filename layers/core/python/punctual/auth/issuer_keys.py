"""Find the public keys of an issuer by discovery, and read them again for a new key."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any

from punctual.auth.issuer_config import is_loopback_url, is_safe_url
from punctual.domain.errors import Unavailable

KEY_CACHE_SECONDS = 600.0  # after this time the keys are read again
MAX_STALE_KEY_SECONDS = 3_600.0  # the same, while the issuer does not answer
MIN_KEY_REFRESH_SECONDS = 30.0  # between two reads for an unknown key
FAILURE_PAUSE_SECONDS = 5.0  # after a failed read
MAX_ISSUER_KEYS = 100
DISCOVERY_PATH = "/.well-known/openid-configuration"

# The key type and curve for each algorithm. A symmetric algorithm must not be here: its key would
# be public.
KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
_PUBLIC_FIELDS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_RSA_BITS = range(2_048, 8_193)

Fetch = Callable[[str], bytes]
Jwk = Mapping[str, str]


class IssuerKeys:
    """The keys of one issuer. One thread at a time may use them."""

    def __init__(self, issuer: str, fetch: Fetch, wall_seconds: Callable[[], float]) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._wall_seconds = wall_seconds
        self._keys: Mapping[tuple[str, str], Jwk] = {}
        self._read_at: float | None = None
        self._failed_at: float | None = None

    def find(self, kid: str, algorithm: str) -> Jwk | None:
        """Return the key, or None if the issuer has no such key.

        Raise `Unavailable` if the issuer may have it but does not answer.
        """
        if self._age(self._read_at) >= KEY_CACHE_SECONDS:
            self._refresh_or_keep()
        jwk = self._keys.get((kid, algorithm))
        if jwk is None and self._age(self._read_at) >= MIN_KEY_REFRESH_SECONDS:
            self._refresh()
            jwk = self._keys.get((kid, algorithm))
        return jwk

    def _refresh_or_keep(self) -> None:
        try:
            self._refresh()
        except Unavailable:
            if self._age(self._read_at) >= MAX_STALE_KEY_SECONDS:
                raise

    def _refresh(self) -> None:
        if self._age(self._failed_at) < FAILURE_PAUSE_SECONDS:
            raise Unavailable("The issuer of tokens did not answer a moment ago: try again.")
        try:
            keys = self._fetch_keys()
        except Unavailable:
            self._failed_at = self._wall_seconds()
            raise
        self._keys, self._read_at, self._failed_at = keys, self._wall_seconds(), None

    def _fetch_keys(self) -> Mapping[tuple[str, str], Jwk]:
        discovery = _parse_object(self._fetch(self._issuer.rstrip("/") + DISCOVERY_PATH))
        if discovery.get("issuer") != self._issuer:
            raise Unavailable("The issuer's discovery document names another issuer.")
        address = discovery.get("jwks_uri")
        if not isinstance(address, str) or not self._may_fetch(address):
            raise Unavailable("The issuer's discovery document names no safe URL of its keys.")
        jwks = _parse_object(self._fetch(address)).get("keys")
        if not isinstance(jwks, list):
            raise Unavailable("The issuer's key document holds no list of keys.")
        keys: dict[tuple[str, str], Jwk] = {}
        for jwk in jwks[:MAX_ISSUER_KEYS]:
            for algorithm in KEY_TYPES:
                if isinstance(jwk, dict) and _is_usable(jwk, algorithm):
                    public = {
                        "kty": jwk["kty"],
                        **{name: jwk[name] for name in _PUBLIC_FIELDS[jwk["kty"]]},
                    }
                    keys[jwk["kid"], algorithm] = public
        return keys

    def _may_fetch(self, address: str) -> bool:
        """Return True for a safe URL. A remote issuer must not send us to a loopback address."""
        return is_safe_url(address) and (
            is_loopback_url(self._issuer) or not is_loopback_url(address)
        )

    def _age(self, since: float | None) -> float:
        """Return the seconds since a time, or infinity for None and for a time in the future."""
        age = None if since is None else self._wall_seconds() - since
        return float("inf") if age is None or age < 0 else age


def _parse_object(text: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unavailable("The issuer's document is not JSON.") from error
    if not isinstance(value, dict):
        raise Unavailable("The issuer's document is not a JSON object.")
    return value


def _is_usable(jwk: Mapping[str, Any], algorithm: str) -> bool:
    """Return True if the key can check signatures of this algorithm."""
    kind, curve = KEY_TYPES[algorithm]
    if jwk.get("kty") != kind or jwk.get("use", "sig") != "sig":
        return False
    if jwk.get("alg", algorithm) != algorithm or (curve is not None and jwk.get("crv") != curve):
        return False
    if not all(isinstance(jwk.get(name), str) for name in ("kid", *_PUBLIC_FIELDS[kind])):
        return False
    return kind != "RSA" or _bit_length(jwk["n"]) in _RSA_BITS


def _bit_length(number: str) -> int:
    try:
        return int.from_bytes(urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
    except ValueError:
        return 0
