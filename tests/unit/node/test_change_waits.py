"""Waiting for changes: a commit releases the calls that it concerns, at a bounded rate."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.engine.ports.lists.change_feed import ChangeFilters, ChangeKind
from punctual.engine.queries.slices import SLICE_SECONDS, Sliced, SlicedWork
from punctual.node.http import change_waits
from punctual.node.http.change_waits import ChangeCalls, ChangeWaits
from punctual.node.long_work import MAX_LONG_REQUESTS, LongWork
from punctual.web.http.request import Caller, ChangeWait, Reply, Request

T = TypeVar("T")
READ_TO_ROW_1 = ("1", "0", "0")
REQUEST = Request("GET", "/changes", "after=x&wait_seconds=20", {}, b"", Caller("acme", "ann"), "r")


def a_wait(**filters: Any) -> ChangeWait:
    return ChangeWait("acme", ChangeFilters(**filters), 20, READ_TO_ROW_1)


def run(test: Callable[[ChangeWaits], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(ChangeWaits()), 10)

    asyncio.run(main())


async def take_turn(request: Callable[[], T], /) -> T:
    await asyncio.sleep(0)
    return request()


class Processor:
    """A clock that only work advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_commit_releases_the_calls_that_it_concerns() -> None:
    async def test(waits: ChangeWaits) -> None:
        tasks = {
            name: asyncio.create_task(waits.wait(wait, 20))
            for name, wait in {
                "all": a_wait(),
                "job": a_wait(job_id="j1"),
                "other job": a_wait(job_id="j2"),
                "operations": a_wait(kinds=frozenset({ChangeKind.OPERATION})),
                "other tenant": a_wait()._replace(tenant="other"),
            }.items()
        }
        await settle()
        waits.on_change("acme", 2, [("j1", 5)])
        await settle()
        assert {name for name, task in tasks.items() if task.done()} == {"all", "job"}
        waits.on_change("acme", 3, [("", 1)])
        waits.on_change("other", 3, [("j", 1)])
        await asyncio.wait([tasks["operations"], tasks["other tenant"]])
        assert not tasks["other job"].done()
        waits.close()
        assert await tasks["other job"] is None

    run(test)


def test_change_between_read_and_wait_releases_at_once() -> None:
    async def test(waits: ChangeWaits) -> None:
        waits.on_change("acme", 2, [("j1", 5)])
        assert await waits.wait(a_wait(), 20) is not None
        late = a_wait()._replace(cursor=("2", "0", "0"))
        assert await waits.wait(late, 0.01) is None

    run(test)


def test_forgotten_tenant_loses_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(waits: ChangeWaits) -> None:
        waits.on_change("acme", 2, [("j1", 5)])
        waits.on_change("other", 3, [("j1", 5)])
        assert await waits.wait(a_wait(), 20) is not None
        waits._tenants["acme"].changed_at -= change_waits.MAX_READ_SECONDS + 1
        waits.on_change("third", 1, [("j1", 5)])
        assert set(waits._tenants) == {"other", "third"}

    monkeypatch.setattr(change_waits, "MAX_IDLE_TENANTS", 1)
    run(test)


def test_distance_of_releases_grows_with_the_calls() -> None:
    async def test(waits: ChangeWaits) -> None:
        tasks = [asyncio.create_task(waits.wait(a_wait(), 20)) for _ in range(50)]
        await settle()
        assert not waits.must_pause("acme")
        waits.on_change("acme", 2, [("j1", 5)])
        releases = await asyncio.gather(*tasks)
        assert [release and release.place for release in releases] == list(range(50))
        assert waits.must_pause("acme")
        assert not waits.must_pause("other")
        assert await waits.wait(a_wait()._replace(cursor=None), 0.05) is None  # paused for 1 s

    run(test)


def test_calls_of_a_tenant_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(waits: ChangeWaits) -> None:
        task = asyncio.create_task(waits.wait(a_wait(), 20))
        await settle()
        with pytest.raises(LimitExceeded):
            await waits.wait(a_wait(), 20)
        assert await waits.wait(a_wait()._replace(tenant="other"), 0.01) is None
        waits.close()
        await task

    monkeypatch.setattr(change_waits, "MAX_WAITING_CALLS", 1)
    run(test)


