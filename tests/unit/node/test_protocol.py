"""Limits and deadlines of HTTP connections before authentication."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from punctual.node.http.application import build_application, node_services
from punctual.node.http.descriptors import max_connections_within, min_file_limit
from punctual.node.http.protocol import MAX_BODY_WIRE_BYTES, HttpProtocol, expire_connections
from tests.support.web_world import NOON, WebWorld

HEAD_SECONDS, BODY_SECONDS, IDLE_SECONDS = 10, 30, 60  # the documented limits
MAX_HEAD = 64 * 1024
GET = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b'{"name":"a","schedule_type":"IMMEDIATE"}'
POST = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)


def ignore_log(_event: str, /, **_fields: Any) -> None: ...


class Socket:
    """A transport that keeps the written bytes. `unsent` counts those the client has not read."""

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
    """HTTP protocols of one server, on a clock that the test advances."""

    def __init__(self, max_connections: int = 1_000) -> None:
        self.now = 0.0
        self._max_connections = max_connections
        self._world = WebWorld()
        self.state = ServerState()
        self.hold_answers: asyncio.Event | None = None  # if set, answers wait for it

    async def _turn(self, request: Callable[[], Any]) -> Any:
        if self.hold_answers is not None:
            await self.hold_answers.wait()
        return request()

    def connect(self) -> tuple[HttpProtocol, Socket]:
        world = self._world
        app = build_application(
            node_services(
                world.jobs,
                world.search,
                world.tokens,
                clock=lambda: NOON,
            ),
            self._turn,
            ignore_log,
        )
        config = uvicorn.Config(
            app, http=HttpProtocol, lifespan="off", log_config=None, proxy_headers=False
        )
        connection = HttpProtocol(
            config,
            self.state,
            {},
            max_connections=self._max_connections,
            monotonic=lambda: self.now,
        )
        socket = Socket()
        connection.connection_made(cast(asyncio.Transport, socket))
        return connection, socket

    def wait(self, seconds: float) -> None:
        self.now += seconds
        expire_connections(self.state.connections, self.now)


def run_scenario(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(cast(Any, scenario()))


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


@pytest.mark.parametrize("piece", [b"x-long: " + b"a" * 4_000, b"x: y\r\n" * 200, b"a" * 5_000])
def test_endless_request_head_is_refused(
    piece: bytes,
) -> None:
    async def scenario() -> None:
        connection, socket = Server().connect()
        connection.data_received(b"GET /v1/jobs HTTP/1.1\r\n")
        sent = 0
        while not socket.closed:
            connection.data_received(piece)
            sent += len(piece)
            assert sent <= MAX_HEAD + len(piece)
        assert socket.written.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))

    run_scenario(scenario)


def test_long_request_head_in_one_read_is_refused() -> None:
    async def scenario() -> None:
        connection, socket = Server().connect()
        connection.data_received(GET[:-2] + b"x-long: " + b"a" * 1_000_000)
        assert (socket.written[:12], socket.code) == (b"HTTP/1.1 431", "HEADERS_TOO_LARGE")
        assert socket.closed

    run_scenario(scenario)


def test_request_head_of_the_maximum_size_is_accepted() -> None:
    async def scenario() -> None:
        connection, socket = Server().connect()
        head = GET[:-2] + b"x-long: \r\n\r\n"
        filled = head.replace(b"x-long: ", b"x-long: " + b"a" * (MAX_HEAD - len(head)))
        connection.data_received(filled)
        await settle()
        assert (len(filled), socket.written[:12]) == (MAX_HEAD, b"HTTP/1.1 200")

    run_scenario(scenario)


def test_request_body_over_the_wire_limit_is_refused() -> None:
    async def scenario() -> None:
        connection, socket = Server().connect()
        head = POST.replace(b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked")
        connection.data_received(head + b"1\r\n \r\n0\r\nx-trailer: ")
        for _ in range(MAX_BODY_WIRE_BYTES // 60_000 + 1):
            connection.data_received(b"a" * 60_000)
        assert socket.closed

    run_scenario(scenario)


def test_request_head_has_ten_seconds_from_its_first_byte() -> None:
    async def scenario() -> None:
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

    run_scenario(scenario)


def test_request_body_has_thirty_seconds() -> None:
    async def scenario() -> None:
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

    run_scenario(scenario)


def test_idle_connection_has_sixty_seconds_from_its_last_answer() -> None:
    async def scenario() -> None:
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

    run_scenario(scenario)


def test_connection_that_waits_for_its_answer_is_not_idle() -> None:
    async def scenario() -> None:
        server = Server(max_connections=1)
        server.hold_answers = asyncio.Event()
        connection, socket = server.connect()
        connection.data_received(GET)
        await settle()
        server.wait(10 * IDLE_SECONDS)
        assert not socket.closed
        _, refused = server.connect()
        assert (refused.aborted, socket.closed) == (True, False)
        connection.data_received(GET[:9])  # the time of the next head counts from the answer
        server.wait(2 * HEAD_SECONDS)
        server.hold_answers.set()
        await settle()
        assert socket.written.startswith(b"HTTP/1.1 200 ")
        server.wait(HEAD_SECONDS - 1)
        assert not socket.closed
        server.wait(1)
        assert socket.closed

    run_scenario(scenario)


def test_connection_that_does_not_read_its_answer_is_aborted() -> None:
    async def scenario() -> None:
        server = Server()
        connection, socket = server.connect()
        connection.data_received(GET)
        await settle()
        for unsent in (9_000, 8_000, 7_000):
            socket.unsent = unsent
            server.wait(IDLE_SECONDS - 1)
        assert not socket.closed
        server.wait(IDLE_SECONDS)
        assert socket.aborted

    run_scenario(scenario)


def test_connection_limit_closes_the_longest_idle_connection() -> None:
    async def scenario() -> None:
        server = Server(max_connections=3)
        first, second, third = (server.connect() for _ in range(3))
        server.now = 1
        first[0].data_received(GET)
        await settle()
        server.now = 2
        third[0].data_received(GET[:5])
        fourth = server.connect()
        closed = [connected[1].aborted for connected in (first, second, third, fourth)]
        assert closed == [False, True, False, False]

    run_scenario(scenario)


def test_connection_limit_leaves_file_descriptors_for_runs() -> None:
    minimum = min_file_limit(48)
    assert max_connections_within(minimum, 48) > 0
    assert max_connections_within(minimum - 1, 48) == 0
    assert max_connections_within(10**6, 48) == 1_000
    for limit in (1_024, 2_048):
        assert limit - max_connections_within(limit, 48) >= 48 * 16
