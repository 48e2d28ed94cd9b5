"""What drives the node's steps."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from punctual.domain.errors import Unavailable
from punctual.local import loop as module
from punctual.local.loop import Loop
from punctual.local.node import Node

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Failing:
    """Its first step fails."""

    def __init__(self, error: Exception, stepped: asyncio.Event) -> None:
        self._errors = [error]
        self._stepped = stepped

    def step(self) -> None:
        if self._errors:
            raise self._errors.pop()
        self._stepped.set()


@pytest.mark.parametrize(
    ("error", "event"),
    [(Unavailable("no disk"), "store_unavailable"), (KeyError("x"), "step_failed")],
)
def test_a_step_that_fails_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, event: str
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.0)
    logged: list[str] = []

    async def play() -> None:
        stepped = asyncio.Event()
        node = cast(Node, Failing(error, stepped))
        loop = Loop(node, lambda: NOON, lambda name, **_: logged.append(name))
        loop.start()
        await asyncio.wait_for(stepped.wait(), 10)
        loop.stop()

    asyncio.run(play())
    assert logged == [event]


def test_requests_of_one_turn_are_answered_each_with_its_own() -> None:
    class Echo:
        def perform(self, requests: list[Any]) -> list[Any]:
            return [ValueError("no") if request() is None else request() for request in requests]

        def next_at(self) -> None:
            return None

    async def play() -> list[Any]:
        loop = Loop(cast(Node, Echo()), lambda: NOON, lambda *_, **__: None)
        turns = (loop.turn(lambda: 1), loop.turn(lambda: None), loop.turn(lambda: 3))
        return list(await asyncio.gather(*turns, return_exceptions=True))

    first, second, third = asyncio.run(play())
    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)
