"""An issuer's public keys: found by discovery, kept, asked for again when one is new."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any

from punctual.auth.issuer_config import is_loopback_url, is_safe_url
from punctual.domain.errors import Unavailable

KEY_CACHE_SECONDS = 600.0  # seconds that keys are taken for those in force
MAX_STALE_KEY_SECONDS = 3_600.0  # and for so long where the issuer does not answer
MIN_KEY_REFRESH_SECONDS = 30.0  # between two looks for a key that is not known
FAILURE_PAUSE_SECONDS = 5.0  # after a look that failed
MAX_ISSUER_KEYS = 100
DISCOVERY_PATH = "/.well-known/openid-configuration"

# What a key must be for each algorithm, and what of it is public. Nothing symmetric is among them:
# a public key is no secret to sign with.
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
    """Not for several threads at a time."""

    def __init__(self, issuer: str, fetch: Fetch, seconds: Callable[[], float]) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._seconds = seconds
        self._keys: Mapping[tuple[str, str], Jwk] = {}
        self._read_at: float | None = None
        self._failed_at: float | None = None

    def find(self, kid: str, algorithm: str) -> Jwk | None:
        """None where the issuer has no such key; `Unavailable` where it may have one."""
        if self._age(self._read_at) >= KEY_CACHE_SECONDS:
            self._refresh_or_keep()
        found = self._keys.get((kid, algorithm))
        if found is None and self._age(self._read_at) >= MIN_KEY_REFRESH_SECONDS:
            self._refresh()
            found = self._keys.get((kid, algorithm))
        return found

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
            keys = self._read()
        except Unavailable:
            self._failed_at = self._seconds()
            raise
        self._keys, self._read_at, self._failed_at = keys, self._seconds(), None

    def _read(self) -> Mapping[tuple[str, str], Jwk]:
        about = _object(self._fetch(self._issuer.rstrip("/") + DISCOVERY_PATH))
        if about.get("issuer") != self._issuer:
            raise Unavailable("The issuer's discovery document is about another issuer.")
        address = about.get("jwks_uri")
        if not isinstance(address, str) or not self._may_ask(address):
            raise Unavailable("The issuer's discovery document names no safe address of its keys.")
        listed = _object(self._fetch(address)).get("keys")
        if not isinstance(listed, list):
            raise Unavailable("What the issuer published as its keys is no list of keys.")
        found: dict[tuple[str, str], Jwk] = {}
        for jwk in listed[:MAX_ISSUER_KEYS]:
            for algorithm in KEY_TYPES:
                if isinstance(jwk, dict) and _is_usable(jwk, algorithm):
                    public = {
                        "kty": jwk["kty"],
                        **{name: jwk[name] for name in _PUBLIC_FIELDS[jwk["kty"]]},
                    }
                    found[jwk["kid"], algorithm] = public
        return found

    def _may_ask(self, address: str) -> bool:
        """What is published elsewhere sends us to nothing that listens on loopback here."""
        return is_safe_url(address) and (
            is_loopback_url(self._issuer) or not is_loopback_url(address)
        )

    def _age(self, since: float | None) -> float:
        """For ever where it never was, or a clock was set back behind it."""
        age = None if since is None else self._seconds() - since
        return float("inf") if age is None or age < 0 else age


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unavailable("What the issuer published is no JSON.") from error
    if not isinstance(found, dict):
        raise Unavailable("What the issuer published is no JSON object.")
    return found


def _is_usable(jwk: Mapping[str, Any], algorithm: str) -> bool:
    """Whether it is a key for signatures by this algorithm; others are passed over."""
    kind, curve = KEY_TYPES[algorithm]
    if jwk.get("kty") != kind or jwk.get("use", "sig") != "sig":
        return False
    if jwk.get("alg", algorithm) != algorithm or (curve is not None and jwk.get("crv") != curve):
        return False
    if not all(isinstance(jwk.get(name), str) for name in ("kid", *_PUBLIC_FIELDS[kind])):
        return False
    return kind != "RSA" or _bits(jwk["n"]) in _RSA_BITS


def _bits(number: str) -> int:
    try:
        return int.from_bytes(urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
    except ValueError:
        return 0
