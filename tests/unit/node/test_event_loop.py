"""What drives the node's steps."""

import asyncio
from typing import Any, cast

import pytest

from punctual.domain.errors import Unavailable
from punctual.node import event_loop as module
from punctual.node.event_loop import EventLoop
from punctual.node.node import Node


class Failing:
    """Its first step fails."""

    def __init__(self, error: Exception, stepped: asyncio.Event) -> None:
        self._errors = [error]
        self._stepped = stepped

    def step(self) -> float:
        if self._errors:
            raise self._errors.pop()
        self._stepped.set()
        return 3_600.0


@pytest.mark.parametrize(
    ("error", "event"),
    [(Unavailable("no disk"), "store_unavailable"), (KeyError("x"), "step_failed")],
)
def test_a_step_that_fails_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, event: str
) -> None:
    monkeypatch.setattr(module, "STEP_RETRY_SECONDS", 0.0)
    logged: list[str] = []

    async def play() -> None:
        stepped = asyncio.Event()
        node = cast(Node, Failing(error, stepped))
        loop = EventLoop(node, lambda: 0.0, lambda name, **_: logged.append(name))
        loop.start()
        await asyncio.wait_for(stepped.wait(), 10)
        loop.stop()

    asyncio.run(play())
    assert logged == [event]


def test_requests_of_one_turn_are_answered_each_with_its_own() -> None:
    class Echo:
        def perform(self, requests: list[Any]) -> list[Any]:
            return [ValueError("no") if request() is None else request() for request in requests]

        def next_at(self) -> float:
            return 3_600.0

    async def play() -> list[Any]:
        loop = EventLoop(cast(Node, Echo()), lambda: 0.0, lambda *_, **__: None)
        turns = (loop.turn(lambda: 1), loop.turn(lambda: None), loop.turn(lambda: 3))
        return list(await asyncio.gather(*turns, return_exceptions=True))

    first, second, third = asyncio.run(play())
    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)
