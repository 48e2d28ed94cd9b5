"""Limits and deadlines of a connection, before its caller is authenticated.

A connection is idle, sends a head, sends a body, or waits for an answer. The first three have a
deadline. `expire_connections` checks all connections each second, so a request needs no timer of
its own. Above `MAX_CONNECTIONS` the connection that has kept the node waiting longest ends.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from http import HTTPStatus
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from punctual.node.http.application import CONNECTION, SOCKET_OWNER, Application
from punctual.node.http.parsing import MAX_HEAD_BYTES, MAX_REQUEST_HEADERS, head_too_large
from punctual.node.http.uploads import is_upload
from punctual.web.http.json_body import MAX_BATCH_BODY_BYTES
from punctual.web.http.problems import RequestRejected
from punctual.web.http.request import COMMON_HEADERS

MAX_CONNECTIONS = 1_000
IDLE_CONNECTION_SECONDS = 60
HEAD_SECONDS = 10
BODY_SECONDS = 30
SWEEP_SECONDS = 1.0
# The client of an upload sends so many bytes, or the rest, within so many seconds.
UPLOAD_PIECE_BYTES = 1024 * 1024
UPLOAD_PIECE_SECONDS = 31
# A chunked body is longer on the wire than its content.
MAX_BODY_WIRE_BYTES = 2 * MAX_BATCH_BODY_BYTES
HEAD_PIECE_BYTES = 16 * 1024  # of a head, between two checks of its length
_COMMON_HEADER_LINES = "".join(f"{name}: {value}\r\n" for name, value in COMMON_HEADERS)


class _Phase(Enum):
    """The part of a request that is arriving. The value is its deadline in seconds."""

    NONE = IDLE_CONNECTION_SECONDS
    HEAD = HEAD_SECONDS
    BODY = BODY_SECONDS
    UPLOAD = UPLOAD_PIECE_SECONDS


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits and deadlines."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        max_connections: int = MAX_CONNECTIONS,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._state = dict(app_state)  # of this connection; uvicorn copies it into each scope
        super().__init__(config, server_state, self._state, _loop)
        self._application = cast(Application, self.app)
        self._max_connections = max_connections
        self._monotonic = monotonic or self.loop.time
        self._phase = _Phase.NONE
        self._phase_since = self._monotonic()
        self._received = 0  # bytes of this phase
        self._unsent = 0  # bytes of answers that the client has not read
        self._unsent_since = self._phase_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._state[CONNECTION] = transport
        # The owner of a connection never changes, so one query is enough.
        self._state[SOCKET_OWNER] = self._application.socket_owner(
            self.client, self._server_address()
        )
        if len(self.connections) > self._max_connections:
            self._abort_oldest_connection()

    def _server_address(self) -> tuple[str, int] | None:
        if self.server is None or self.server[1] is None:
            return None
        return self.server[0], self.server[1]

    def _abort_oldest_connection(self) -> None:
        others = [cast(HttpProtocol, other) for other in self.connections if other is not self]
        open_connections = [other for other in others if not other.transport.is_closing()]
        if len(open_connections) < self._max_connections:
            return
        waiting = [other for other in open_connections if other._waits_for_client()]
        oldest = min(waiting, key=lambda other: other._phase_since, default=self)
        oldest.transport.abort()

    def _waits_for_client(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._phase in (_Phase.BODY, _Phase.UPLOAD) or is_answered

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.NONE:
            self._enter(_Phase.HEAD)
        piece_start = 0
        while piece_start < len(data) and not self.transport.is_closing():
            piece_end = piece_start + HEAD_PIECE_BYTES if self._phase is _Phase.HEAD else len(data)
            piece = data[piece_start:piece_end]
            piece_start += len(piece)
            self._received += len(piece)
            super().data_received(piece)
            self._check_size()

    def _check_size(self) -> None:
        if self.transport.is_closing():
            return
        if self._phase is _Phase.HEAD:
            if self._received > MAX_HEAD_BYTES or len(self.headers or ()) > MAX_REQUEST_HEADERS:
                self._reject(head_too_large())
        elif self._phase is _Phase.UPLOAD:
            if self._received >= UPLOAD_PIECE_BYTES:
                self._enter(_Phase.UPLOAD)
        elif self._phase is _Phase.BODY and self._received > MAX_BODY_WIRE_BYTES:
            text = f"The body takes over {MAX_BODY_WIRE_BYTES:,} bytes."
            self._reject(RequestRejected("TOO_LARGE", text))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._phase is not _Phase.HEAD:  # one request follows another in the same piece
            self._enter(_Phase.HEAD)

    def on_headers_complete(self) -> None:
        is_put = is_upload(self.parser.get_method().decode("latin-1"), self.url)
        self._enter(_Phase.UPLOAD if is_put else _Phase.BODY)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._enter(_Phase.NONE)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._phase not in (_Phase.BODY, _Phase.UPLOAD):
            self._phase_since = self._monotonic()
        super().on_response_complete()

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._phase_since, self._received = phase, self._monotonic(), 0

    def expire(self, now: float) -> None:
        """End the connection if its client exceeds a deadline."""
        if self.transport.is_closing():
            return
        if self._phase is _Phase.UPLOAD and self.flow.read_paused:
            self._phase_since = now  # the node itself reads no further, so the client is not slow
        unsent_bytes = self.transport.get_write_buffer_size()
        if not unsent_bytes or unsent_bytes != self._unsent:
            self._unsent, self._unsent_since = unsent_bytes, now
        elif now - self._unsent_since >= IDLE_CONNECTION_SECONDS:
            self.transport.abort()
            return
        if (
            unsent_bytes
            or not self._waits_for_client()
            or now - self._phase_since < self._phase.value
        ):
            return
        if self._phase is _Phase.NONE:
            self.transport.close()
            return
        part = "head" if self._phase is _Phase.HEAD else "body"
        text = f"The {part} did not arrive within {self._phase.value} seconds."
        if self._phase is _Phase.UPLOAD:
            text = (
                f"An upload sends at least {UPLOAD_PIECE_BYTES:,} bytes in "
                f"{UPLOAD_PIECE_SECONDS} seconds."
            )
        self._reject(RequestRejected("REQUEST_TIMEOUT", text))

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's text is not used
        """Answer unparsable input as problem+json, like every other rejection."""
        text = "This cannot be read as HTTP/1.1: its method, its lengths or its form."
        self._reject(RequestRejected("BAD_REQUEST", text))

    def _reject(self, error: RequestRejected) -> None:
        """Answer with the error, unless the request has its answer, and close the connection."""
        cycle = self.cycle
        is_body = self._phase in (_Phase.BODY, _Phase.UPLOAD)
        if cycle is None or not (is_body and cycle.response_complete):
            reply, request_id = self._application.rejection_reply(error)
            status = HTTPStatus(reply.status)
            response_head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                f"content-length: {len(reply.body)}\r\nx-request-id: {request_id}\r\n"
                f"{_COMMON_HEADER_LINES}"
                f"content-type: {reply.content_type}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(response_head.encode("latin-1") + reply.body)
        self.transport.close()


def expire_connections(connections: Iterable[Any], now: float) -> None:
    """End each connection with a client that exceeds a deadline."""
    for connection in list(connections):
        connection.expire(now)
