"""Bodies of callers without a token take a bounded part of the node's memory."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.node.http.public_bodies import MAX_PUBLIC_BODY_BYTES, SHORT_PUBLIC_BODY_BYTES
from punctual.web.http.json_body import MAX_BATCH_BODY_BYTES
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode, statuses
from tests.support.node.node_world import NOON

FITTING = MAX_PUBLIC_BODY_BYTES // MAX_BATCH_BODY_BYTES
RENEW = "/v1/claims/renew"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClaimsNode]:
    node = ClaimsNode(tmp_path, ManualClock(NOON))
    yield node
    node.close()


class HalfSent:
    """A request that has sent a part of its body, and its answer."""

    def __init__(self, node: ClaimsNode, size: int, announces_length: bool = True) -> None:
        length = (b"content-length", b"%d" % size)
        headers = [
            (b"host", b"127.0.0.1:8080"),
            (b"content-type", b"application/json"),
            length if announces_length else (b"transfer-encoding", b"chunked"),
        ]
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": RENEW,
            "raw_path": RENEW.encode(),
            "query_string": b"",
            "headers": headers,
        }
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
        self.sent: list[dict[str, Any]] = []
        self._node = node

    async def begin(self) -> None:
        """Send the first part, and let the node read it or answer."""

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        application = self._node.application
        self._call = asyncio.create_task(application(self._scope, self._messages.get, send))
        while self._messages.qsize() and not self._call.done():
            await asyncio.sleep(0)

    async def disconnect(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})
        await self._call

    @property
    def status(self) -> int | None:
        """Return the status of the answer, or None while the node reads the body."""
        return self.sent[0]["status"] if self.sent else None


async def begin(*requests: HalfSent) -> None:
    for request in requests:
        await request.begin()


@pytest.mark.parametrize("announces_length", [True, False], ids=["length", "chunked"])
def test_long_bodies_without_a_token_have_a_limit(node: ClaimsNode, announces_length: bool) -> None:
    async def play() -> None:
        long_bodies = [
            HalfSent(node, MAX_BATCH_BODY_BYTES, announces_length) for _ in range(FITTING)
        ]
        await begin(*long_bodies)
        assert {request.status for request in long_bodies} == {None}
        refused, short = (
            HalfSent(node, MAX_BATCH_BODY_BYTES, announces_length),
            HalfSent(node, SHORT_PUBLIC_BODY_BYTES),
        )
        await begin(refused, short)
        assert (refused.status, short.status) == (503, None)
        headers = dict(refused.sent[0]["headers"])
        assert (headers[b"retry-after"], headers[b"connection"]) == (b"1", b"close")
        for request in (*long_bodies, short):
            await request.disconnect()
        again = HalfSent(node, MAX_BATCH_BODY_BYTES, announces_length)
        await begin(again)
        assert again.status is None, "a caller that leaves gives its room back"
        await again.disconnect()

    asyncio.run(play())


def test_answered_body_gives_its_room_back(node: ClaimsNode) -> None:
    claims = [{"claim": "x", "log": "x" * 1_000_000}] * 5
    for _ in range(2 * FITTING):
        assert statuses(node.renew(*claims)) == ["LOST"] * 5
