"""The client uploads a file by a claim, and never holds it in memory as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from punctual.client import Misuse, Unexpected
from tests.support.client.kinds import NO_DELAY, Server, both_clients

TICKET = httpx.Response(
    200,
    json={
        "upload_url": "https://bucket.test/o?signature=x",
        "upload_headers": {"Content-Length": "6", "Content-Type": "text/csv"},
        "output_upload": "signed",
    },
)


def put(status: int, bodies: list[bytes]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(status)

    return answer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "table.csv"
    file.write_bytes(b"a,b\n1\n")
    return file


@both_clients
def test_file_is_sent_again_without_a_token(open_client: Any, file: Path) -> None:
    bodies: list[bytes] = []
    server = Server(TICKET, put(503, bodies), put(412, bodies))
    sent: list[int] = []
    with open_client(token="secret", transport=server.transport, retries=NO_DELAY) as access:
        call = access.client.claims.upload_file
        ticket = access.do(call("c", file, content_type="text/csv", on_progress=sent.append))
    assert ticket.output_upload == "signed"
    assert bodies == [b"a,b\n1\n"] * 2
    asked = [(request.method, str(request.url)) for request in server.asked[1:]]
    assert asked == [("PUT", "https://bucket.test/o?signature=x")] * 2
    assert server.asked[1].headers["content-type"] == "text/csv"
    assert not any("authorization" in request.headers for request in server.asked)
    assert sent == [6, 6]


@both_clients
@pytest.mark.parametrize(("status", "text"), [(412, "is stored already"), (403, "answered 403")])
def test_refused_file_is_not_uploaded(open_client: Any, file: Path, status: int, text: str) -> None:
    server = Server(TICKET, put(status, []))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Unexpected, match=text),
    ):
        access.do(access.client.claims.upload_file("c", file))


@both_clients
def test_missing_file_is_misuse(open_client: Any, tmp_path: Path) -> None:
    server = Server(TICKET)
    with open_client(transport=server.transport) as access:
        with pytest.raises(Misuse, match="cannot be read"):
            access.do(access.client.claims.upload_file("c", tmp_path / "none"))
        assert server.asked == []
