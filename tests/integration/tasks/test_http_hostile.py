"""Servers that answer for ever, to keep a core of ours busy."""

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from punctual.tasks.contract import Attempt, StopSignal
from punctual.tasks.http.network import MAX_ATTEMPT_CPU_SECONDS
from tests.integration.tasks.test_http import NoLog, running, serving

HOUR = timedelta(hours=1)
MOST_SENT = 50_000_000  # bytes, so that a server of a test ends in any case
STEP = 0.01


class Processor:
    """Processor time that goes on by one step with each look at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks * STEP


def endless(first: bytes, piece: bytes) -> Callable[[socket.socket, bytes], None]:
    def handle(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(first)
        many = piece * (60_000 // len(piece))
        for _ in range(MOST_SENT // len(many)):
            connection.sendall(many)

    return handle


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOSTILE = {
    "answers before the answer": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "hints before the answer": endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    "chunks of nothing that is kept": endless(
        CHUNKED + b"%x\r\n" % 1_048_576 + b"a" * 1_048_576 + b"\r\n", b"1\r\na\r\n"
    ),
    "trailers": endless(CHUNKED + b"0\r\n", b"x: y\r\n"),
    "a head without an end": endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
}


def attempt(url: str) -> Attempt:
    return Attempt(
        tenant="t",
        job_id="j",
        run_id="r",
        name="n",
        attempt_number=1,
        scheduled_at=datetime(2026, 11, 18, 12, tzinfo=UTC),
        task={"type": "http", "url": url},
        payload=None,
        timeout=HOUR,
        token=1,
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_never_ends_is_given_up(name: str) -> None:
    processor = Processor()
    with serving(HOSTILE[name]) as server, running(cpu=processor) as registry:
        outcome = registry.run(attempt(server.url()), StopSignal(), NoLog())
    assert outcome.status in ("FAILED", "SUCCESS")
    assert outcome.status == "FAILED" or outcome.output_truncated
    assert processor.looks <= MAX_ATTEMPT_CPU_SECONDS / STEP + 10


@pytest.mark.parametrize("name", ["answers before the answer", "hints before the answer"])
def test_endless_answers_before_the_answer_say_why_they_failed(name: str) -> None:
    with serving(HOSTILE[name]) as server, running(cpu=Processor()) as registry:
        outcome = registry.run(attempt(server.url()), StopSignal(), NoLog())
    assert (outcome.status, outcome.retryable) == ("FAILED", True)
    assert "takes over 2 s of processor time" in outcome.error


def test_chunks_of_one_byte_end_with_the_processor_time_of_an_attempt() -> None:
    sent = threading.Event()

    def handle(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(CHUNKED)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not sent.wait(0.0005):
            connection.sendall(b"1\r\na\r\n")

    with serving(handle) as server, running(cpu=Processor()) as registry:
        try:
            outcome = registry.run(attempt(server.url()), StopSignal(), NoLog())
        finally:
            sent.set()
    assert outcome.status == "FAILED"
    assert "processor time" in outcome.error
    assert 0 < len(outcome.output) <= 1_048_576
    assert outcome.http_status == 200
