from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.http.request import (
    BadRedirect,
    Request,
    build_request,
    parse_url,
    redirect_request,
    url_problem,
)
from punctual.tasks.http.status import is_expected, is_retryable_status, parse_expected


def an_attempt(payload: Any = None, **task: Any) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id="run-1",
        name="A job",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "http", "url": "https://x.example/in"} | task,
        payload=payload,
        timeout=timedelta(seconds=5),
        token=7,
    )


def headers(request: Request) -> dict[bytes, bytes]:
    return dict(request.wire_headers())


def test_http_task_posts_its_payload_as_json() -> None:
    request = build_request(an_attempt({"ü": [1]}))

    assert request.method == "POST"
    assert request.body == '{"ü":[1]}'.encode()
    assert headers(request) == {
        b"Host": b"x.example",
        b"Content-Length": b"10",
        b"Accept": b"*/*",
        b"Accept-Encoding": b"identity",
        b"User-Agent": b"Punctual",
        b"Idempotency-Key": b"run-1",
        b"Content-Type": b"application/json",
    }


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ("text ü", "text ü".encode(), b"text/plain; charset=utf-8"),
        ({"a": 1}, b'{"a":1}', b"application/json"),
        ([], b"[]", b"application/json"),
        (0, b"0", b"application/json"),
        (False, b"false", b"application/json"),
        ("", b"", b"text/plain; charset=utf-8"),
        ({"half": "\ud800"}, b'{"half":"\\ud800"}', b"application/json"),
    ],
)
def test_body_of_the_task_replaces_the_payload(body: Any, sent: bytes, kind: bytes) -> None:
    request = build_request(an_attempt({"p": 1}, body=body))
    assert request.body == sent
    assert headers(request)[b"Content-Type"] == kind
    assert headers(request)[b"Content-Length"] == str(len(sent)).encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_method_without_a_body_sends_no_payload(method: str) -> None:
    request = build_request(an_attempt({"p": 1}, method=method))
    assert request.body is None
    assert not {b"Content-Length", b"Content-Type"} & set(headers(request))
    assert build_request(an_attempt(method=method, body="q")).body == b"q"


def test_headers_of_the_task_replace_the_defaults() -> None:
    task_headers = {
        "content-type": "text/csv",
        "User-Agent": "me",
        "idempotency-key": "mine",
        "X-N": 3,
    }
    sent = headers(build_request(an_attempt(headers=task_headers)))
    assert sent[b"content-type"] == b"text/csv"
    assert sent[b"User-Agent"] == b"me"
    assert sent[b"idempotency-key"] == b"mine"
    assert sent[b"X-N"] == b"3"
    assert not {b"Content-Type", b"Idempotency-Key"} & set(sent)


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x0bb", "a\x7fb", "\r\n", "half \ud800"]
)
def test_header_value_with_control_characters_is_refused(value: str) -> None:
    with pytest.raises(BadTask, match="The header X-A holds"):
        build_request(an_attempt(headers={"X-A": value}))


@pytest.mark.parametrize("name", ["", "X A", "X:A", "X\r\nA", "Ü", "X-A\n"])
def test_malformed_header_name_is_refused(name: str) -> None:
    with pytest.raises(BadTask, match="is not a valid header name"):
        build_request(an_attempt(headers={name: "a"}))


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_framing_header_is_refused(name: str) -> None:
    with pytest.raises(BadTask, match="is set by Punctual"):
        build_request(an_attempt(headers={name: "1"}))


def test_headers_have_a_limit_of_number_and_size() -> None:
    fifty = {f"X-{number}": "1" for number in range(50)}
    assert len(build_request(an_attempt(headers=fifty)).headers) == 55
    with pytest.raises(BadTask, match="more than 50 headers"):
        build_request(an_attempt(headers=fifty | {"X-50": "1"}))
    assert build_request(an_attempt(headers={"X-A": "a" * 8189}))
    with pytest.raises(BadTask, match="longer than 8192 bytes"):
        build_request(an_attempt(headers={"X-A": "a" * 8190}))


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "post", "G ET", 5])
def test_unknown_method_is_refused(method: Any) -> None:
    with pytest.raises(BadTask, match="is not a supported method"):
        build_request(an_attempt(method=method))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.example/",
        "file:///etc/passwd",
        "x.example/a",
        "//x.example/a",
        "http://",
        "http://./",
        "http:///path",
        "http://user@x.example/",
        "http://user:pass@x.example/",
        "http://x.example:99999/",
        "http://x.example:a/",
        "http://a b/",
        "http://x.example/\0",
        "http://１２７.0.0.1:99999/",
        "https://{{payload.x}}/",
        "https://x.example/" + "a" * 9000,
        "",
        7,
        None,
    ],
)
def test_invalid_url_is_refused_with_a_reason(url: Any) -> None:
    assert url_problem(url).startswith("The URL ")


