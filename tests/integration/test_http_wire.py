"""The short way of a request from the socket answers, byte for byte, what uvicorn's would."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from punctual.domain.errors import Unavailable
from punctual.node.http.application import application
from punctual.node.http.connection import Connection
from punctual.node.http.protocol import HttpProtocol
from punctual.web.http.request import Reply
from tests.web_engine import NOON, MemoryEngine

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
        self.written += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.written += b"".join(parts)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Node:
    """Either protocol over an engine of its own; `taken` counts what went the short way."""

    def __init__(self, kind: type[Connection]) -> None:
        engine = MemoryEngine()
        self.engine = engine
        self.taken = 0
        self.undone: Exception | None = None
        self.forged: Reply | None = None
        self.held: list[Callable[[], None]] | None = None
        app = application(
            engine.as_jobs,
            engine.as_search,
            self._turn,
            quiet,
            engine.tokens,
            clock=lambda: NOON,
            new_id=lambda: ID,
            soon=self._soon,
        )
        config = uvicorn.Config(
            app,
            http=kind,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self.socket = Socket()
        self.protocol = kind(config, ServerState(), {})
        self.protocol.connection_made(cast(asyncio.Transport, self.socket))

    async def _turn(self, request: Callable[[], Any]) -> Any:
        if self.undone is not None:
            raise self.undone
        return request()

    def _soon(self, request: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.taken += 1

        def answer() -> None:
            done(self.forged or self.undone or request())  # the turn of all was undone, or did this

        if self.held is None:
            asyncio.get_running_loop().call_soon(answer)
        else:
            self.held.append(answer)

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
SHORT = {
    "a job": [POST],
    "a wrong job": [request("POST", "/v1/jobs", b'{"name":1}')],
    "no JSON": [request("POST", "/v1/jobs", b"{")],
    "another type": [request("POST", "/v1/jobs", None, "Content-Length: 2") + b"{}"],
    "a batch": [request("POST", "/v1/jobs/batch", b'{"jobs":[' + JOB + b",1]}")],
    "a list": [request("GET", "/v1/jobs?limit=2&status=SCHEDULED")],
    "nothing there": [request("GET", "/v1/jobs/x%2Fy")],
    "no such method": [request("DELETE", "/v1/jobs")],
    "no content": [request("OPTIONS", "/v1/jobs")],
    "another host": [b"GET /v1/jobs HTTP/1.1\r\nHost: example.com\r\n\r\n"],
    "a header twice": [request("GET", "/v1/jobs", None, "Host: 127.0.0.1")],
    "too many headers": [request("GET", "/v1/jobs", None, *(f"x{n}: y" for n in range(101)))],
    "a long address": [request("GET", "/v1/jobs?" + "a" * 9_000)],
    "one after another": [POST, request("GET", "/v1/jobs"), POST],
    "chunks in one read": [CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(JOB), JOB)],
    "a long body": [request("POST", "/v1/jobs", b" " * 300_000 + JOB)],
}
LONG = {
    "a body in two reads": [POST[:-5], POST[-5:]],
    "a body after its head": [POST[: -len(JOB)], JOB],
    "a body that is announced too long": [
        request(
            "POST", "/v1/jobs", None, "Content-Type: application/json", "Content-Length: 99999999"
        )
    ],
    "chunks in many reads": [CHUNKED, b"%x\r\n" % len(JOB), JOB, b"\r\n0\r\n", b"\r\n"],
    "a client that waits": [EXPECTING[: -len(JOB)], JOB],
    "HEAD": [request("HEAD", "/v1/jobs")],
    "HTTP/1.0": [request("GET", "/v1/jobs", version="1.0")],
    "the last of a connection": [request("GET", "/v1/jobs", None, "Connection: close")],
    "another address": [request("GET", "/")],
    "a whole URL": [request("GET", "http://127.0.0.1/v1/jobs")],
    "a fragment": [request("GET", "/v1/jobs#x")],
    "another protocol": [request("GET", "/v1/jobs", None, "Connection: upgrade", "Upgrade: h2c")],
    "no HTTP": [b"hello\r\n\r\n"],
}
MIXED = {
    "a pipeline": [POST + POST + request("GET", "/v1/jobs")],
    "a pipeline cut within": [POST + POST[:-5], POST[-5:] + POST],
    "a head in two reads": [POST[:20], POST[20:]],
    "broken chunks": [CHUNKED + b"zz\r\n"],
    "broken after good": [POST + b"hello\r\n\r\n"],
}


async def answered(node: Node, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    await node.send(*pieces)
    written, closed = node.socket.written, node.socket.closed
    await node.end()
    return written, closed


@pytest.mark.parametrize("name", [*SHORT, *LONG, *MIXED])
def test_both_ways_answer_the_same(name: str) -> None:
    pieces = {**SHORT, **LONG, **MIXED}[name]

    async def play() -> None:
        ours, theirs = Node(HttpProtocol), Node(Connection)
        answer = await answered(ours, pieces)
        assert answer == await answered(theirs, pieces)
        assert answer[0].startswith(b"HTTP/1.1 ")
        assert theirs.taken == 0
        if name not in MIXED:
            assert (ours.taken > 0) == (name in SHORT and not _refused_by_head(answer[0]))

    asyncio.run(play())


def _refused_by_head(answer: bytes) -> bool:
    return answer.split(b" ", 2)[1] in (b"400", b"414", b"415", b"421", b"431") and (
        b"not JSON" not in answer
    )


@pytest.mark.parametrize("error", [Unavailable("no disk"), KeyError("x")])
@pytest.mark.parametrize("target", ["/v1/jobs", "/v1/health", "/v1/health/ready"])
def test_a_turn_that_was_undone_is_told_the_same(error: Exception, target: str) -> None:
    async def play() -> None:
        ours, theirs = Node(HttpProtocol), Node(Connection)
        ours.undone = theirs.undone = error
        answer = await answered(ours, [request("GET", target)])
        assert answer == await answered(theirs, [request("GET", target)])
        assert answer[0].split(b" ")[1] in (b"500", b"503")

    asyncio.run(play())


def test_that_the_process_is_alive_is_told_without_a_turn() -> None:
    async def play() -> None:
        for kind in (HttpProtocol, Connection):
            node = Node(kind)
            node.undone = Unavailable("no disk")
            answer = await answered(node, [request("GET", "/v1/health/live")])
            assert answer[0].startswith(b"HTTP/1.1 200 ")
            assert answer[0].endswith(b'{"status":"ok"}')

    asyncio.run(play())


def test_the_second_of_a_pipeline_waits_for_the_first() -> None:
    async def play() -> None:
        node = Node(HttpProtocol)
        node.held = []
        await node.send(POST + request("GET", "/v1/jobs"))
        assert node.socket.written == b""
        node.held.pop()()
        await node.send(b"")
        assert node.socket.written.startswith(b"HTTP/1.1 202 ")
        assert node.socket.written.count(b"HTTP/1.1 ") == 2
        await node.end()

    asyncio.run(play())


def test_a_connection_that_is_to_end_ends_with_the_answer_that_is_under_way() -> None:
    async def play() -> None:
        node = Node(HttpProtocol)
        node.held = []
        await node.send(POST)
        node.protocol.shutdown()
        assert not node.socket.closed
        node.held.pop()()
        assert b"\r\nconnection: close\r\n" in node.socket.written
        assert node.socket.closed
        await node.end()

    asyncio.run(play())


def test_an_answer_to_a_client_that_hung_up_goes_nowhere() -> None:
    async def play() -> None:
        node = Node(HttpProtocol)
        node.held = []
        await node.send(POST)
        await node.end()
        node.held.pop()()
        assert node.socket.written == b""

    asyncio.run(play())


def test_a_client_that_does_not_read_is_not_answered_the_short_way() -> None:
    async def play() -> None:
        node = Node(HttpProtocol)
        node.protocol.pause_writing()
        await node.send(POST)
        assert (node.taken, node.socket.written) == (0, b"")
        node.protocol.resume_writing()
        await node.send(b"")
        assert node.socket.written.startswith(b"HTTP/1.1 202 ")
        await node.end()

    asyncio.run(play())


def test_no_stored_value_can_write_a_header_of_its_own() -> None:
    async def play() -> None:
        node = Node(HttpProtocol)
        forged = Reply(200, b"x", (), "text/plain\r\nset-cookie: a=b")
        node.forged = forged
        written, _ = await answered(node, [request("GET", "/v1/jobs")])
        assert written.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in written

    asyncio.run(play())
