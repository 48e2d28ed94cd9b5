"""The stop of a node: how long it waits for its runs, and its messages."""

import asyncio
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.node.main import Options, StartRefused
from punctual.node.stopping import Countdown, Stop, shut_down


class Node:
    """A node that is idle after `checks` checks. `closed_at` is the check that stopped its runs."""

    def __init__(self, checks: int) -> None:
        self.checks = checks
        self.done_checks = 0
        self.closed_at: int | None = None

    @property
    def is_idle(self) -> bool:
        return self.done_checks >= self.checks or self.closed_at is not None

    def wake(self) -> None:
        self.done_checks += 1

    def drain(self) -> None: ...

    def close(self) -> None:
        self.closed_at = self.done_checks


class RecordingLog:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))


def stop_node(
    node: Node, stop: Stop, seconds: float, names: Sequence[str] = ("a",)
) -> RecordingLog:
    """Stop a node on a clock that advances a second with each check."""
    log = RecordingLog()
    clock = iter(range(10_000))
    countdown = Countdown(None, log)

    async def run() -> None:
        patch = pytest.MonkeyPatch()
        with patch.context() as patched:
            patched.setattr("punctual.node.stopping.IDLE_CHECK_SECONDS", 0)
            await shut_down(
                node, lambda: names, node.wake, stop, seconds, countdown, lambda: next(clock)
            )

    asyncio.run(run())
    return log


def test_run_that_ends_in_time_is_not_stopped() -> None:
    node = Node(checks=5)
    log = stop_node(node, Stop(), 30)
    assert node.closed_at == 5
    assert [event for event, _ in log.lines] == ["stopping"]


def test_run_over_the_stop_time_is_stopped() -> None:
    node = Node(checks=1_000)
    stop_node(node, Stop(), 30)
    assert node.closed_at is not None
    assert 10 < node.closed_at <= 30


def test_second_signal_or_an_error_stops_at_once() -> None:
    twice, failed = Stop(), Stop()
    twice.request()
    assert not twice.forced.is_set()
    twice.request()
    failed.fail(Unavailable("gone"))
    for stop in (twice, failed):
        node = Node(checks=1_000)
        assert stop_node(node, stop, 30).lines == []
        assert node.closed_at == 0


def test_terminal_shows_one_line_that_counts_down() -> None:
    screen, log = StringIO(), RecordingLog()
    countdown = Countdown(screen, log)
    countdown.show(["a", "b", "c\x1b", "d"], 29.6)
    countdown.show(["a"], 2.2)
    countdown.end()
    first, second = screen.getvalue().split("\r\x1b[K")[1:]
    assert first == "Waiting for 4 runs to end (a, b, c? and 1 more): 30 s left. " + FORCE_HINT
    assert second == f"Waiting for 1 run to end (a): 2 s left. {FORCE_HINT}\n"
    assert log.lines == []


FORCE_HINT = "Ctrl-C again stops now."


def test_log_reports_the_stop_once() -> None:
    log = RecordingLog()
    countdown = Countdown(None, log)
    countdown.show(["a", "b"], 29.6)
    countdown.show(["a"], 28.6)
    assert log.lines == [("stopping", {"running": 2, "jobs": "a, b", "seconds": 30})]


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "86401"])
def test_invalid_stop_seconds_are_refused(text: str) -> None:
    with pytest.raises(StartRefused, match="PUNCTUAL_STOP_SECONDS must be 0 to 86400"):
        Options.from_env({"PUNCTUAL_STOP_SECONDS": text})


def test_stop_seconds_default_to_30() -> None:
    assert Options.from_env({}).stop_seconds == 30
    assert Options.from_env({"PUNCTUAL_STOP_SECONDS": "0"}).stop_seconds == 0
