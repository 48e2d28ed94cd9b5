"""The client's use of httpx: address, headers, timeouts and size limits."""

import io
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from punctual.client import (
    Misuse,
    NotFound,
    Punctual,
    Retries,
    SavedOutput,
    Unavailable,
    Unexpected,
)
from punctual.client.call_steps import Send
from punctual.client.calls.transport import (
    ApiTarget,
    ResponseBody,
    body_of_response,
    client_options,
    failure_of,
    request_arguments,
    resolve_target,
)
from punctual.client.wire import Repeat, Request, RequestFile, ResponseFile
from tests.rehearsal.certificate import a_certificate
from tests.support.client.kinds import JOB, NO_DELAY, Server, a_job, both_clients

LOCAL_URL = "http://127.0.0.1:8080/v1"
URL_AND_TOKEN = {"PUNCTUAL_URL": "https://a/v1", "PUNCTUAL_TOKEN": "t"}


@pytest.mark.parametrize(
    ("url", "token", "env", "expected"),
    [
        (None, None, {}, ApiTarget(LOCAL_URL, None)),
        (None, None, {"PUNCTUAL_URL": "", "PUNCTUAL_TOKEN": ""}, ApiTarget(LOCAL_URL, None)),
        (None, None, URL_AND_TOKEN, ApiTarget("https://a/v1", "t")),
        ("https://b/v1/", "u", URL_AND_TOKEN, ApiTarget("https://b/v1", "u")),
        (None, "", URL_AND_TOKEN, ApiTarget("https://a/v1", None)),
    ],
)
def test_arguments_win_over_the_environment(
    url: str | None, token: str | None, env: Mapping[str, str], expected: ApiTarget
) -> None:
    assert resolve_target(url, token, env) == expected


@pytest.mark.parametrize("url", ["punctual.test", "ftp://a", "https://", "http:///v1"])
def test_wrong_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(Misuse, match="is not the address"):
        Punctual(url)


@pytest.mark.parametrize("token", ["a\nb", "a b", "é", "t\n"])
def test_malformed_token_is_refused_at_once(token: str) -> None:
    with pytest.raises(Misuse, match="Copy it without a line break"):
        Punctual(LOCAL_URL, token)


def test_proxy_is_not_used_for_this_machine() -> None:
    assert not client_options(LOCAL_URL, None)["trust_env"]
    assert client_options("https://punctual.test/v1", None)["trust_env"]


def test_certificate_authority_of_the_environment_counts_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(a_certificate(tmp_path).certificate))
    options = client_options("https://127.0.0.1:1/v1", None)
    assert not options["trust_env"]
    (authority,) = options["verify"].get_ca_certs()
    assert authority["subject"] == ((("commonName", "rehearsal"),),)


def test_every_request_has_timeouts() -> None:
    timeout = request_arguments(Send(Request("GET", "/jobs"), 7.0), ApiTarget(LOCAL_URL, None))[
        "timeout"
    ]
    assert (timeout.connect, timeout.read, timeout.write, timeout.pool) == (5.0, 7.0, 7.0, 7.0)
    assert (
        request_arguments(Send(Request("GET", "/jobs"), 2.0), ApiTarget(LOCAL_URL, None))[
            "timeout"
        ].connect
        == 2.0
    )


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.ConnectTimeout(""), False),
        (httpx.PoolTimeout(""), False),
        (httpx.WriteError(""), True),
        (httpx.WriteTimeout(""), True),
        (httpx.ReadError(""), True),
        (httpx.ReadTimeout(""), True),
        (httpx.RemoteProtocolError("closed"), True),
        (httpx.DecodingError("gzip"), True),
        (httpx.CloseError(""), True),
    ],
)
def test_transport_error_tells_whether_the_request_was_sent(
    error: httpx.HTTPError, sent: bool
) -> None:
    failure = failure_of(error)
    assert (failure.sent, failure.final) == (sent, False)
    assert failure.text


@pytest.mark.parametrize(
    "error", [httpx.UnsupportedProtocol("x"), httpx.InvalidURL("x"), httpx.LocalProtocolError("x")]
)
def test_malformed_request_is_not_retried(error: Exception) -> None:
    assert failure_of(error).final


def test_wrong_certificate_is_not_retried() -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("expired")
    assert failure_of(error).final


def test_answer_after_the_deadline_is_a_timeout() -> None:
    body = ResponseBody(steady_deadline=10.0, max_bytes=9)
    body.add(b"a", 9.0)
    with pytest.raises(httpx.ReadTimeout):
        body.add(b"b", 11.0)


