"""An issuer of JWTs on loopback. A test creates and rotates its keys."""

import json
import threading
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from punctual.auth.issuer_config import IssuerConfig

AUDIENCE = "punctual"
OF_KIND = {"RS256": "rsa", "PS256": "rsa", "ES256": "ec", "EdDSA": "ed"}
DISCOVERY = "/realm/.well-known/openid-configuration"
KEYS = "/realm/keys"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """Return a private key. All tests share it, because creating one is slow."""
    del number
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def jwk_of(kind: str, kid: str, key: Any, **more: Any) -> dict[str, Any]:
    algorithm: Any = {
        "rsa": jwt.algorithms.RSAAlgorithm,
        "ec": jwt.algorithms.ECAlgorithm,
        "ed": jwt.algorithms.OKPAlgorithm,
    }[kind]
    jwk: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    jwk.pop("key_ops", None)
    return {**jwk, "kid": kid, "use": "sig", **more}


class Issuer:
    """A server of `pages` by path. A page is a value or bytes."""

    def __init__(self, address: str) -> None:
        self.address = f"{address}/realm"
        self.request_counts: Counter[str] = Counter()
        self.keys = {kind: private_key(kind) for kind in ("rsa", "ec", "ed")}
        self.pages: dict[str, Any] = {
            DISCOVERY: {"issuer": self.address, "jwks_uri": f"{address}{KEYS}"}
        }
        self.down = False
        self.publish()

    @property
    def trust(self) -> IssuerConfig:
        return IssuerConfig(self.address, AUDIENCE)

    def publish(self, *more: Mapping[str, Any]) -> None:
        listed = [jwk_of(kind, f"{kind}-0", key) for kind, key in self.keys.items()]
        self.pages[KEYS] = {"keys": [*listed, *more]}

    def claims(self, now: datetime, **changed: Any) -> dict[str, Any]:
        """Return the claims of a valid token. None leaves a claim out."""
        at = int(now.timestamp())
        claims = {
            "iss": self.address,
            "aud": AUDIENCE,
            "sub": "ada",
            "iat": at,
            "exp": at + 300,
            "tenant": "acme",
            "role": "operator",
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, now: datetime, algorithm: str = "RS256", kid: str | None = None, **changed: Any
    ) -> str:
        kind = OF_KIND[algorithm]
        headers = {"kid": kid or f"{kind}-0"}
        claims = self.claims(now, **changed)
        return jwt.encode(claims, self.keys[kind], algorithm=algorithm, headers=headers)


def encode_jwt(header: Mapping[str, Any], claims: Any, signature: bytes = b"") -> str:
    """Return a JWT of these parts without checking them."""
    raw = [json.dumps(part).encode() for part in (header, claims)]
    parts = [urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*raw, signature)]
    return ".".join(parts)


@contextmanager
def an_issuer() -> Iterator[Issuer]:
    issuers: list[Issuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer = issuers[0]
            issuer.request_counts[self.path] += 1
            page = issuer.pages.get(self.path)
            if issuer.down or page is None:
                self.send_error(503)
                return
            if callable(page):
                page(self)
                return
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuers.append(Issuer(f"http://127.0.0.1:{server.server_port}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuers[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
