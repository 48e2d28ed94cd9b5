"""The node's side of a connection: uvicorn's, with a short way for ordinary requests.

A request that has arrived whole in one read needs no task, no queue and no timeout of its own. It
is handed to the application, and its answer is written when it comes. Everything else (bodies in
pieces, pipelines, upgrades, HEAD, HTTP/1.0, a client that does not read) goes uvicorn's way.
"""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from punctual.node.http.application import ROOT, Application
from punctual.node.http.connection import Connection, head_of
from punctual.web.http.problems import internal_error_reply
from punctual.web.http.request import Reply

_NOBODY_WAITS = asyncio.Event()
_ORDINARY = f"{ROOT}/".encode()
_JOINED = 64 * 1024  # bytes: a longer body is not copied behind its head


class HttpProtocol(Connection):
    """One connection."""

    _pieces: list[bytes] | None = None  # of the body of a request that may go the short way

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._pieces is not None and not self.transport.is_closing():
            self._wait_for_the_rest()

    def on_headers_complete(self) -> None:
        if self._is_ordinary():
            self.head_is_whole()
            self._pieces = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._pieces is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._pieces is None:
            super().on_message_complete()
            return
        self.message_is_whole()
        body, self._pieces = b"".join(self._pieces), None
        exchange = self.cycle = _Exchange(self)
        method = self.parser.get_method().decode("ascii")
        app = cast(Application, self.app)
        peer = self.client[0] if self.client else ""
        app.take(method, self.url, self.headers, body, exchange.answer, peer, self.owner)

    def _is_ordinary(self) -> bool:
        """Whether the request may go the short way, should it have arrived whole."""
        parser = self.parser
        return (
            (self.cycle is None or self.cycle.response_complete)
            and self.url.startswith(_ORDINARY)
            and b"#" not in self.url
            and not self.expect_100_continue
            and not self.flow.write_paused
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and parser.get_method() != b"HEAD"
        )

    def _wait_for_the_rest(self) -> None:
        pieces, self._pieces = self._pieces or [], None
        super().on_headers_complete()
        for piece in pieces:
            super().on_body(piece)


class _Exchange(RequestResponseCycle):
    """Stands where uvicorn keeps the request that is under way."""

    def __init__(self, wire: HttpProtocol) -> None:
        self._wire = wire
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False
        self.message_event = _NOBODY_WAITS

    def answer(self, reply: Reply, request_id: str) -> None:
        if self.disconnected:
            return
        try:
            head, closes = head_of(reply, request_id, self.keep_alive)
        except ValueError:
            reply = internal_error_reply(request_id)
            head, closes = head_of(reply, request_id, self.keep_alive)
        transport = self._wire.transport
        if len(reply.body) < _JOINED:
            transport.write(head + reply.body)
        else:
            transport.writelines((head, reply.body))
        self.response_complete = True
        if closes:
            transport.close()
        self._wire.on_response_complete()
