"""Long work runs in slices and ends at a limit of processor time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from punctual.domain.errors import LimitExceeded, TooMuchWork, Unavailable
from punctual.engine.queries.slices import (
    MAX_WORK_SECONDS,
    SLICE_SECONDS,
    Sliced,
    SlicedWork,
    finish,
)
from punctual.node.long_work import MAX_LONG_REQUESTS, SHORT_WORK_SECONDS, LongWork

T = TypeVar("T")
MILLISECOND = 0.001


class Processor:
    """A clock that only work advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, steps: int, result: str = "done") -> Sliced[str]:
        for _ in range(steps):
            self.now += MILLISECOND
            yield
        return result


def test_slice_ends_with_the_step_that_fills_it() -> None:
    cpu = Processor()
    work = SlicedWork(cpu.work(50), cpu)
    ends = []
    while work.run_slice():
        ends.append(round(cpu.now / MILLISECOND))
    slice_steps = round(SLICE_SECONDS / MILLISECOND)
    assert ends == [slice_steps, 2 * slice_steps]
    assert work.results == ["done"]


def test_slice_ends_also_after_waits_for_the_disk() -> None:
    cpu, steady = Processor(), Processor()
    steps = 0

    def waiting() -> Sliced[str]:
        nonlocal steps
        for _ in range(12):
            steps += 1
            steady.now += 0.3 * SLICE_SECONDS
            yield
        return "done"

    work = SlicedWork(waiting(), cpu, steady)
    ends = []
    while work.run_slice():
        ends.append(steps)
    assert ends == [4, 8, 12]
    assert work.results == ["done"]


def test_wait_for_the_disk_does_not_count_as_work() -> None:
    steady = Processor()
    assert finish(steady.work(10 * round(MAX_WORK_SECONDS / MILLISECOND)), Processor()) == "done"


def test_short_work_ends_in_its_first_slice() -> None:
    cpu = Processor()
    work = SlicedWork(cpu.work(3), cpu)
    assert not work.run_slice()
    assert work.results == ["done"]


def test_work_over_the_limit_is_stopped() -> None:
    cpu = Processor()
    steps = cpu.work(10**9)
    with pytest.raises(TooMuchWork, match="2 s of processor time"):
        finish(steps, cpu)
    assert MAX_WORK_SECONDS <= cpu.now <= MAX_WORK_SECONDS + 2 * SLICE_SECONDS
    with pytest.raises(StopIteration):
        next(steps)


def test_error_of_the_work_leaves_its_slice() -> None:
    def failing() -> Sliced[str]:
        yield
        raise Unavailable("no disk")

    with pytest.raises(Unavailable):
        finish(failing())


async def turn(request: Callable[[], T], /) -> T:
    await asyncio.sleep(0)
    return request()


def test_long_requests_take_turns() -> None:
    cpu, order = Processor(), list[str]()

    def slow(name: str) -> Sliced[str]:
        for _ in range(3):
            order.append(name)
            cpu.now += 1.5 * SLICE_SECONDS
            yield
        return name

    async def scenario() -> list[str]:
        long_work = LongWork(turn, cpu)
        return await asyncio.gather(
            *(long_work.finish("t", SlicedWork(slow(name), cpu)) for name in "abc")
        )

    assert asyncio.run(scenario()) == ["a", "b", "c"]
    assert order == list("abcabcabc")


def test_short_work_ends_in_the_turn_of_its_request() -> None:
    cpu = Processor()
    long_work = LongWork(turn, cpu, cpu)
    assert long_work.begin(cpu.work(1)) == "done"
    remaining_work = long_work.begin(cpu.work(50))
    assert isinstance(remaining_work, SlicedWork)
    assert cpu.now == pytest.approx(MILLISECOND + SHORT_WORK_SECONDS)
    assert asyncio.run(long_work.finish("t", remaining_work)) == "done"


def test_tenant_has_a_limit_of_long_requests() -> None:
    def endless() -> Sliced[str]:
        while True:
            yield

    async def scenario() -> None:
        long_work = LongWork(turn)
        tasks = [
            asyncio.create_task(long_work.finish("a", SlicedWork(endless())))
            for _ in range(MAX_LONG_REQUESTS)
        ]
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded):
            await long_work.finish("a", SlicedWork(endless()))
        assert await long_work.finish("b", SlicedWork(Processor().work(1))) == "done"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await long_work.finish("a", SlicedWork(Processor().work(1))) == "done"

    asyncio.run(scenario())