def test_url_is_used_as_written_without_a_trailing_dot() -> None:
    assert parse_url("https://x.example./a%2Fb?q=%20").netloc == b"x.example"
    assert parse_url("https://x.example/a%2Fb?q=%20").raw_path == b"/a%2Fb?q=%20"
    assert parse_url("http://[::1]:8080/").netloc == b"[::1]:8080"
    assert parse_url("https://bücher.example/").netloc == b"xn--bcher-kva.example"
    assert url_problem("https://x.example") == ""


SECRET = 'k"ey'


def a_request(url: str, method: str = "POST", body: Any = None) -> Request:
    task_headers = {
        "Authorization": "Bearer a",
        "Cookie": "a=b",
        "X-Api-Key": "c",
        "Accept": "text/html",
        "Accept-Language": f"de; {SECRET}",
    }
    return build_request(an_attempt(url=url, method=method, headers=task_headers, body=body))


def header_names(request: Request) -> set[bytes]:
    return {name.lower() for name, _ in request.headers}


def redirected(request: Request, status: int, location: str) -> Request:
    return redirect_request(request, status, location, frozenset({SECRET}))


@pytest.mark.parametrize(
    ("status", "method", "expected_method"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "DELETE", "GET"),
        (303, "HEAD", "HEAD"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (307, "POST", "POST"),
        (308, "PATCH", "PATCH"),
    ],
)
def test_redirect_keeps_or_drops_method_and_body_by_status(
    status: int, method: str, expected_method: str
) -> None:
    request = redirected(a_request("https://x.example/a", method, "body"), status, "/b")
    assert request.method == expected_method
    assert request.url == httpx.URL("https://x.example/b")
    assert (request.body is None) == (expected_method == "GET")
    assert (b"content-type" in header_names(request)) == (expected_method != "GET")


@pytest.mark.parametrize(
    ("start", "location"),
    [
        ("https://x.example/a", "https://x.example/b"),
        ("https://x.example/a", "https://x.example:443/b"),
        ("https://x.example/a", "?q=1"),
        ("http://x.example/a", "https://x.example/a"),
        ("http://x.example:8080/a", "http://x.example:8080/b"),
    ],
)
def test_redirect_to_the_same_origin_keeps_credentials(start: str, location: str) -> None:
    assert {b"authorization", b"cookie", b"x-api-key"} <= header_names(
        redirected(a_request(start), 307, location)
    )


@pytest.mark.parametrize(
    ("start", "location"),
    [
        ("https://x.example/a", "https://y.example/a"),
        ("https://x.example/a", "//y.example/a"),
        ("https://x.example/a", "https://sub.x.example/a"),
        ("https://x.example/a", "https://x.example:8443/a"),
        ("https://x.example/a", "http://x.example/a"),
        ("http://x.example:8080/a", "https://x.example/a"),
    ],
)
def test_redirect_to_another_origin_drops_credentials(start: str, location: str) -> None:
    kept_headers = header_names(redirected(a_request(start), 307, location))
    assert kept_headers == {
        b"accept",
        b"accept-encoding",
        b"content-type",
        b"idempotency-key",
        b"user-agent",
    }


@pytest.mark.parametrize("body", [{"token": SECRET}, f"token={SECRET}"])
def test_redirect_of_a_body_with_a_secret_to_another_origin_is_refused(body: Any) -> None:
    request = a_request("https://x.example/a", body=body)
    with pytest.raises(BadRedirect, match="a body with a secret"):
        redirected(request, 307, "https://y.example/")
    assert redirected(request, 307, "/b").body == request.body
    assert redirected(request, 303, "https://y.example/").body is None


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "http://u:p@x.example/"])
def test_redirect_to_an_invalid_url_is_refused(location: str) -> None:
    with pytest.raises(BadRedirect, match="The server redirects to a URL"):
        redirected(a_request("https://x.example/a"), 302, location)


@pytest.mark.parametrize(
    ("expected", "status", "is_success"),
    [
        (None, 200, True),
        (None, 299, True),
        (None, 300, False),
        (404, 404, True),
        (404, 200, False),
        ([200, 404], 404, True),
        ("200-299", 250, True),
        (["200-204", 302, "404"], 302, True),
        (["200-204", 302, "404"], 404, True),
        (["200-204", 302, "404"], 205, False),
    ],
)
def test_status_is_compared_with_the_expected_ones(
    expected: Any, status: int, is_success: bool
) -> None:
    assert is_expected(status, parse_expected(expected)) is is_success


@pytest.mark.parametrize("value", [True, 99, 600, "2xx", "299-200", [], [None], "200-", 200.0, {}])
def test_malformed_expected_status_is_refused(value: Any) -> None:
    with pytest.raises(BadTask, match="expect_status"):
        parse_expected(value)


def test_most_client_errors_are_not_retried() -> None:
    not_retried = {status for status in range(100, 600) if not is_retryable_status(status)}
    assert not_retried == set(range(400, 500)) - {408, 425, 429}
