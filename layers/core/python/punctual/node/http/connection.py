"""The bounds of one connection, before anything is known of its caller.

A connection is idle, sends a head, sends a body, or waits for an answer. Each of the first three
may last so long; the fourth is the node's own time. `sweep` looks at all of them each second, so a
request costs no timer. Over the cap the connection that has kept the node waiting longest makes
room.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from punctual.node.http.application import OWNER, Application
from punctual.node.http.parsing import MAX_HEAD, MAX_HEADERS, too_large_head
from punctual.web.http.json_body import MAX_BATCH_BODY_BYTES
from punctual.web.http.problems import RequestRejected
from punctual.web.http.request import COMMON_HEADERS, Reply

MAX_CONNECTIONS = 1_000
IDLE_SECONDS = 60
HEAD_SECONDS = 10
BODY_SECONDS = 30
SWEEP_SECONDS = 1.0
# On the wire a body in chunks is longer than what it says; one that is much longer says nothing.
MAX_BODY_ON_WIRE = 2 * MAX_BATCH_BODY_BYTES
_PIECE = 16 * 1024  # bytes of a head that are parsed before its length is looked at again
_ALWAYS = "".join(f"{name}: {value}\r\n" for name, value in COMMON_HEADERS)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class _Phase(Enum):
    """What of a request is on its way; the value is how many seconds it may take."""

    NONE = IDLE_SECONDS
    HEAD = HEAD_SECONDS
    BODY = BODY_SECONDS


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with bounds."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        most: int = MAX_CONNECTIONS,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._most = most
        self.owner: int | None = None
        self._monotonic = monotonic or self.loop.time
        self._phase = _Phase.NONE
        self._since = self._monotonic()
        self._received = 0  # bytes of this phase
        self._unsent = 0  # bytes of answers that the client has not taken
        self._unsent_since = self._since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A connection stays its user's: the system is asked once.
        self.owner = cast(Application, self.app).owner(self.client, self._own_address())
        self.app_state = {**self.app_state, OWNER: self.owner}
        if len(self.connections) > self._most:
            self._make_room()

    def _own_address(self) -> tuple[str, int] | None:
        if self.server is None or self.server[1] is None:
            return None
        return self.server[0], self.server[1]

    def _make_room(self) -> None:
        others = [cast(Connection, one) for one in self.connections if one is not self]
        standing = [one for one in others if not one.transport.is_closing()]
        if len(standing) < self._most:
            return
        waiting = [one for one in standing if one.keeps_us_waiting]
        oldest = min(waiting, key=lambda one: one._since, default=self)
        oldest.transport.abort()

    @property
    def keeps_us_waiting(self) -> bool:
        """Whether the next move is the client's."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._phase is _Phase.BODY or is_answered

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.NONE:
            self._enter(_Phase.HEAD)
        start = 0
        while start < len(data) and not self.transport.is_closing():
            end = start + _PIECE if self._phase is _Phase.HEAD else len(data)
            piece = data[start:end]
            start += len(piece)
            self._received += len(piece)
            super().data_received(piece)
            self._check_size()

    def _check_size(self) -> None:
        if self.transport.is_closing():
            return
        if self._phase is _Phase.HEAD:
            if self._received > MAX_HEAD or len(self.headers or ()) > MAX_HEADERS:
                self._refuse(too_large_head())
        elif self._phase is _Phase.BODY and self._received > MAX_BODY_ON_WIRE:
            self._refuse(
                RequestRejected("TOO_LARGE", f"The body takes over {MAX_BODY_ON_WIRE:,} bytes.")
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._phase is not _Phase.HEAD:  # one follows another in the same piece
            self._enter(_Phase.HEAD)

    def on_headers_complete(self) -> None:
        self.head_is_whole()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.message_is_whole()
        super().on_message_complete()

    def head_is_whole(self) -> None:
        self._enter(_Phase.BODY)

    def message_is_whole(self) -> None:
        self._enter(_Phase.NONE)

    def on_response_complete(self) -> None:
        if self._phase is not _Phase.BODY:
            self._since = self._monotonic()
        super().on_response_complete()

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._since, self._received = phase, self._monotonic(), 0

    def expire(self, now: float) -> None:
        """End the connection if the client has used up its time."""
        if self.transport.is_closing():
            return
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since >= IDLE_SECONDS:
            self.transport.abort()
            return
        if unsent or not self.keeps_us_waiting or now - self._since < self._phase.value:
            return
        if self._phase is _Phase.NONE:
            self.transport.close()
            return
        what = "head" if self._phase is _Phase.HEAD else "body"
        text = f"The {what} did not arrive within {self._phase.value} seconds."
        self._refuse(RequestRejected("REQUEST_TIMEOUT", text))

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 our own words are used
        """What uvicorn's parser cannot read is told as every other refusal is."""
        text = "This cannot be read as HTTP/1.1: its method, its lengths or its form."
        self._refuse(RequestRejected("BAD_REQUEST", text))

    def _refuse(self, error: RequestRejected) -> None:
        """Say why, and hang up; a request that was under way has no other answer."""
        reply, request_id = cast(Application, self.app).refusal(error)
        head, _ = head_of(reply._replace(headers=()), request_id, keep_alive=False)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not (self._phase is _Phase.BODY and cycle.response_complete):
            self.transport.write(head + reply.body)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def sweep(connections: Iterable[Any], now: float) -> None:
    """End each connection whose client has used up its time."""
    for connection in list(connections):
        connection.expire(now)


def head_of(reply: Reply, request_id: str, keep_alive: bool) -> tuple[bytes, bool]:
    """The lines before the body, and whether the connection ends with this answer."""
    closes = not keep_alive
    lines = [f"content-length: {len(reply.body)}\r\nx-request-id: {request_id}\r\n{_ALWAYS}"]
    given = reply.headers
    if reply.content_type:
        given = (("content-type", reply.content_type), *given)
    for name, value in given:
        if _CONTROL.search(value):
            raise ValueError(f"The value of the header {name} holds a control character.")
        lines.append(f"{name}: {value}\r\n")
        closes = closes or (name == "connection" and value == "close")
    if not keep_alive:
        lines.append("connection: close\r\n")
    lines.append("\r\n")
    return STATUS_LINE[reply.status] + "".join(lines).encode("latin-1"), closes
