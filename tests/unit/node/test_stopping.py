"""What a node says while it waits for its runs, and how long it waits."""

import asyncio
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.node.main import Options, StartRefused
from punctual.node.stopping import Countdown, Stop, shut_down


class Node:
    """Idle after so many looks; `closed_at` is the look at which its runs were stopped."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.seen = 0
        self.closed_at: int | None = None

    @property
    def is_idle(self) -> bool:
        return self.seen >= self.looks or self.closed_at is not None

    def wake(self) -> None:
        self.seen += 1

    def drain(self) -> None: ...

    def close(self) -> None:
        self.closed_at = self.seen


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **facts: Any) -> None:
        self.lines.append((event, facts))


def waited(node: Node, stop: Stop, seconds: float, names: Sequence[str] = ("a",)) -> Told:
    """Wind a node down on a clock that goes on a second with each look."""
    told = Told()
    clock = iter(range(10_000))
    countdown = Countdown(None, told)

    async def run() -> None:
        patch = pytest.MonkeyPatch()
        with patch.context() as here:
            here.setattr("punctual.node.stopping.IDLE_CHECK_SECONDS", 0)
            await shut_down(
                node, lambda: names, node.wake, stop, seconds, countdown, lambda: next(clock)
            )

    asyncio.run(run())
    return told


def test_what_ends_in_time_is_not_stopped() -> None:
    node = Node(looks=5)
    told = waited(node, Stop(), 30)
    assert node.closed_at == 5
    assert [event for event, _ in told.lines] == ["stopping"]


def test_what_takes_longer_is_stopped() -> None:
    node = Node(looks=1_000)
    waited(node, Stop(), 30)
    assert node.closed_at is not None
    assert 10 < node.closed_at <= 30


def test_a_second_signal_or_an_error_stops_at_once() -> None:
    twice, failed = Stop(), Stop()
    twice.request()
    assert not twice.forced.is_set()
    twice.request()
    failed.fail(Unavailable("gone"))
    for stop in (twice, failed):
        node = Node(looks=1_000)
        assert waited(node, stop, 30).lines == []
        assert node.closed_at == 0


def test_a_terminal_shows_one_line_that_counts_down() -> None:
    screen, told = StringIO(), Told()
    countdown = Countdown(screen, told)
    countdown.show(["a", "b", "c\x1b", "d"], 29.6)
    countdown.show(["a"], 2.2)
    countdown.end()
    first, second = screen.getvalue().split("\r\x1b[K")[1:]
    assert first == "Waiting for 4 runs to end (a, b, c? and 1 more): 30 s left. " + AGAIN
    assert second == f"Waiting for 1 run to end (a): 2 s left. {AGAIN}\n"
    assert told.lines == []


AGAIN = "Ctrl-C again stops now."


def test_a_log_says_it_once() -> None:
    told = Told()
    countdown = Countdown(None, told)
    countdown.show(["a", "b"], 29.6)
    countdown.show(["a"], 28.6)
    assert told.lines == [("stopping", {"running": 2, "jobs": "a, b", "seconds": 30})]


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "86401"])
def test_seconds_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(StartRefused, match="PUNCTUAL_STOP_SECONDS must be 0 to 86400"):
        Options.from_env({"PUNCTUAL_STOP_SECONDS": text})


def test_the_seconds_are_those_that_are_set_else_30() -> None:
    assert Options.from_env({}).stop_seconds == 30
    assert Options.from_env({"PUNCTUAL_STOP_SECONDS": "0"}).stop_seconds == 0
