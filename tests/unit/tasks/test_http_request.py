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


def test_a_bare_task_posts_its_payload_as_json() -> None:
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
def test_a_body_of_its_own_takes_the_place_of_the_payload(
    body: Any, sent: bytes, kind: bytes
) -> None:
    request = build_request(an_attempt({"p": 1}, body=body))
    assert request.body == sent
    assert headers(request)[b"Content-Type"] == kind
    assert headers(request)[b"Content-Length"] == str(len(sent)).encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_methods_that_only_ask_carry_no_payload_unless_told(method: str) -> None:
    request = build_request(an_attempt({"p": 1}, method=method))
    assert request.body is None
    assert not {b"Content-Length", b"Content-Type"} & set(headers(request))
    assert build_request(an_attempt(method=method, body="q")).body == b"q"


def test_headers_of_the_job_come_before_our_defaults() -> None:
    given = {"content-type": "text/csv", "User-Agent": "me", "idempotency-key": "mine", "X-N": 3}
    sent = headers(build_request(an_attempt(headers=given)))
    assert sent[b"content-type"] == b"text/csv"
    assert sent[b"User-Agent"] == b"me"
    assert sent[b"idempotency-key"] == b"mine"
    assert sent[b"X-N"] == b"3"
    assert not {b"Content-Type", b"Idempotency-Key"} & set(sent)


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x0bb", "a\x7fb", "\r\n", "half \ud800"]
)
def test_no_header_can_smuggle_in_another(value: str) -> None:
    with pytest.raises(BadTask, match="The header X-A holds"):
        build_request(an_attempt(headers={"X-A": value}))


@pytest.mark.parametrize("name", ["", "X A", "X:A", "X\r\nA", "Ü", "X-A\n"])
def test_a_header_needs_a_name_that_is_one(name: str) -> None:
    with pytest.raises(BadTask, match="no name of a header"):
        build_request(an_attempt(headers={name: "a"}))


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_what_frames_the_request_is_ours(name: str) -> None:
    with pytest.raises(BadTask, match="Punctual's to set"):
        build_request(an_attempt(headers={name: "1"}))


def test_headers_have_a_number_and_a_size() -> None:
    fifty = {f"X-{n}": "1" for n in range(50)}
    assert len(build_request(an_attempt(headers=fifty)).headers) == 55
    with pytest.raises(BadTask, match="more than 50 headers"):
        build_request(an_attempt(headers=fifty | {"X-50": "1"}))
    assert build_request(an_attempt(headers={"X-A": "a" * 8189}))
    with pytest.raises(BadTask, match="longer than 8192 bytes"):
        build_request(an_attempt(headers={"X-A": "a" * 8190}))


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "post", "G ET", 5])
def test_other_methods_are_refused(method: Any) -> None:
    with pytest.raises(BadTask, match="is no method"):
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
def test_a_url_that_cannot_be_called_says_why(url: Any) -> None:
    assert url_problem(url).startswith("The URL ")


def test_a_url_is_taken_as_written_but_for_its_last_dot() -> None:
    assert parse_url("https://x.example./a%2Fb?q=%20").netloc == b"x.example"
    assert parse_url("https://x.example/a%2Fb?q=%20").raw_path == b"/a%2Fb?q=%20"
    assert parse_url("http://[::1]:8080/").netloc == b"[::1]:8080"
    assert parse_url("https://bücher.example/").netloc == b"xn--bcher-kva.example"
    assert url_problem("https://x.example") == ""


SECRET = 'k"ey'


def a_request(url: str, method: str = "POST", body: Any = None) -> Request:
    given = {
        "Authorization": "Bearer a",
        "Cookie": "a=b",
        "X-Api-Key": "c",
        "Accept": "text/html",
        "Accept-Language": f"de; {SECRET}",
    }
    return build_request(an_attempt(url=url, method=method, headers=given, body=body))


def names(request: Request) -> set[bytes]:
    return {name.lower() for name, _ in request.headers}


def after(request: Request, status: int, location: str) -> Request:
    return redirect_request(request, status, location, frozenset({SECRET}))


@pytest.mark.parametrize(
    ("status", "method", "then"),
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
def test_a_redirect_keeps_or_drops_method_and_body(status: int, method: str, then: str) -> None:
    request = after(a_request("https://x.example/a", method, "body"), status, "/b")
    assert request.method == then
    assert request.url == httpx.URL("https://x.example/b")
    assert (request.body is None) == (then == "GET")
    assert (b"content-type" in names(request)) == (then != "GET")


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
def test_to_the_same_origin_credentials_go_along(start: str, location: str) -> None:
    assert {b"authorization", b"cookie", b"x-api-key"} <= names(
        after(a_request(start), 307, location)
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
def test_to_another_origin_only_what_is_harmless_goes_along(start: str, location: str) -> None:
    kept = names(after(a_request(start), 307, location))
    assert kept == {
        b"accept",
        b"accept-encoding",
        b"content-type",
        b"idempotency-key",
        b"user-agent",
    }


@pytest.mark.parametrize("body", [{"token": SECRET}, f"token={SECRET}"])
def test_a_secret_in_a_body_stays_with_its_origin(body: Any) -> None:
    request = a_request("https://x.example/a", body=body)
    with pytest.raises(BadRedirect, match="a body with a secret"):
        after(request, 307, "https://y.example/")
    assert after(request, 307, "/b").body == request.body
    assert after(request, 303, "https://y.example/").body is None


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "http://u:p@x.example/"])
def test_a_redirect_must_lead_to_a_url_that_can_be_called(location: str) -> None:
    with pytest.raises(BadRedirect, match="The server redirects to a URL"):
        after(a_request("https://x.example/a"), 302, location)


@pytest.mark.parametrize(
    ("expected", "status", "fits"),
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
def test_which_status_is_success(expected: Any, status: int, fits: bool) -> None:
    assert is_expected(status, parse_expected(expected)) is fits


@pytest.mark.parametrize("bad", [True, 99, 600, "2xx", "299-200", [], [None], "200-", 200.0, {}])
def test_what_is_no_status_is_refused(bad: Any) -> None:
    with pytest.raises(BadTask, match="expect_status"):
        parse_expected(bad)


def test_only_client_errors_are_final_and_not_all_of_them() -> None:
    final = {status for status in range(100, 600) if not is_retryable_status(status)}
    assert final == set(range(400, 500)) - {408, 425, 429}
