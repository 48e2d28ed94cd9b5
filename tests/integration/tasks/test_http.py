"""The `http` task against real servers on loopback."""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopReason, StopSignal
from punctual.tasks.http.addresses import LOOPBACK_NETWORKS
from punctual.tasks.http.task import HttpTask

LONG = 300.0
PATIENCE = 10.0
Handler = Callable[[socket.socket, bytes], None]


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("no log is expected")


class Server:
    """Accepts connections, reads requests, and lets the test's handler answer."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.requests: queue.Queue[bytes] = queue.Queue()
        self.connections = 0
        self._spawn(self._accept)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def request(self) -> bytes:
        return self.requests.get(timeout=PATIENCE)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            self.connections += 1
            self._open.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            with closing(connection):
                while request := _request(connection):
                    self.requests.put(request)
                    self._handler(connection, request)
        except OSError:
            return


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    body_size = int(_header(head, b"content-length") or 0)
    while len(body) < body_size:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _header(request: bytes, name: bytes) -> bytes | None:
    for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        key, _, value = line.partition(b": ")
        if key.lower() == name:
            return value
    return None


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"HTTP/1.1 {status} Said", *lines])
    return f"{head}\r\n\r\n".encode() + body


def answers_with(*answers: bytes) -> Handler:
    remaining = iter(answers)
    last = answers[-1]
    return lambda connection, _: connection.sendall(next(remaining, last))


def _no_answer(connection: socket.socket, _: bytes) -> None:
    connection.recv(1)


@contextmanager
def serving(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    with closing(Server(handler, context)) as server:
        yield server


@contextmanager
def running(**options: Any) -> Iterator[AttemptRunner]:
    with closing(
        HttpTask(monotonic=time.monotonic, **{"open_networks": LOOPBACK_NETWORKS} | options)
    ) as task:
        yield AttemptRunner({"http": task}, lambda _tenant, name: f"hush-{name}")


def an_attempt(url: str, seconds: float = LONG, payload: Any = None, **task: Any) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id="run-1",
        name="A job",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "http", "url": url} | task,
        payload=payload,
        timeout=timedelta(seconds=seconds),
        token=7,
    )


def call(url: str, *, options: dict[str, Any] | None = None, **task: Any) -> Outcome:
    with running(**options or {}) as attempt_runner:
        return attempt_runner.run(an_attempt(url, **task), StopSignal(), NoLog())


def test_http_task_posts_the_payload_and_stores_the_answer() -> None:
    with serving(answers_with(answer(201, b"made", Content_Type="text/x", X_A="1"))) as server:
        outcome = call(server.url("/in?q=1"), payload={"n": 1})
        request = server.request()

    assert outcome == Outcome(
        "SUCCESS",
        output=b"made",
        output_type="text/x",
        http_status=201,
        http_headers=(("Content-Type", "text/x"), ("X-A", "1"), ("Content-Length", "4")),
    )
    assert request.startswith(b"POST /in?q=1 HTTP/1.1\r\n")
    assert request.endswith(b'\r\n\r\n{"n":1}')
    assert _header(request, b"host") == f"127.0.0.1:{server.port}".encode()
    assert _header(request, b"content-length") == b"7"
    assert _header(request, b"content-type") == b"application/json"
    assert _header(request, b"idempotency-key") == b"run-1"
    assert _header(request, b"user-agent") == b"Punctual"


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (404, False), (408, True), (425, True), (429, True), (500, True), (302, True)],
)
def test_unexpected_status_fails_and_some_are_retryable(status: int, retryable: bool) -> None:
    with serving(answers_with(answer(status, b"why", Location="/x"))) as server:
        outcome = call(server.url())
    assert (outcome.status, outcome.retryable) == ("FAILED", retryable)
    assert outcome.error == f"The server answered {status}"
    assert (outcome.http_status, outcome.output) == (status, b"why")


@pytest.mark.parametrize("expected", [404, [200, 404], "400-404", ["201", "404"]])
def test_expected_status_succeeds(expected: Any) -> None:
    with serving(answers_with(answer(404))) as server:
        assert call(server.url(), expect_status=expected).status == "SUCCESS"


def test_loopback_is_refused_without_retry_unless_allowed() -> None:
    with serving(answers_with(answer())) as server:
        for url in (server.url(), server.url(host="0x7f.1"), server.url(host="[::ffff:7f00:1]")):
            outcome = call(url, options={"open_networks": ()})
            assert (outcome.status, outcome.retryable) == ("FAILED", False)
            assert "may not be called" in outcome.error
        assert server.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:7f00:1]", "here"])
def test_closed_port_is_refused_on_open_networks(host: str) -> None:
    with serving(answers_with(answer())) as server:
        options = {"closed_ports": [server.port], "resolver": lambda *_: ["127.0.0.1"]}
        outcome = call(server.url(host=host), options=options)
        assert (outcome.status, outcome.retryable) == ("FAILED", False)
        assert f"tasks may not use port {server.port} here" in (outcome.error or "")
        assert server.connections == 0


@pytest.mark.parametrize("private_address", ["10.0.0.1", "169.254.169.254", "fd00:ec2::254"])
def test_host_is_refused_if_any_of_its_addresses_is(private_address: str) -> None:
    with serving(answers_with(answer())) as server:
        options = {"resolver": lambda *_: ["127.0.0.1", private_address]}
        outcome = call(server.url(host="mixed.test"), options=options)
        assert server.connections == 0
    assert outcome.retryable is False
    assert outcome.error.startswith(f"mixed.test may not be called: {private_address} is")


def test_host_is_called_at_the_address_that_was_checked() -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    with serving(answers_with(answer(body=b"pinned"))) as server:
        options = {"resolver": lambda *_: next(answers)}
        outcome = call(server.url(host="rebinding.test"), options=options)
        host = _header(server.request(), b"host")
    assert outcome.output == b"pinned"
    assert host == f"rebinding.test:{server.port}".encode()
    assert next(answers) == ["10.0.0.1"]


def test_next_address_is_tried_if_one_does_not_answer() -> None:
    with serving(answers_with(answer())) as server:
        options = {"resolver": lambda *_: ["127.0.0.99", "127.0.0.1"]}
        assert call(server.url(host="two.test"), options=options).status == "SUCCESS"


@pytest.mark.parametrize("host", ["169.254.169.254", "0xa9fea9fe", "[::ffff:a00:1]", "inner.test"])
def test_redirect_is_checked_like_the_first_call(host: str) -> None:
    def resolver(name: str, port: int) -> list[str]:
        return ["127.0.0.1"] if name == "outer.test" else ["192.168.0.1"]

    with serving(answers_with(answer(307, Location=f"http://{host}/latest"))) as server:
        outcome = call(
            server.url(host="outer.test"), options={"resolver": resolver}, follow_redirects=5
        )
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert "may not be called" in outcome.error


def test_redirects_are_followed_up_to_the_limit() -> None:
    hops = [answer(302, b"moved", Location=f"/{n}") for n in range(2)]
    with serving(answers_with(*hops, answer(body=b"there"))) as server:
        assert call(server.url(), follow_redirects=2).output == b"there"
        lines = [server.request().split(b" HTTP")[0] for _ in range(3)]
    assert lines == [b"POST /", b"GET /0", b"GET /1"]

    with serving(answers_with(*hops, answer(body=b"there"))) as server:
        outcome = call(server.url(), follow_redirects=1)
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert outcome.error == "The server redirects too often"


def test_expected_redirect_is_the_answer() -> None:
    with serving(answers_with(answer(302, Location="/x"))) as server:
        outcome = call(server.url(), follow_redirects=3, expect_status=302)
    assert (outcome.status, outcome.http_status) == ("SUCCESS", 302)


def test_secret_headers_are_not_sent_to_another_origin() -> None:
    secret_headers = {"Authorization": "Bearer {{secret:a}}", "X-Key": "{{secret:b}}"}
    with serving(answers_with(answer())) as other:
        with serving(answers_with(answer(307, Location=other.url("/y")))) as first:
            outcome = call(first.url(), headers=secret_headers, follow_redirects=1, body="plain")
            first_request = first.request()
        second_request = other.request()

    assert outcome.status == "SUCCESS"
    assert _header(first_request, b"authorization") == b"Bearer hush-a"
    assert b"hush" not in second_request
    assert second_request.endswith(b"plain")
    assert _header(second_request, b"authorization") is None


def test_body_with_a_secret_is_not_sent_to_another_origin() -> None:
    with serving(answers_with(answer())) as other:
        with serving(answers_with(answer(307, Location=other.url()))) as first:
            outcome = call(first.url(), body={"key": "{{secret:a}}"}, follow_redirects=1)
        assert other.connections == 0
    assert (outcome.status, outcome.retryable) == ("FAILED", False)


def test_outcome_contains_no_secret() -> None:
    def echo(connection: socket.socket, request: bytes) -> None:
        connection.sendall(answer(500, request, X_Echo="hush-a"))

    with serving(echo) as server:
        outcome = call(server.url("/{{secret:a}}"), headers={"X-Key": "{{secret:a}}"})
        assert b"hush-a" in server.request()
    assert b"X-Key: [secret]" in outcome.output
    assert ("X-Echo", "[secret]") in outcome.http_headers
    assert "hush" not in repr(outcome)


def test_endless_answer_is_truncated_and_its_connection_closed() -> None:
    closed = threading.Event()

    def endless(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            closed.set()
            raise

    with serving(endless) as server:
        outcome = call(server.url())
        assert closed.wait(PATIENCE)
    assert outcome.status == "SUCCESS"
    assert outcome.output_truncated
    assert outcome.output == b"x" * 2**20


def test_answer_of_the_maximum_size_is_not_truncated() -> None:
    with serving(answers_with(answer(body=b"x" * 2**20))) as server:
        outcome = call(server.url())
    assert len(outcome.output) == 2**20
    assert not outcome.output_truncated


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_slow_answer_ends_at_the_timeout(start: bytes) -> None:
    released = threading.Event()

    def drip(connection: socket.socket, _: bytes) -> None:
        connection.sendall(start)
        while not released.wait(0.02):
            connection.sendall(b"x")

    with serving(drip) as server:
        outcome = call(server.url(), seconds=0.5)
        released.set()
    assert (outcome.status, outcome.error) == ("TIMED_OUT", "Timed out after 0.5 s")
    assert outcome.output.startswith(b"x") == start.endswith(b"\r\n\r\n")


def test_call_to_a_server_that_does_not_read_ends_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        outcome = call(
            f"http://127.0.0.1:{silent_server.getsockname()[1]}/",
            seconds=0.5,
            body="x" * 20_000_000,
        )
    assert outcome.status == "TIMED_OUT"


def test_hanging_resolver_ends_at_the_timeout() -> None:
    released = threading.Event()

    def hang(name: str, port: int) -> list[str]:
        released.wait(PATIENCE)
        return []

    outcome = call("http://slow.test/", options={"resolver": hang}, seconds=0.3)
    released.set()
    assert outcome.status == "TIMED_OUT"


@pytest.mark.parametrize("reason", ["CANCEL", "SHUTDOWN", "LOST"])
def test_stop_request_ends_the_wait_for_an_answer(reason: StopReason) -> None:
    stop = StopSignal()
    outcomes: queue.Queue[Outcome] = queue.Queue()
    with serving(_no_answer) as server, running() as attempt_runner:
        attempt = an_attempt(server.url())
        thread = threading.Thread(
            target=lambda: outcomes.put(attempt_runner.run(attempt, stop, NoLog()))
        )
        thread.start()
        server.request()
        stop.request_stop(reason)
        outcome = outcomes.get(timeout=PATIENCE)
        thread.join()
    assert outcome == Outcome.stopped(reason)


def test_connection_is_reused_without_cookies() -> None:
    with (
        serving(answers_with(answer(body=b"ok", Set_Cookie="id=1"))) as server,
        running() as attempt_runner,
    ):
        for _ in range(3):
            outcome = attempt_runner.run(an_attempt(server.url()), StopSignal(), NoLog())
            assert outcome.status == "SUCCESS"
            assert _header(server.request(), b"cookie") is None
        assert server.connections == 1


def test_stop_of_one_run_does_not_stop_runs_of_other_threads() -> None:
    stops = [StopSignal() for _ in range(8)]
    outcomes: queue.Queue[tuple[int, Outcome]] = queue.Queue()

    def handler(connection: socket.socket, request: bytes) -> None:
        if request.startswith(b"POST /odd"):
            _no_answer(connection, request)
        connection.sendall(answer(body=b"ok"))

    def work(attempt_runner: AttemptRunner, number: int, url: str) -> None:
        outcomes.put((number, attempt_runner.run(an_attempt(url), stops[number], NoLog())))

    with serving(handler) as server, running() as attempt_runner, ExitStack() as stack:
        for number in range(8):
            url = server.url("/odd" if number % 2 else "/even")
            thread = threading.Thread(target=work, args=(attempt_runner, number, url))
            thread.start()
            stack.callback(thread.join)
        done = dict(outcomes.get(timeout=PATIENCE) for _ in range(4))
        for number in range(1, 8, 2):
            stops[number].request_stop("CANCEL")
        stopped = dict(outcomes.get(timeout=PATIENCE) for _ in range(4))
    assert {number: outcome.status for number, outcome in (done | stopped).items()} == {
        number: "CANCELLED" if number % 2 else "SUCCESS" for number in range(8)
    }


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answers_with(answer(502))) as proxy, serving(answers_with(answer())) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        assert call(server.url()).status == "SUCCESS"
        assert proxy.connections == 0


def test_refused_connection_is_a_retryable_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        outcome = call(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert outcome == Outcome.failed("Calling 127.0.0.1 failed: Connection refused")


def test_host_without_an_address_is_a_retryable_failure() -> None:
    outcome = call("http://none.test/", options={"resolver": lambda *_: []})
    assert outcome == Outcome.failed("Calling none.test failed: none.test has no address")


@pytest.mark.parametrize(
    "partial_answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"no\r\n\r\n"]
)
def test_incomplete_answer_is_a_retryable_failure(partial_answer: bytes) -> None:
    def hang_up(connection: socket.socket, _: bytes) -> None:
        connection.sendall(partial_answer)
        connection.shutdown(socket.SHUT_RDWR)

    with serving(hang_up) as server:
        outcome = call(server.url())
    assert (outcome.status, outcome.retryable) == ("FAILED", True)
    assert outcome.error.startswith("Calling 127.0.0.1 failed: ")


def test_request_that_cannot_be_sent_fails_without_retry() -> None:
    outcome = call("http://127.0.0.1/", headers={"X-A": "{{payload}}"}, payload="a\r\nX-B: c")
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert "line break" in outcome.error
