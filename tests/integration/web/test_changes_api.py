"""GET /changes of the node: wrong cursors, and what followers are told while the store fails."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.engine.commands.jobs import Submission
from punctual.node.http.change_waits import ChangeWaits
from tests.integration.web.test_http_engine import NodeClient, submitted
from tests.support.web_client import Answer

SOON = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 3600}


class FeedClient(NodeClient):
    """Asks for changes within a running loop."""

    async def ask(self, query: str) -> Answer:
        """Return the answer of a call within a running loop."""
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/changes",
            "raw_path": b"/v1/changes",
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1:8080")],
        }
        return await self._call(scope, [b""])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FeedClient]:
    client = FeedClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def cursor_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json["next_cursor"])


@pytest.mark.parametrize("cursor", ["abc", "A" * 80, "_-_-"])
def test_cursor_of_another_origin_is_a_gap(client: FeedClient, cursor: str) -> None:
    answer = client.get(f"/v1/changes?after={cursor}")
    assert (answer.status, answer.json["gap"]) == (200, True)


class Outage:
    """Lets the feed of a node fail while it is on."""

    def __init__(self, client: FeedClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        for name in ("read", "now"):
            read = getattr(client.store.changes, name)
            monkeypatch.setattr(client.store.changes, name, self._failing(read))

    def _failing(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.is_on:
                raise Unavailable("The store does not answer.")
            return read(*args)

        return call


@pytest.fixture
def outage(client: FeedClient, monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(client, monkeypatch)


def assert_told(answer: Answer) -> None:
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert int(answer.headers["retry-after"]) >= 1


def test_call_in_an_outage_is_told_to_retry_and_loses_nothing(
    client: FeedClient, outage: Outage
) -> None:
    cursor = cursor_of(client.get("/v1/changes"))
    submitted(client, SOON)
    outage.is_on = True
    assert_told(client.get("/v1/changes"))
    assert_told(client.get(f"/v1/changes?after={cursor}"))
    outage.is_on = False
    assert len(client.get(f"/v1/changes?after={cursor}").json["changes"]) == 1


async def settle() -> None:
    """Let the calls begin to wait."""
    for _ in range(50):
        await asyncio.sleep(0)


def follow(client: FeedClient, test: Callable[[str], Awaitable[None]]) -> None:
    """Run a test within the loop of the node, with a cursor of now."""

    async def main() -> None:
        client.waits = ChangeWaits()
        client.store.changes.on_change = client.waits.on_change
        cursor = cursor_of(await client.ask(""))
        await asyncio.wait_for(test(cursor), 20)

    asyncio.run(main())


def test_waiting_followers_are_told_of_an_outage_and_none_hangs(
    client: FeedClient, outage: Outage
) -> None:
    async def test(cursor: str) -> None:
        queries = [f"after={cursor}&wait_seconds=20", f"after={cursor}&wait_seconds=19"]
        tasks = [asyncio.create_task(client.ask(query)) for query in (*queries, *queries)]
        await settle()
        outage.is_on = True
        client.node.perform([lambda: client.node.jobs.submit("local", "me", [Submission(SOON)])])
        for answer in await asyncio.gather(*tasks):
            assert_told(answer)
        outage.is_on = False
        answer = await client.ask(queries[0])
        assert len(answer.json["changes"]) == 1

    follow(client, test)


def test_follower_that_waits_during_a_silent_outage_is_answered_in_its_time(
    client: FeedClient, outage: Outage
) -> None:
    async def test(cursor: str) -> None:
        query = f"after={cursor}&wait_seconds=1"
        task = asyncio.create_task(client.ask(query))
        await settle()
        outage.is_on = True
        assert (await task).json["changes"] == []
        assert_told(await client.ask(query))

    follow(client, test)
