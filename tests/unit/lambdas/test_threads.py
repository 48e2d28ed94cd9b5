"""Threads beside an invocation's loop."""

import threading

from punctual.lambdas.executor.threads import TaskThreads

PATIENCE = 20.0  # seconds until a test that hangs fails


def never(_seconds: float) -> None:
    raise AssertionError("there is something to wait for")


def test_all_that_is_started_runs_at_the_same_time() -> None:
    together = threading.Barrier(10, timeout=PATIENCE)
    hands, done = TaskThreads(never), []

    def work() -> None:
        together.wait()
        done.append(1)

    for _ in range(10):
        hands.start(work)
    while len(done) < 10:
        hands.wait(PATIENCE)
    assert len(done) == 10


def test_waiting_ends_when_work_ends_though_other_work_goes_on() -> None:
    go, hands = threading.Event(), TaskThreads(never)
    ended: list[str] = []

    def slow() -> None:
        assert go.wait(PATIENCE)
        ended.append("slow")

    hands.start(slow)
    hands.start(lambda: ended.append("fast"))
    hands.wait(PATIENCE)
    assert ended == ["fast"]
    go.set()
    hands.wait(PATIENCE)
    assert ended == ["fast", "slow"]


def test_an_end_that_was_seen_is_not_seen_again() -> None:
    paused: list[float] = []
    hands = TaskThreads(paused.append)
    hands.start(lambda: None)
    hands.wait(PATIENCE)
    hands.wait(1.5)
    assert paused == [1.5]


def test_where_nothing_runs_the_given_pause_is_made() -> None:
    paused: list[float] = []
    TaskThreads(paused.append).wait(0.25)
    assert paused == [0.25]
