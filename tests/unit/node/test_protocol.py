"""What one connection may do to the node before anything is known of its caller."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from punctual.node.http.application import build_application
from punctual.node.http.descriptors import max_connections_within, min_file_limit
from punctual.node.http.protocol import MAX_BODY_WIRE_BYTES, HttpProtocol, expire_connections
from tests.support.web_engine import NOON, MemoryEngine

HEAD_SECONDS, BODY_SECONDS, IDLE_SECONDS = 10, 30, 60  # as the pages say
MAX_HEAD = 64 * 1024
GET = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b'{"name":"a","schedule_type":"IMMEDIATE"}'
POST = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)


def quiet(_event: str, /, **_fields: Any) -> None: ...


class Socket:
    """A transport that keeps what is written; `unsent` of it the client has not taken."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = self.aborted = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, _name: str) -> Any:
        return None

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def code(self) -> str:
        return str(json.loads(self.written.rpartition(b"\r\n\r\n")[2])["code"])


class Server:
    """HttpProtocols of one server, on a clock that the test moves."""

    def __init__(self, most: int = 1_000) -> None:
        self.now = 0.0
        self._most = most
        self._engine = MemoryEngine()
        self.state = ServerState()
        self.gate: asyncio.Event | None = None  # where set, answers wait for it

    async def _turn(self, request: Callable[[], Any]) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        return request()

    def connect(self) -> tuple[HttpProtocol, Socket]:
        engine = self._engine
        app = build_application(
            engine.as_jobs,
            engine.as_search,
            self._turn,
            quiet,
            engine.tokens,
            clock=lambda: NOON,
        )
        config = uvicorn.Config(
            app, http=HttpProtocol, lifespan="off", log_config=None, proxy_headers=False
        )
        connection = HttpProtocol(
            config, self.state, {}, max_connections=self._most, monotonic=lambda: self.now
        )
        socket = Socket()
        connection.connection_made(cast(asyncio.Transport, socket))
        return connection, socket

    def wait(self, seconds: float) -> None:
        self.now += seconds
        expire_connections(self.state.connections, self.now)


def played(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(cast(Any, test()))


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


@pytest.mark.parametrize("piece", [b"x-long: " + b"a" * 4_000, b"x: y\r\n" * 200, b"a" * 5_000])
def test_an_endless_head_is_refused_and_nothing_of_it_is_kept(
    piece: bytes,
) -> None:
    async def test() -> None:
        connection, socket = Server().connect()
        connection.data_received(b"GET /v1/jobs HTTP/1.1\r\n")
        sent = 0
        while not socket.closed:
            connection.data_received(piece)
            sent += len(piece)
            assert sent <= MAX_HEAD + len(piece)
        assert socket.written.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))

    played(test)


def test_a_head_in_one_long_read_is_refused_before_it_is_parsed_whole() -> None:
    async def test() -> None:
        connection, socket = Server().connect()
        connection.data_received(GET[:-2] + b"x-long: " + b"a" * 1_000_000)
        assert (socket.written[:12], socket.code) == (b"HTTP/1.1 431", "HEADERS_TOO_LARGE")
        assert socket.closed

    played(test)


def test_a_head_that_is_just_short_enough_is_taken() -> None:
    async def test() -> None:
        connection, socket = Server().connect()
        head = GET[:-2] + b"x-long: \r\n\r\n"
        filled = head.replace(b"x-long: ", b"x-long: " + b"a" * (MAX_HEAD - len(head)))
        connection.data_received(filled)
        await settle()
        assert (len(filled), socket.written[:12]) == (MAX_HEAD, b"HTTP/1.1 200")

    played(test)


