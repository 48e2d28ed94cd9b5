"""What the node answers to the bytes of a connection, however they arrive."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from punctual.domain.errors import Unavailable
from punctual.node.http.application import build_application, node_services
from punctual.node.http.protocol import HttpProtocol
from punctual.web.http.request import Reply
from tests.support.web_world import NOON, WebWorld

ID = "01900000-0000-7000-8000-000000000000"
TURNS = 40  # of the loop: more than any of these requests needs
JOB = b'{"name":"a","schedule_type":"IMMEDIATE"}'


def quiet(_event: str, /, **_fields: Any) -> None: ...


class Socket:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Node:
    """A connection to a node with a web world of its own."""

    def __init__(self) -> None:
        world = WebWorld()
        self.turns = 0
        self.undone: Exception | None = None
        self.forged: Reply | None = None
        self.gate: asyncio.Event | None = None  # where set, answers wait for it
        app = build_application(
            node_services(
                world.jobs,
                world.search,
                world.tokens,
                clock=lambda: NOON,
            ),
            self._turn,
            quiet,
            new_id=lambda: ID,
        )
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self.socket = Socket()
        self.protocol = HttpProtocol(config, ServerState(), {})
        self.protocol.connection_made(cast(asyncio.Transport, self.socket))

    async def _turn(self, request: Callable[[], Any]) -> Any:
        self.turns += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.undone is not None:
            raise self.undone
        return self.forged or request()

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if piece and not self.socket.closed:
                self.protocol.data_received(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    async def end(self) -> None:
        self.protocol.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)


def request(
    method: str, target: str, body: bytes | None = None, *lines: str, version: str = "1.1"
) -> bytes:
    sent = [f"{method} {target} HTTP/{version}", "Host: 127.0.0.1"]
    if body is not None:
        sent += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join([*sent, *lines, "", ""]).encode() + (body or b"")


POST = request("POST", "/v1/jobs", JOB)
CHUNKED = request(
    "POST", "/v1/jobs", None, "Content-Type: application/json", "Transfer-Encoding: chunked"
)
EXPECTING = request("POST", "/v1/jobs", JOB, "Expect: 100-continue")
CASES: dict[str, tuple[list[bytes], list[int]]] = {
    "a job": ([POST], [202]),
    "a wrong job": ([request("POST", "/v1/jobs", b'{"name":1}')], [422]),
    "no JSON": ([request("POST", "/v1/jobs", b"{")], [400]),
    "another type": ([request("POST", "/v1/jobs", None, "Content-Length: 2") + b"{}"], [415]),
    "a batch": ([request("POST", "/v1/jobs/batch", b'{"jobs":[' + JOB + b",1]}")], [207]),
    "a list": ([request("GET", "/v1/jobs?limit=2&status=SCHEDULED")], [200]),
    "nothing there": ([request("GET", "/v1/jobs/x%2Fy")], [404]),
    "no such method": ([request("DELETE", "/v1/jobs")], [405]),
    "no content": ([request("OPTIONS", "/v1/jobs")], [204]),
    "another host": ([b"GET /v1/jobs HTTP/1.1\r\nHost: example.com\r\n\r\n"], [421]),
    "a header twice": ([request("GET", "/v1/jobs", None, "Host: 127.0.0.1")], [400]),
    "too many headers": (
        [request("GET", "/v1/jobs", None, *(f"x{n}: y" for n in range(101)))],
        [431],
    ),
    "a long address": ([request("GET", "/v1/jobs?" + "a" * 9_000)], [414]),
    "one after another": ([POST, request("GET", "/v1/jobs"), POST], [202, 200, 202]),
    "chunks in one read": ([CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(JOB), JOB)], [202]),
    "a long body": ([request("POST", "/v1/jobs", b" " * 300_000 + JOB)], [202]),
    "a body in two reads": ([POST[:-5], POST[-5:]], [202]),
    "a body after its head": ([POST[: -len(JOB)], JOB], [202]),
    "a body that is announced too long": (
        [
            request(
                *("POST", "/v1/jobs", None, "Content-Type: application/json"),
                "Content-Length: 99999999",
            )
        ],
        [413],
    ),
    "chunks in many reads": (
        [CHUNKED, b"%x\r\n" % len(JOB), JOB, b"\r\n0\r\n", b"\r\n"],
        [202],
    ),
    "a client that waits": ([EXPECTING[: -len(JOB)], JOB], [100, 202]),
    "HEAD": ([request("HEAD", "/v1/jobs")], [200]),
    "HTTP/1.0": ([request("GET", "/v1/jobs", version="1.0")], [200]),
    "the last of a connection": (
        [request("GET", "/v1/jobs", None, "Connection: close")],
        [200],
    ),
    "another address": ([request("GET", "/")], [404]),
    "a whole URL": ([request("GET", "http://127.0.0.1/v1/jobs")], [200]),
    "a fragment": ([request("GET", "/v1/jobs#x")], [200]),
    "another protocol": (
        [request("GET", "/v1/jobs", None, "Connection: upgrade", "Upgrade: h2c")],
        [200],
    ),
    "no HTTP": ([b"hello\r\n\r\n"], [400]),
    "a pipeline": ([POST + POST + request("GET", "/v1/jobs")], [202, 202, 200]),
    "a pipeline cut within": ([POST + POST[:-5], POST[-5:] + POST], [202, 202, 202]),
    "a head in two reads": ([POST[:20], POST[20:]], [202]),
    "broken chunks": ([CHUNKED + b"zz\r\n"], [400]),
    "broken after good": ([POST + b"hello\r\n\r\n"], [400]),
}


async def answered(node: Node, pieces: list[bytes]) -> tuple[bytes, bool]:
    await node.send(*pieces)
    written, closed = node.socket.written, node.socket.closed
    await node.end()
    return written, closed


@pytest.mark.parametrize("name", CASES)
def test_connection_answers_requests_in_their_order(name: str) -> None:
    pieces, statuses = CASES[name]

    async def play() -> None:
        written, _ = await answered(Node(), pieces)
        codes = re.findall(rb"HTTP/1\.1 (\d{3}) ", written)
        assert [int(status) for status in codes] == statuses, written

    asyncio.run(play())


@pytest.mark.parametrize("error", [Unavailable("no disk"), KeyError("x")])
@pytest.mark.parametrize("target", ["/v1/jobs", "/v1/health", "/v1/health/ready"])
def test_failed_turn_is_answered_with_an_error(error: Exception, target: str) -> None:
    async def play() -> None:
        node = Node()
        node.undone = error
        written, _ = await answered(node, [request("GET", target)])
        assert written.split(b" ")[1] == (b"500" if isinstance(error, KeyError) else b"503")

    asyncio.run(play())


def test_liveness_is_answered_without_a_turn() -> None:
    async def play() -> None:
        node = Node()
        node.undone = Unavailable("no disk")
        written, _ = await answered(node, [request("GET", "/v1/health/live")])
        assert written.startswith(b"HTTP/1.1 200 ")
        assert written.endswith(b'{"status":"ok"}')
        assert node.turns == 0

    asyncio.run(play())


def test_second_request_of_a_pipeline_waits_for_the_first() -> None:
    async def play() -> None:
        node = Node()
        node.gate = asyncio.Event()
        await node.send(POST + request("GET", "/v1/jobs"))
        assert (node.socket.written, node.turns) == (b"", 1)
        node.gate.set()
        await node.send(b"")
        assert node.socket.written.startswith(b"HTTP/1.1 202 ")
        assert node.socket.written.count(b"HTTP/1.1 ") == 2
        await node.end()

    asyncio.run(play())


def test_shutdown_answers_the_request_that_is_under_way() -> None:
    async def play() -> None:
        node = Node()
        node.gate = asyncio.Event()
        await node.send(POST)
        node.protocol.shutdown()
        assert not node.socket.closed
        node.gate.set()
        await node.send(b"")
        assert b"\r\nconnection: close\r\n" in node.socket.written
        assert node.socket.closed
        await node.end()

    asyncio.run(play())


def test_client_that_disconnected_gets_no_answer() -> None:
    async def play() -> None:
        node = Node()
        node.gate = asyncio.Event()
        await node.send(POST)
        await node.end()
        node.gate.set()
        await node.send(b"")
        assert node.socket.written == b""

    asyncio.run(play())


def test_stored_value_cannot_write_a_header_of_its_own() -> None:
    async def play() -> None:
        node = Node()
        node.forged = Reply(200, b"x", (), "text/plain\r\nset-cookie: a=b")
        written, _ = await answered(node, [request("GET", "/v1/jobs")])
        assert written.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in written

    asyncio.run(play())
