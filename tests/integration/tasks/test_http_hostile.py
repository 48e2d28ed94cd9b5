"""Hostile HTTP servers with endless answers. The task limits its processor time."""

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from punctual.tasks.contract import Attempt, StopSignal
from punctual.tasks.http.network import MAX_ATTEMPT_CPU_SECONDS
from tests.integration.tasks.test_http import NoLog, running, serving

HOUR = timedelta(hours=1)
MAX_SENT_BYTES = 50_000_000  # so that the server of a test ends in any case
STEP_SECONDS = 0.01


class Processor:
    """A processor clock that advances by one step at each reading."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.readings * STEP_SECONDS


def endless(first: bytes, piece: bytes) -> Callable[[socket.socket, bytes], None]:
    def handle(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(first)
        pieces = piece * (60_000 // len(piece))
        for _ in range(MAX_SENT_BYTES // len(pieces)):
            connection.sendall(pieces)

    return handle


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOSTILE = {
    "interim answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    "chunks after the stored part": endless(
        CHUNKED + b"%x\r\n" % 1_048_576 + b"a" * 1_048_576 + b"\r\n", b"1\r\na\r\n"
    ),
    "trailers": endless(CHUNKED + b"0\r\n", b"x: y\r\n"),
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
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
def test_endless_answer_is_aborted(name: str) -> None:
    processor = Processor()
    with serving(HOSTILE[name]) as server, running(cpu_time=processor) as attempt_runner:
        outcome = attempt_runner.run(attempt(server.url()), StopSignal(), NoLog())
    assert outcome.status in ("FAILED", "SUCCESS")
    assert outcome.status == "FAILED" or outcome.output_truncated
    assert processor.readings <= MAX_ATTEMPT_CPU_SECONDS / STEP_SECONDS + 10


@pytest.mark.parametrize("name", ["interim answers", "early hints"])
def test_endless_interim_answers_fail_with_a_reason(name: str) -> None:
    with serving(HOSTILE[name]) as server, running(cpu_time=Processor()) as attempt_runner:
        outcome = attempt_runner.run(attempt(server.url()), StopSignal(), NoLog())
    assert (outcome.status, outcome.retryable) == ("FAILED", True)
    assert "takes over 2 s of processor time" in outcome.error


def test_chunks_of_one_byte_end_at_the_processor_time_limit() -> None:
    sent = threading.Event()

    def handle(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(CHUNKED)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not sent.wait(0.0005):
            connection.sendall(b"1\r\na\r\n")

    with serving(handle) as server, running(cpu_time=Processor()) as attempt_runner:
        try:
            outcome = attempt_runner.run(attempt(server.url()), StopSignal(), NoLog())
        finally:
            sent.set()
    assert outcome.status == "FAILED"
    assert "processor time" in outcome.error
    assert 0 < len(outcome.output) <= 1_048_576
    assert outcome.http_status == 200
