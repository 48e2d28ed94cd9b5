"""Authenticates the callers of a node that runs with `PUNCTUAL_AUTH=on`."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from punctual.auth.authenticator import Identity, TokenVerifier, bearer_token, is_jwt
from punctual.domain.errors import Unavailable
from punctual.engine.ports.log import Log
from punctual.node.http.parsing import API_ROOT
from punctual.web.contract import PUBLIC_PATHS
from punctual.web.http.problems import tokens_unavailable, unauthenticated
from punctual.web.http.request import Caller

T = TypeVar("T")

PUBLIC_CALLER = Caller("", "")
PUBLIC_RAW_PATHS = frozenset(f"{API_ROOT}{path}".encode() for path in PUBLIC_PATHS)


class Issuer(TokenVerifier, Protocol):
    def cached_identity(self, text: str) -> Identity | None: ...


class BackgroundCalls(Protocol):
    """Runs work in another thread."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class NodeAuthenticator:
    """Verifies tokens of the store at once. Another thread fetches an issuer's keys."""

    def __init__(
        self,
        tokens: TokenVerifier,
        issuer: Issuer | None,
        call_in_background: BackgroundCalls,
        log: Log,
    ) -> None:
        self._tokens = tokens
        self._issuer = issuer
        self._call_in_background = call_in_background
        self._log = log

    async def authenticate(
        self, path: bytes, headers: Iterable[tuple[bytes, bytes]], peer: str
    ) -> Caller:
        """Return the caller of a request, or raise the error that rejects it."""
        if path.rstrip(b"/") in PUBLIC_RAW_PATHS:
            return PUBLIC_CALLER._replace(address=peer)
        token = sent_token(headers)
        if token is None:
            raise unauthenticated()
        try:
            identity = await self._identity(token)
        except Unavailable as error:
            self._log("token_not_checked", error=error.message)
            raise tokens_unavailable() from error
        if identity is None:
            raise unauthenticated()
        return _caller_of(identity, peer)

    async def _identity(self, token: str) -> Identity | None:
        if self._issuer is None or not is_jwt(token):
            return self._tokens.identify(token)
        cached = self._issuer.cached_identity(token)
        if cached is not None:
            return cached
        return await self._call_in_background(partial(self._issuer.identify, token))


def sent_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the token of the only Authorization header, or None."""
    values = [value for name, value in headers if name == b"authorization"]
    return bearer_token(values[0].decode("latin-1")) if len(values) == 1 else None


class IssuerThread:
    """One thread for calls to the issuer. A slow issuer gets one request at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="issuer")

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _caller_of(identity: Identity, peer: str) -> Caller:
    return Caller(
        identity.tenant, identity.name, identity.role, identity.token_id, peer, identity.expires_at
    )