def test_cancelled_call_leaves_no_trace() -> None:
    async def test(waits: ChangeWaits) -> None:
        task = asyncio.create_task(waits.wait(a_wait(), 20))
        await settle()
        task.cancel()
        await settle()
        assert waits._tenants["acme"].is_idle(asyncio.get_running_loop().time())
        waits.on_change("acme", 2, [("j1", 5)])

    run(test)


def test_equal_calls_of_a_release_share_one_read() -> None:
    async def test(waits: ChangeWaits) -> None:
        reads: list[Request] = []

        def answer(request: Request) -> Reply:
            reads.append(request)
            return Reply(200, b"changes")

        calls = ChangeCalls(waits, take_turn, answer, LongWork(take_turn))
        empty = Reply(200, b"none", wait=a_wait())
        other = REQUEST._replace(query="after=y&wait_seconds=20")
        tasks = [
            asyncio.create_task(calls.finish(request, empty))
            for request in (REQUEST, REQUEST, other)
        ]
        await settle()
        waits.on_change("acme", 2, [("j1", 5)])
        replies = await asyncio.gather(*tasks)
        assert [reply.body for reply in replies] == [b"changes"] * 3
        assert sorted(request.query for request in reads) == sorted([REQUEST.query, other.query])
        assert all(request.is_resumed for request in reads)

    run(test)


def test_call_without_a_change_gets_its_first_reply_at_the_end() -> None:
    async def test(waits: ChangeWaits) -> None:
        calls = ChangeCalls(
            waits, take_turn, lambda _request: Reply(200, b"read"), LongWork(take_turn)
        )
        waits.close()
        first = Reply(200, b"none", wait=a_wait())
        assert (await calls.finish(REQUEST, first)).body == b"none"
        unread = Reply(204, wait=a_wait()._replace(cursor=None))
        assert (await calls.finish(REQUEST, unread)).body == b"read"

    run(test)


def test_long_answers_run_in_slices_between_other_long_work() -> None:
    """A read for a follower takes turns with long requests, and few of a tenant run at once."""

    async def test(waits: ChangeWaits) -> None:
        order: list[str] = []
        cpu = Processor()

        def steps(name: str) -> Sliced[Reply]:
            for _ in range(4):
                order.append(name)
                cpu.now += SLICE_SECONDS
                yield
            return Reply(200, name.encode())

        long_work = LongWork(take_turn, cpu, cpu)
        calls = ChangeCalls(waits, take_turn, lambda request: steps(request.query), long_work)
        names = [str(number) for number in range(MAX_LONG_REQUESTS + 4)]
        empty = Reply(200, b"none", wait=a_wait())
        tasks = [
            asyncio.create_task(calls.finish(REQUEST._replace(query=name), empty)) for name in names
        ]
        await settle()
        waits.on_change("acme", 2, [("j1", 5)])
        other = asyncio.create_task(long_work.finish("acme", SlicedWork(steps("other"), cpu)))
        replies = await asyncio.gather(*tasks)
        assert [reply.body.decode() for reply in replies] == names
        assert (await other).body == b"other"
        others = [place for place, name in enumerate(order) if name == "other"]
        assert others[-1] < len(order) - len(names), "the other request waits for its turn only"

    run(test)


def test_answer_is_given_up_when_its_callers_have_left() -> None:
    async def test(waits: ChangeWaits) -> None:
        ended: list[str] = []

        def endless() -> Sliced[Reply]:
            try:
                while True:
                    yield
            finally:
                ended.append("closed")

        calls = ChangeCalls(
            waits, take_turn, lambda _request: endless(), LongWork(take_turn, Processor())
        )
        empty = Reply(200, b"none", wait=a_wait())
        tasks = [asyncio.create_task(calls.finish(REQUEST, empty)) for _ in range(2)]
        await settle()
        waits.on_change("acme", 2, [("j1", 5)])
        await settle()
        tasks[0].cancel()
        await settle()
        assert ended == []
        tasks[1].cancel()
        await settle()
        assert ended == ["closed"]

    run(test)
