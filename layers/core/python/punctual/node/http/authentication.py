"""Who calls the node, where `PUNCTUAL_AUTH` is on: asked before anything of a call is looked at."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from punctual.auth.authenticator import TokenVerifier, is_jwt
from punctual.auth.bearer import Identity, bearer_token
from punctual.domain.errors import Unavailable
from punctual.node.http.parsing import ROOT
from punctual.web.contract import PUBLIC_PATHS
from punctual.web.http.challenge import tokens_unavailable, unauthenticated
from punctual.web.http.request import Caller

T = TypeVar("T")
Then = Callable[[Caller | Exception], None]


NOBODY = Caller("", "")
OPEN = frozenset(f"{ROOT}{path}".encode() for path in PUBLIC_PATHS)


class Issuer(TokenVerifier, Protocol):
    def cached_identity(self, text: str) -> Identity | None: ...


class BackgroundCalls(Protocol):
    """Does some work on a thread of its own, one after another, and tells of it on ours."""

    def __call__(self, work: Callable[[], T], done: Callable[[T | Exception], None], /) -> None: ...


class NodeAuthenticator:
    """Our own tokens are rows of the store, whose thread this is. An issuer's keys may have to be
    fetched, which nothing that is due may wait for."""

    def __init__(
        self,
        tokens: TokenVerifier,
        issuer: Issuer | None,
        beside: BackgroundCalls,
        log: Callable[..., None],
    ) -> None:
        self._tokens = tokens
        self._issuer = issuer
        self._beside = beside
        self._log = log

    def ask(
        self, path: bytes, headers: Iterable[tuple[bytes, bytes]], peer: str, then: Then
    ) -> None:
        """`then` gets the caller, or what to refuse the call with; at once, or later."""
        if path.rstrip(b"/") in OPEN:
            then(NOBODY._replace(address=peer))
            return
        given = [value for name, value in headers if name == b"authorization"]
        text = bearer_token(given[0].decode("latin-1")) if len(given) == 1 else None
        if text is None:
            then(unauthenticated())
        elif self._issuer is not None and is_jwt(text):
            self._ask_issuer(self._issuer, text, peer, then)
        else:
            then(self._known(partial(self._tokens.identify, text), peer))

    def _ask_issuer(self, issuer: Issuer, text: str, peer: str, then: Then) -> None:
        who = issuer.cached_identity(text)
        if who is not None:
            then(_caller(who, peer))
        else:
            work = partial(self._known, partial(issuer.identify, text), peer)
            self._beside(work, then)

    def _known(self, ask: Callable[[], Identity | None], peer: str) -> Caller | Exception:
        try:
            who = ask()
        except Unavailable as error:
            self._log("token_not_checked", error=error.message)
            return tokens_unavailable()
        return unauthenticated() if who is None else _caller(who, peer)


class OwnThread:
    """One, so that an issuer that does not answer is asked by one at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="issuer")

    def __call__(self, work: Callable[[], T], done: Callable[[T | Exception], None], /) -> None:
        running = asyncio.get_running_loop()
        running.run_in_executor(self._pool, work).add_done_callback(partial(_told, done))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _told(done: Callable[[T | Exception], None], future: "asyncio.Future[T]") -> None:
    if future.cancelled():
        return  # the node ends
    error = future.exception()
    if isinstance(error, Exception):
        done(error)
    else:
        done(future.result())


def _caller(who: Identity, peer: str) -> Caller:
    return Caller(who.tenant, who.name, who.role, who.token_id, peer, who.expires_at)