def test_a_body_that_takes_more_on_the_wire_than_any_may_is_refused() -> None:
    async def test() -> None:
        connection, socket = Server().connect()
        head = POST.replace(b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked")
        connection.data_received(head + b"1\r\n \r\n0\r\nx-trailer: ")
        for _ in range(MAX_BODY_WIRE_BYTES // 60_000 + 1):
            connection.data_received(b"a" * 60_000)
        assert socket.closed

    played(test)


def test_a_head_has_ten_seconds_from_its_first_byte() -> None:
    async def test() -> None:
        server = Server()
        connection, socket = server.connect()
        server.wait(IDLE_SECONDS - 1)
        for byte in GET[:9]:
            connection.data_received(bytes([byte]))
            server.wait(1)
        assert not socket.closed
        server.wait(1)
        assert (socket.written[:12], socket.code) == (b"HTTP/1.1 408", "REQUEST_TIMEOUT")
        assert f"within {HEAD_SECONDS} seconds".encode() in socket.written
        assert socket.closed

    played(test)


def test_a_body_has_thirty_seconds() -> None:
    async def test() -> None:
        server = Server()
        connection, socket = server.connect()
        connection.data_received(POST + BODY[:5])
        server.wait(BODY_SECONDS - 1)
        connection.data_received(BODY[5:6])
        assert not socket.closed
        server.wait(1)
        await settle()
        assert (socket.written[:12], socket.code) == (b"HTTP/1.1 408", "REQUEST_TIMEOUT")
        assert socket.written.count(b"HTTP/1.1 ") == 1
        assert socket.closed

    played(test)


def test_an_idle_connection_has_sixty_seconds_from_its_last_answer() -> None:
    async def test() -> None:
        server = Server()
        silent, talking = server.connect(), server.connect()
        server.wait(IDLE_SECONDS - 1)
        talking[0].data_received(GET)
        await settle()
        server.wait(1)
        assert (silent[1].closed, talking[1].closed) == (True, False)
        assert silent[1].written == b""
        server.wait(IDLE_SECONDS - 2)
        assert not talking[1].closed
        server.wait(1)
        assert talking[1].closed

    played(test)


def test_a_call_that_waits_for_its_answer_is_active() -> None:
    async def test() -> None:
        server = Server(most=1)
        server.gate = asyncio.Event()
        connection, socket = server.connect()
        connection.data_received(GET)
        await settle()
        server.wait(10 * IDLE_SECONDS)
        assert not socket.closed
        _, refused = server.connect()
        assert (refused.aborted, socket.closed) == (True, False)
        connection.data_received(GET[:9])  # the head of the next one has its time from the answer
        server.wait(2 * HEAD_SECONDS)
        server.gate.set()
        await settle()
        assert socket.written.startswith(b"HTTP/1.1 200 ")
        server.wait(HEAD_SECONDS - 1)
        assert not socket.closed
        server.wait(1)
        assert socket.closed

    played(test)


def test_a_client_that_does_not_take_its_answer_is_hung_up_on() -> None:
    async def test() -> None:
        server = Server()
        connection, socket = server.connect()
        connection.data_received(GET)
        await settle()
        for left in (9_000, 8_000, 7_000):
            socket.unsent = left
            server.wait(IDLE_SECONDS - 1)
        assert not socket.closed
        server.wait(IDLE_SECONDS)
        assert socket.aborted

    played(test)


def test_the_one_that_keeps_us_waiting_longest_makes_room() -> None:
    async def test() -> None:
        server = Server(most=3)
        first, second, third = (server.connect() for _ in range(3))
        server.now = 1
        first[0].data_received(GET)
        await settle()
        server.now = 2
        third[0].data_received(GET[:5])
        fourth = server.connect()
        closed = [one[1].aborted for one in (first, second, third, fourth)]
        assert closed == [False, True, False, False]

    played(test)


def test_runs_keep_their_descriptors() -> None:
    least = min_file_limit(48)
    assert max_connections_within(least, 48) > 0
    assert max_connections_within(least - 1, 48) == 0
    assert max_connections_within(10**6, 48) == 1_000
    for limit in (1_024, 2_048):
        assert limit - max_connections_within(limit, 48) >= 48 * 16
