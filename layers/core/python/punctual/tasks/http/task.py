"""The `http` task: calls a URL with limits on time, size and targets."""

import itertools
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import thread_time

import httpcore
import httpx

from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Status,
    Stop,
    stop_text,
    timeout_text,
)
from punctual.tasks.http.addresses import Network, Resolver, system_resolver
from punctual.tasks.http.network import CPU_SECONDS, CheckedBackend, OutOfTime, Stopped, Watch
from punctual.tasks.http.request import BadRedirect, Request, build_request, redirected
from punctual.tasks.http.status import REDIRECTS, Expected, is_expected, may_pass, parse_expected
from punctual.tasks.limits import MAX_ANSWER_BYTES, MAX_HEADER_BYTES, MAX_REDIRECTS
from punctual.tasks.script.open_files import NotBegun

IDLE_SECONDS = 5.0
MAX_IDLE_CONNECTIONS = 100


@dataclass
class _Answer:
    """The response so far. It is kept even if the rest does not arrive."""

    host: str = ""
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def take(self, response: httpcore.Response) -> None:
        self.status = response.status
        self.headers = [(_latin(name), _latin(value)) for name, value in response.headers]

    def leads_on(self, expected: Expected) -> bool:
        """Return True if the response is a redirect that the job does not expect."""
        assert self.status is not None
        return (
            self.status in REDIRECTS
            and not is_expected(self.status, expected)
            and self.header("location") != ""
        )

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class HttpTask:
    """Sends requests over one connection pool, without cookies and proxies."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        opened: Sequence[Network] = (),
        closed_ports: Sequence[int] = (),
        resolver: Resolver = system_resolver,
        ssl_context: ssl.SSLContext | None = None,
        cpu: Callable[[], float] = thread_time,
    ) -> None:
        self._monotonic = monotonic
        self._cpu = cpu
        self._backend = CheckedBackend(resolver, opened=opened, closed_ports=closed_ports)
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
            # No limit here. Claims already bound the attempts, and httpcore's wait for a free
            # connection cannot be interrupted.
            max_connections=None,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=self._backend,
        )

    def close(self) -> None:
        self._pool.close()

    def run(self, attempt: Attempt, stop: Stop, _recorder: Recorder, /) -> Outcome:
        deadline = self._monotonic() + attempt.timeout.total_seconds()
        request = build_request(attempt)
        expected = parse_expected(attempt.task.get("expect_status"))
        answer = _Answer()
        cpu_deadline = self._cpu() + CPU_SECONDS
        watch = Watch(deadline, stop, self._monotonic, cpu_deadline, self._cpu)
        with self._backend.watched(watch):
            try:
                self._follow(attempt, request, expected, answer, watch)
            except OutOfTime:
                return _outcome(answer, "TIMED_OUT", timeout_text(attempt.timeout))
            except Stopped as stopped:
                return _outcome(answer, "CANCELLED", stop_text(stopped.reason))
            except BadTask as error:
                return _outcome(answer, "FAILED", str(error), retryable=False)
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                return _outcome(answer, "FAILED", f"Calling {answer.host} failed: {error}")
        return _judged(answer, expected)

    def _follow(
        self,
        attempt: Attempt,
        request: Request,
        expected: Expected,
        answer: _Answer,
        watch: Watch,
    ) -> None:
        limit = min(attempt.task.get("follow_redirects") or 0, MAX_REDIRECTS)
        for hop in itertools.count():
            answer.host = request.url.host
            with closing(self._sent(request, watch, has_begun=hop > 0)) as response:
                answer.take(response)
                if limit == 0 or not answer.leads_on(expected):
                    _read(response, answer)
                    return
            if hop == limit:
                raise BadRedirect("The server redirects too often")
            location = answer.header("location")
            request = redirected(request, response.status, location, attempt.secrets)

    def _sent(self, request: Request, watch: Watch, *, has_begun: bool) -> httpcore.Response:
        """Send the request. After a redirect, wait for a free socket until the attempt ends."""
        while True:
            try:
                return self._send(request)
            except NotBegun:
                if not has_begun:
                    raise
            watch.stop.wait(watch.left())

    def _send(self, request: Request) -> httpcore.Response:
        url = request.url
        return self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme,
                    host=url.raw_host,
                    port=url.port,
                    target=url.raw_path,
                ),
                headers=request.wire_headers(),
                content=request.body,
            )
        )


def _read(response: httpcore.Response, answer: _Answer) -> None:
    for piece in response.iter_stream():
        room = MAX_ANSWER_BYTES - len(answer.body)
        answer.body += piece[:room]
        if len(piece) > room:
            answer.truncated = True
            return


def _judged(answer: _Answer, expected: Expected) -> Outcome:
    assert answer.status is not None
    if is_expected(answer.status, expected):
        return _outcome(answer, "SUCCESS", "")
    text = f"The server answered {answer.status}"
    return _outcome(answer, "FAILED", text, retryable=may_pass(answer.status))


def _outcome(answer: _Answer, status: Status, error: str, *, retryable: bool = True) -> Outcome:
    return Outcome(
        status,
        error,
        retryable,
        output=bytes(answer.body),
        output_type=answer.header("content-type") or "application/octet-stream",
        output_truncated=answer.truncated,
        http_status=answer.status,
        http_headers=tuple(_kept(answer.headers)),
    )


def _kept(headers: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    room = MAX_HEADER_BYTES
    for name, value in headers:
        room -= len(name) + len(value)
        if room < 0:
            return
        yield name, value


def _latin(text: bytes) -> str:
    return text.decode("latin-1")