@both_clients
def test_answer_over_the_size_limit_is_refused(open_client: Any) -> None:
    server = Server(a_job(payload="x" * 1_000))
    with (
        open_client(transport=server.transport, most_bytes=1_000) as access,
        pytest.raises(Unexpected, match="1,000 bytes"),
    ):
        access.do(access.client.jobs.get(JOB["job_id"]))
    assert len(server.asked) == 1


@both_clients
def test_failed_connection_is_retried(open_client: Any) -> None:
    server = Server(httpx.ConnectError("refused"), httpx.ReadTimeout(""), a_job())
    with open_client(transport=server.transport, retries=Retries(first_delay=0.0)) as access:
        assert access.do(access.client.jobs.get(JOB["job_id"])).name == JOB["name"]
    assert len(server.asked) == 3


@both_clients
def test_client_with_one_attempt_does_not_retry(open_client: Any) -> None:
    server = Server(httpx.ConnectError("refused"))
    with (
        open_client(transport=server.transport, retries=Retries(attempts=1)) as access,
        pytest.raises(Unavailable, match=r"GET http://punctual.test/v1/jobs/.*: no connection"),
    ):
        access.do(access.client.jobs.get(JOB["job_id"]))
    assert len(server.asked) == 1


def test_client_sleeps_for_the_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("punctual.client.clock.sleep", slept.append)
    server = Server(httpx.ConnectError("refused"), a_job())
    with Punctual("http://punctual.test", transport=server.transport) as client:
        client.jobs.get(str(JOB["job_id"]))
    assert len(slept) == 1
    assert 0 <= slept[0] < 0.1


def test_request_that_creates_is_never_repeated_by_default() -> None:
    assert Request("POST", "/tokens").repeat is Repeat.NEVER


PIECE, PIECES = b"x" * 1024 * 1024, 64


class _Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of many pieces. Each is made when it is asked for. It may break off."""

    def __init__(self, count: int = PIECES, error: Exception | None = None) -> None:
        self._count = count
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._count):
            yield PIECE[:-1] + b"y"  # a new object each time
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def pieces(*args: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, stream=_Pieces(*args), headers={"content-type": "a/b"})


REDIRECT = httpx.Response(
    302, headers={"location": "https://bucket.test/x", "x-output-truncated": "true"}
)
NO_OUTPUT = httpx.Response(404, json={"status": 404, "code": "NOT_FOUND", "detail": "None."})


@both_clients
def test_saved_output_is_never_in_memory_as_a_whole(open_client: Any, tmp_path: Path) -> None:
    server = Server(REDIRECT, pieces())
    path = tmp_path / "output"
    with open_client(transport=server.transport, most_bytes=1_000) as access:
        tracemalloc.start()
        try:
            saved = access.do(access.client.runs.save_output(JOB["job_id"], "r", to=path))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert saved == SavedOutput(len(PIECE) * PIECES, "a/b", truncated=True)
    assert path.stat().st_size == len(PIECE) * PIECES
    assert peak < 8 * len(PIECE)


@both_clients
def test_output_that_breaks_off_is_begun_again(open_client: Any, tmp_path: Path) -> None:
    server = Server(pieces(2, httpx.ReadError("reset")), pieces(1))
    path = tmp_path / "output"
    with open_client(transport=server.transport, retries=NO_DELAY) as access:
        assert access.do(access.client.runs.save_output(JOB["job_id"], "r", to=path)).size == len(
            PIECE
        )
    assert path.read_bytes() == PIECE[:-1] + b"y"


@both_clients
def test_stream_gets_the_content_once(open_client: Any) -> None:
    server = Server(httpx.ConnectError("refused"), pieces(2, httpx.ReadError("reset")))
    stream = io.BytesIO()
    with (
        open_client(transport=server.transport, retries=NO_DELAY) as access,
        pytest.raises(Unavailable, match="no answer"),
    ):
        access.do(access.client.runs.save_output(JOB["job_id"], "r", to=stream))
    assert (len(server.asked), len(stream.getvalue())) == (2, 2 * len(PIECE))


@both_clients
def test_refused_output_leaves_the_file_as_it_is(open_client: Any, tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_text("earlier")
    with open_client(transport=Server(NO_OUTPUT).transport) as access, pytest.raises(NotFound):
        access.do(access.client.runs.save_output(JOB["job_id"], "r", to=path))
    assert path.read_text() == "earlier"


def test_file_may_take_longer_than_the_timeout(tmp_path: Path) -> None:
    get = Request("GET", "/output", to=ResponseFile(tmp_path / "output"))
    put = Request("PUT", "/upload", file=RequestFile(tmp_path / "input"))
    for request in (get, put):
        body = body_of_response(Send(request, 30.0), 0.0, 9)
        body.add(b"a", 31.0)
    with pytest.raises(httpx.ReadTimeout):
        body_of_response(Send(Request("GET", "/jobs"), 30.0), 0.0, 9).add(b"a", 31.0)
