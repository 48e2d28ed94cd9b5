"""What the node refuses before it costs anything, and what HTTP itself asks of a server."""

import asyncio
from typing import Any

import pytest

from tests.support.web_client import Client

BODY = b'{"name":"a","schedule_type":"IMMEDIATE"}'
HOST = (b"host", b"localhost:8080")
JSON = (b"content-type", b"application/json")
CHUNKED = (b"transfer-encoding", b"chunked")


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:65535", "[::1]", "[::1]:8080"]
)
def test_loopback_host_is_accepted(client: Client, host: str) -> None:
    assert client.get("/v1/jobs", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "127.0.0.2",
        "0.0.0.0",
        "localhost:",
        "localhost:x",
        "localhost@evil.example",
        "user@localhost",
        "::1",
    ],
)
def test_other_host_is_misdirected(client: Client, host: str) -> None:
    answer = client.get("/v1/jobs", host=host)
    assert (answer.status, answer.json["code"]) == (421, "MISDIRECTED")
    assert client.world.plan.calls == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8080"}, 202),
        ({"origin": "http://127.0.0.1:9090"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://127.0.0.1:8080"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 202),
        ({"sec-fetch-site": "none"}, 202),
    ],
)
def test_cross_site_request_is_refused(client: Client, headers: Any, status: int) -> None:
    answer = client.call("POST", "/v1/jobs", BODY, headers)
    assert answer.status == status
    assert bool(client.world.stored_jobs) is (status == 202)


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_body_of_another_content_type_is_refused(client: Client, kind: str) -> None:
    answer = client.call("POST", "/v1/jobs", BODY, {"content-type": kind})
    assert (answer.status, answer.json["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert client.world.stored_jobs == set()


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON", 'application/json; charset="UTF-8"']
)
def test_json_content_type_may_have_case_and_charset(client: Client, kind: str) -> None:
    assert client.call("POST", "/v1/jobs", BODY, {"content-type": kind}).status == 202


def test_encoded_body_is_refused(client: Client) -> None:
    answer = client.call("POST", "/v1/jobs", BODY, {"content-encoding": "gzip"})
    assert answer.status == 415


def test_request_without_a_body_needs_no_content_type(client: Client) -> None:
    job_id = client.call("POST", "/v1/jobs", BODY).json["job_id"]
    assert client.call("POST", f"/v1/jobs/{job_id}/pause").status == 200
    assert client.call("POST", f"/v1/jobs/{job_id}/pause", b"").status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"5",
        b"{}{}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800 "}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\x00"}',
        b"[" * 100_000,
        b'{"payload":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    ],
)
def test_body_that_is_not_a_json_object_is_a_bad_request(client: Client, body: bytes) -> None:
    answer = client.call("POST", "/v1/jobs", body)
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")


def test_too_large_content_length_is_refused_before_the_body_is_read(client: Client) -> None:
    length = (b"content-length", b"524289")
    answer = client.raw("POST", "/v1/jobs", [HOST, JSON, length], [])
    assert (answer.status, answer.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("length", [b"-1", b"x", b"", b"1" * 19, b"1.0"])
def test_malformed_content_length_is_refused(client: Client, length: bytes) -> None:
    answer = client.raw("POST", "/v1/jobs", [HOST, JSON, (b"content-length", length)], [BODY])
    assert answer.status == 400


def test_chunked_body_is_joined_and_limited(client: Client) -> None:
    pieces = [BODY[:5], b"", BODY[5:]]
    assert client.raw("POST", "/v1/jobs", [HOST, JSON, CHUNKED], pieces).status == 202
    large = [b" " * 200_000] * 3
    answer = client.raw("POST", "/v1/jobs", [HOST, JSON, CHUNKED], large)
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    whole = client.raw("POST", "/v1/jobs", [HOST, JSON, CHUNKED], [b" " * 600_000])
    assert whole.status == 413


def test_chunked_body_without_a_content_type_is_refused(client: Client) -> None:
    assert client.raw("POST", "/v1/jobs", [HOST, CHUNKED], [BODY]).status == 415


def test_disconnected_client_gets_no_answer(client: Client) -> None:
    with pytest.raises(ValueError, match="not enough values"):
        client.raw("POST", "/v1/jobs", [HOST, JSON, (b"content-length", b"10")], [])
    assert client.world.plan.calls == []


def test_too_many_or_too_long_headers_are_refused(client: Client) -> None:
    headers = [HOST, *((f"x-{n}".encode(), b"y") for n in range(100))]
    assert client.raw("GET", "/v1/jobs", headers, []).status == 431
    assert client.raw("GET", "/v1/jobs", [HOST, (b"x", b"y" * 70_000)], []).status == 431
    assert client.get("/v1/jobs?" + "x" * 9_000).status == 414


@pytest.mark.parametrize("name", [b"host", b"content-type", b"idempotency-key"])
def test_repeated_single_value_header_is_refused(client: Client, name: bytes) -> None:
    answer = client.call("POST", "/v1/jobs", BODY, extra=[(name, b"x"), (name, b"y")])
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")
    assert client.world.stored_jobs == set()


def test_repeated_list_header_is_one_list(client: Client) -> None:
    answer = client.call(
        "GET", "/v1/jobs", extra=[(b"accept", b"text/html"), (b"accept", b"application/json")]
    )
    assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/jobs", "GET, HEAD, OPTIONS, POST"),
        ("GET", "/v1/jobs/x/pause", "OPTIONS, POST"),
        ("DELETE", "/v1/runs", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/jobs/x", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("GET", "/v1/schedules/preview", "OPTIONS, POST"),
        ("BREW", "/v1/health", "GET, HEAD, OPTIONS"),
        ("HEAD", "/v1/jobs/batch", "OPTIONS, POST"),
    ],
)
def test_other_method_is_refused_with_the_allowed_methods(
    client: Client, method: str, path: str, allow: str
) -> None:
    answer = client.call(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    options = client.call("OPTIONS", path)
    assert (options.status, options.headers["allow"], options.body) == (204, allow, b"")


def test_head_has_the_length_of_get(client: Client) -> None:
    got, headed = client.get("/v1/jobs"), client.call("HEAD", "/v1/jobs")
    assert headed.status == 200
    assert headed.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v2/jobs", "/v1jobs", "/jobs", "/v1//jobs", "/v1/jobs//", "/v1/Jobs"],
)
def test_unknown_path_is_not_found(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")


def test_path_of_a_missing_feature_is_not_installed(client: Client) -> None:
    for method in ("GET", "POST"):
        answer = client.call(method, "/v1/events")
        assert (answer.status, answer.json["code"]) == (404, "NOT_INSTALLED")
        assert "not in this installation yet" in answer.json["detail"]


def test_request_that_does_not_accept_json_is_refused(client: Client) -> None:
    answer = client.get("/v1/jobs", accept="text/html")
    assert (answer.status, answer.headers["content-type"]) == (406, "application/problem+json")


def test_websocket_is_refused(client: Client) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(client.application({"type": "websocket"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
