"""The event loop that runs the node's steps."""

import asyncio
from typing import Any, cast

import pytest

from punctual.domain.errors import Unavailable
from punctual.node import event_loop
from punctual.node.event_loop import EventLoop
from punctual.node.node import Node


class FailingNode:
    """A node with a first step that fails."""

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
def test_failed_step_is_logged_and_retried(
    monkeypatch: pytest.MonkeyPatch, error: Exception, event: str
) -> None:
    monkeypatch.setattr(event_loop, "STEP_RETRY_SECONDS", 0.0)
    logged: list[str] = []

    async def scenario() -> None:
        stepped = asyncio.Event()
        node = cast(Node, FailingNode(error, stepped))
        loop = EventLoop(node, lambda: 0.0, lambda name, **_: logged.append(name))
        loop.start()
        await asyncio.wait_for(stepped.wait(), 10)
        loop.stop()

    asyncio.run(scenario())
    assert logged == [event]


def test_requests_of_one_turn_get_their_own_answers() -> None:
    class EchoNode:
        def perform(self, requests: list[Any]) -> list[Any]:
            return [ValueError("no") if request() is None else request() for request in requests]

        def next_step_steady(self) -> float:
            return 3_600.0

    async def scenario() -> list[Any]:
        loop = EventLoop(cast(Node, EchoNode()), lambda: 0.0, lambda *_, **__: None)
        turns = (loop.turn(lambda: 1), loop.turn(lambda: None), loop.turn(lambda: 3))
        return list(await asyncio.gather(*turns, return_exceptions=True))

    first, second, third = asyncio.run(scenario())
    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)
