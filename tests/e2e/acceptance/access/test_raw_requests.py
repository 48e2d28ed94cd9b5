"""Raw requests that no client sends, and a body in chunks."""

import json
import socket
from email.message import Message
from http.client import HTTPResponse
from urllib.parse import urlsplit

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, unique

BODY = json.dumps({"name": unique("n"), **NEVER_SOON}).encode()
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"


def raw(api: Api, request: bytes) -> tuple[int, Message, bytes]:
    """Send the bytes of a request, and return status, headers and body of the response."""
    parts = urlsplit(api.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(request)
        with HTTPResponse(connection) as answer:
            answer.begin()
            return answer.status, answer.headers, answer.read()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /v1/jobs HTTP/1.1\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"GET /v1/jobs HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: -1\r\n\r\n{}",
        b"POST /v1/jobs HTTP/1.1\r\n"
        + HOST
        + JSON
        + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 99999999999\r\n\r\n{}",
        b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/jobs/%2e%2e%2f%2e%2e HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"BREW /v1/jobs HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
    ids=lambda request: repr(request[:40]),
)
def test_malformed_requests_return_client_errors(api: Api, request_: bytes) -> None:
    if api.is_local:
        status, _, _ = raw(api, request_)
        assert 400 <= status < 500
    assert api("GET", "/health").status_code in (200, 503)


def test_chunked_body_is_accepted_and_measured(api: Api) -> None:
    def request(chunks: list[bytes]) -> bytes:
        head = b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON + b"Connection: close\r\n"
        sent = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""]]
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(sent)

    if api.is_local:
        status, headers, body = raw(api, request([BODY[:10], BODY[10:]]))
        assert status == 202
        assert headers["Location"].endswith(json.loads(body)["job_id"])
        api.made.append(json.loads(body)["job_id"])
        status, _, _ = raw(api, request([b" " * 65_536] * 9))
        assert status == 413
