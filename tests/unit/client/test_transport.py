"""Between the client and httpx: where to, with what, how long, how much."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from punctual.client import Misuse, Punctual, Retries, Unavailable, Unexpected
from punctual.client.call_steps import Send
from punctual.client.transport import (
    ApiTarget,
    ResponseBody,
    client_options,
    failure_of,
    request_arguments,
    resolve_target,
)
from punctual.client.wire import Repeat, Request
from tests.rehearsal.certificate import a_certificate
from tests.support.client_ways import JOB, Server, a_job, both_ways

HERE = "http://127.0.0.1:8080/v1"
BOTH = {"PUNCTUAL_URL": "https://a/v1", "PUNCTUAL_TOKEN": "t"}


@pytest.mark.parametrize(
    ("url", "token", "env", "found"),
    [
        (None, None, {}, ApiTarget(HERE, None)),
        (None, None, {"PUNCTUAL_URL": "", "PUNCTUAL_TOKEN": ""}, ApiTarget(HERE, None)),
        (None, None, BOTH, ApiTarget("https://a/v1", "t")),
        ("https://b/v1/", "u", BOTH, ApiTarget("https://b/v1", "u")),
        (None, "", BOTH, ApiTarget("https://a/v1", None)),
    ],
)
def test_what_is_given_goes_before_the_environment(
    url: str | None, token: str | None, env: Mapping[str, str], found: ApiTarget
) -> None:
    assert resolve_target(url, token, env) == found


@pytest.mark.parametrize("url", ["punctual.test", "ftp://a", "https://", "http:///v1"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(Misuse, match="no address"):
        Punctual(url)


@pytest.mark.parametrize("token", ["a\nb", "a b", "é", "t\n"])
def test_a_token_that_was_copied_badly_is_refused_at_once(token: str) -> None:
    with pytest.raises(Misuse, match="copied"):
        Punctual(HERE, token)


def test_no_proxy_stands_between_us_and_this_machine() -> None:
    assert not client_options(HERE, None)["trust_env"]
    assert client_options("https://punctual.test/v1", None)["trust_env"]


def test_an_authority_that_the_environment_names_counts_on_this_machine_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(a_certificate(tmp_path).certificate))
    found = client_options("https://127.0.0.1:1/v1", None)
    assert not found["trust_env"]
    (only,) = found["verify"].get_ca_certs()
    assert only["subject"] == ((("commonName", "rehearsal"),),)


def test_every_wait_has_a_bound() -> None:
    found = request_arguments(Send(Request("GET", "/jobs"), 7.0), ApiTarget(HERE, None))["timeout"]
    assert (found.connect, found.read, found.write, found.pool) == (5.0, 7.0, 7.0, 7.0)
    assert (
        request_arguments(Send(Request("GET", "/jobs"), 2.0), ApiTarget(HERE, None))[
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
def test_an_error_says_whether_the_server_may_have_got_it(
    error: httpx.HTTPError, sent: bool
) -> None:
    found = failure_of(error)
    assert (found.sent, found.final) == (sent, False)
    assert found.text


@pytest.mark.parametrize(
    "error", [httpx.UnsupportedProtocol("x"), httpx.InvalidURL("x"), httpx.LocalProtocolError("x")]
)
def test_what_cannot_be_sent_is_not_tried_again(error: Exception) -> None:
    assert failure_of(error).final


def test_a_certificate_that_is_not_good_is_not_tried_again() -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("expired")
    assert failure_of(error).final


def test_an_answer_that_comes_too_slowly_is_no_answer() -> None:
    gathered = ResponseBody(steady_deadline=10.0, max_bytes=9)
    gathered.add(b"a", 9.0)
    with pytest.raises(httpx.ReadTimeout):
        gathered.add(b"b", 11.0)


@both_ways
def test_an_answer_that_is_too_long_is_not_kept(opened: Any) -> None:
    server = Server(a_job(payload="x" * 1_000))
    with (
        opened(transport=server.transport, most_bytes=1_000) as way,
        pytest.raises(Unexpected, match="1,000 bytes"),
    ):
        way.do(way.client.jobs.get("id"))
    assert len(server.asked) == 1


@both_ways
def test_a_failed_connection_is_tried_again(opened: Any) -> None:
    server = Server(httpx.ConnectError("refused"), httpx.ReadTimeout(""), a_job())
    with opened(transport=server.transport, retries=Retries(first_delay=0.0)) as way:
        assert way.do(way.client.jobs.get("id")).name == JOB["name"]
    assert len(server.asked) == 3


@both_ways
def test_who_does_not_want_retries_has_none(opened: Any) -> None:
    server = Server(httpx.ConnectError("refused"))
    with (
        opened(transport=server.transport, retries=Retries(attempts=1)) as way,
        pytest.raises(Unavailable, match=r"GET http://punctual.test/v1/jobs/id: no connection"),
    ):
        way.do(way.client.jobs.get("id"))
    assert len(server.asked) == 1


def test_a_pause_is_as_long_as_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("punctual.client.clock.sleep", slept.append)
    server = Server(httpx.ConnectError("refused"), a_job())
    with Punctual("http://punctual.test", transport=server.transport) as client:
        client.jobs.get("id")
    assert len(slept) == 1
    assert 0 <= slept[0] < 0.1


def test_a_request_says_what_may_come_of_asking_twice() -> None:
    assert Request("POST", "/tokens").repeat is Repeat.NEVER
