"""The `http` task: calls a URL with limits on time, size and targets."""

import itertools
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import thread_time

import httpcore
import httpx

from punctual.domain.task_limits import MAX_REDIRECTS, MAX_TASK_HEADER_BYTES
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Status,
    StopRequest,
    stop_text,
    timeout_text,
)
from punctual.tasks.http.addresses import IpNetwork, Resolver, system_resolver
from punctual.tasks.http.network import (
    MAX_ATTEMPT_CPU_SECONDS,
    CheckedBackend,
    DeadlineReached,
    Stopped,
    WaitLimits,
)
from punctual.tasks.http.request import BadRedirect, Request, build_request, redirect_request
from punctual.tasks.http.status import (
    REDIRECT_STATUSES,
    ExpectedStatuses,
    is_expected,
    is_retryable_status,
    parse_expected,
)
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.script.open_files import NotBegun

HTTP_TASK_IDLE_SECONDS = 5.0
MAX_IDLE_CONNECTIONS = 100


@dataclass
class _Answer:
    """The response so far. It is kept even if more does not arrive."""

    host: str = ""
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def read_head(self, response: httpcore.Response) -> None:
        self.status = response.status
        self.headers = [
            (_decode_latin1(name), _decode_latin1(value)) for name, value in response.headers
        ]

    def is_unexpected_redirect(self, expected: ExpectedStatuses) -> bool:
        """Return True if the response is a redirect that the job does not expect."""
        assert self.status is not None
        return (
            self.status in REDIRECT_STATUSES
            and not is_expected(self.status, expected)
            and self.header("location") != ""
        )

    def header(self, name: str) -> str:
        return next(
            (value for header_name, value in self.headers if header_name.lower() == name), ""
        )


class HttpTask:
    """Sends requests over one connection pool, without cookies and proxies."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        open_networks: Sequence[IpNetwork] = (),
        closed_ports: Sequence[int] = (),
        resolver: Resolver = system_resolver,
        ssl_context: ssl.SSLContext | None = None,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        self._monotonic = monotonic
        self._cpu_time = cpu_time
        self._backend = CheckedBackend(
            resolver, open_networks=open_networks, closed_ports=closed_ports
        )
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
            # No limit here. Claims already bound the attempts, and httpcore's wait for a free
            # connection cannot be interrupted.
            max_connections=None,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=HTTP_TASK_IDLE_SECONDS,
            network_backend=self._backend,
        )

    def close(self) -> None:
        self._pool.close()

    def run(self, attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        deadline = self._monotonic() + attempt.timeout.total_seconds()
        request = build_request(attempt)
        expected = parse_expected(attempt.task.get("expect_status"))
        answer = _Answer()
        cpu_deadline = self._cpu_time() + MAX_ATTEMPT_CPU_SECONDS
        wait_limits = WaitLimits(deadline, stop, self._monotonic, cpu_deadline, self._cpu_time)
        with self._backend.limited_by(wait_limits):
            try:
                self._send_and_follow(attempt, request, expected, answer, wait_limits)
            except DeadlineReached:
                return _outcome(answer, "TIMED_OUT", timeout_text(attempt.timeout))
            except Stopped as stop_error:
                return _outcome(answer, "CANCELLED", stop_text(stop_error.reason))
            except BadTask as error:
                return _outcome(answer, "FAILED", str(error), retryable=False)
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                return _outcome(answer, "FAILED", f"Calling {answer.host} failed: {error}")
        return _outcome_of_status(answer, expected)

    def _send_and_follow(
        self,
        attempt: Attempt,
        request: Request,
        expected: ExpectedStatuses,
        answer: _Answer,
        wait_limits: WaitLimits,
    ) -> None:
        limit = min(attempt.task.get("follow_redirects") or 0, MAX_REDIRECTS)
        for hop in itertools.count():
            answer.host = request.url.host
            with closing(
                self._send_when_possible(request, wait_limits, has_begun=hop > 0)
            ) as response:
                answer.read_head(response)
                if limit == 0 or not answer.is_unexpected_redirect(expected):
                    _read_body(response, answer)
                    return
            if hop == limit:
                raise BadRedirect("The server redirects too often")
            location = answer.header("location")
            request = redirect_request(request, response.status, location, attempt.secrets)

    def _send_when_possible(
        self, request: Request, wait_limits: WaitLimits, *, has_begun: bool
    ) -> httpcore.Response:
        """Send the request. After a redirect, wait for a free socket until the attempt ends."""
        while True:
            try:
                return self._send(request)
            except NotBegun:
                if not has_begun:
                    raise
            wait_limits.stop.wait(wait_limits.next_wait_seconds())

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


def _read_body(response: httpcore.Response, answer: _Answer) -> None:
    for chunk in response.iter_stream():
        free_bytes = MAX_ANSWER_BYTES - len(answer.body)
        answer.body += chunk[:free_bytes]
        if len(chunk) > free_bytes:
            answer.truncated = True
            return


def _outcome_of_status(answer: _Answer, expected: ExpectedStatuses) -> Outcome:
    assert answer.status is not None
    if is_expected(answer.status, expected):
        return _outcome(answer, "SUCCESS", "")
    text = f"The server answered {answer.status}"
    return _outcome(answer, "FAILED", text, retryable=is_retryable_status(answer.status))


def _outcome(answer: _Answer, status: Status, error: str, *, retryable: bool = True) -> Outcome:
    return Outcome(
        status,
        error,
        retryable,
        output=bytes(answer.body),
        output_type=answer.header("content-type") or "application/octet-stream",
        output_truncated=answer.truncated,
        http_status=answer.status,
        http_headers=tuple(_stored_headers(answer.headers)),
    )


def _stored_headers(headers: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    free_bytes = MAX_TASK_HEADER_BYTES
    for name, value in headers:
        free_bytes -= len(name) + len(value)
        if free_bytes < 0:
            return
        yield name, value


def _decode_latin1(text: bytes) -> str:
    return text.decode("latin-1")
