"""What the node counts of runs, one by one and a batch at a time."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.run import Run, RunStatus
from punctual.engine.clock import ClockReading
from punctual.node.minutes import Minute
from punctual.node.monitor import STATISTICS_PERIOD, NodeMonitor

AT = datetime(2026, 11, 18, 12, 0, 59, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class NothingStored:
    def count_jobs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_runs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_queued(self, _tenant: str) -> int:
        return 0

    def oldest_queued(self, _tenant: str) -> datetime | None:
        return None


class Keeps:
    """What was put, as the store keeps it."""

    def __init__(self) -> None:
        self.rows: dict[datetime, Minute] = {}

    def load_since(self, first: datetime) -> dict[datetime, Minute]:
        return {at: one for at, one in self.rows.items() if at >= first}

    def save(self, counted: Mapping[datetime, Minute], first: datetime) -> None:
        self.rows.update(deepcopy(dict(counted)))
        self.rows = {at: one for at, one in self.rows.items() if at >= first}


class NoTasks:
    types: tuple[str, ...] = ()


def a_monitor() -> NodeMonitor:
    return NodeMonitor(NothingStored(), Keeps(), (), NoTasks(), "local", lambda: 0.0, AT)


def a_run(late: float, status: RunStatus = RunStatus.SUCCESS) -> Run:
    due, at = AT, AT + timedelta(seconds=late)
    run = Run("r", status, 1, due, due, due, at)
    return replace(run, started_at=at, attempt_at=at, ended_at=at)


def begin_and_end(monitor: NodeMonitor, runs: list[Run]) -> None:
    monitor.count_started(runs)
    monitor.count_ended(runs)


def test_a_batch_counts_as_its_runs_one_by_one() -> None:
    again = replace(a_run(3), started_at=AT)
    to_be_tried_again = replace(a_run(0.2, RunStatus.QUEUED), ended_at=None)
    given_back = replace(a_run(0.3, RunStatus.QUEUED), attempt_at=None, ended_at=None)
    cancelled = a_run(0.4, RunStatus.CANCELLED)
    runs = [a_run(0.1), a_run(0.1), a_run(2, RunStatus.FAILED), a_run(1.5, RunStatus.TIMED_OUT)]
    runs += [again, to_be_tried_again, given_back, cancelled]

    together, singly = a_monitor(), a_monitor()
    together.count_started(runs)
    together.count_ended(runs)
    for run in runs:
        singly.count_started([run])
        singly.count_ended([run])

    now = AT + timedelta(minutes=1)
    assert together.stats("t", now) == singly.stats("t", now)
    assert [sum(one.values()) for one in _counts(together, now)] == [4 + 2, 3 + 3]


def _counts(monitor: NodeMonitor, now: datetime) -> list[dict[str, int]]:
    found = monitor.stats("t", now).last_hour
    others = ("minute", "lateness_ms")
    return [{name: n for name, n in one.items() if name not in others} for one in found]


def test_lateness_counts_from_when_its_own_job_let_a_run_in() -> None:
    let_in = replace(a_run(30), admitted_at=AT + timedelta(seconds=29))
    made_late = replace(let_in, created_at=AT + timedelta(seconds=20))  # by us: that counts
    assert (let_in.wait_queue_time, made_late.wait_queue_time) == (
        timedelta(seconds=29),
        timedelta(seconds=9),
    )
    for run, late in ((let_in, 1_000), (made_late, 21_000)):
        together, singly = a_monitor(), a_monitor()
        together.count_started([run])
        together.count_ended([run])
        singly.count_started([run])
        for monitor in (together, singly):
            assert monitor.stats("t", AT + MINUTE).lateness_ms["max"] == late


def test_lateness_of_the_hour_and_of_health_are_kept_apart() -> None:
    monitor = a_monitor()
    begin_and_end(monitor, [a_run(0.5)])
    later = AT + timedelta(minutes=30)
    monitor.note_plan(ClockReading(later, 0.0), later)
    assert monitor.stats("t", later).lateness_ms["max"] == 500
    assert monitor.health(later).lateness_ms_p99 is None


def test_lateness_is_right_to_five_in_a_hundred_and_its_maximum_exact() -> None:
    monitor = a_monitor()
    begin_and_end(monitor, [a_run(number / 1_000) for number in range(1, 1_001)])
    found = monitor.stats("t", AT + MINUTE).lateness_ms
    assert found["p50"] == pytest.approx(500, rel=0.05)
    assert found["p99"] == pytest.approx(990, rel=0.05)
    assert found["max"] == 1_000


def test_each_minute_has_the_lateness_of_its_own_runs() -> None:
    monitor = a_monitor()
    begin_and_end(monitor, [a_run(0.5), a_run(0.5)])
    begin_and_end(monitor, [a_run(4)])  # it starts in the next minute
    once_more = replace(a_run(9), started_at=AT)
    begin_and_end(monitor, [once_more])  # another attempt is not late
    first, second = monitor.stats("t", AT + MINUTE).last_hour
    assert first["lateness_ms"]["max"] == 500
    assert first["lateness_ms"]["p50"] == pytest.approx(500, rel=0.05)
    assert second["lateness_ms"]["max"] == 4_000


def test_a_minute_in_which_nothing_started_has_no_lateness() -> None:
    monitor = a_monitor()
    monitor.count_ended([a_run(0)])
    (minute,) = monitor.stats("t", AT + MINUTE).last_hour
    assert minute["lateness_ms"] == {"p50": None, "p99": None, "max": None}


def test_what_is_on_time_is_not_late_at_all() -> None:
    monitor = a_monitor()
    begin_and_end(monitor, [a_run(0)])
    assert monitor.stats("t", AT).lateness_ms == {"p50": 0, "p99": 0, "max": 0}


def planned(monitor: NodeMonitor, now: datetime) -> NodeMonitor:
    monitor.note_plan(ClockReading(now, 0.0), now)
    return monitor


def test_what_became_due_before_the_start_makes_the_node_not_late() -> None:
    monitor = planned(a_monitor(), AT)
    before = replace(a_run(600), due_at=AT - timedelta(minutes=5))
    monitor.count_started([replace(before, created_at=AT - timedelta(minutes=5))])
    now = AT + timedelta(minutes=10)
    assert monitor.health(now).status == "ok"
    assert monitor.stats("t", now).lateness_ms["max"] == 900_000, "it was late all the same"

    begin_and_end(monitor, [a_run(590)])
    assert monitor.health(now).status == "late", "this became due here"


def test_what_became_due_before_the_clock_was_set_makes_the_node_not_late() -> None:
    monitor = planned(a_monitor(), AT)
    monitor.on_clock_set(AT + timedelta(minutes=10))
    begin_and_end(monitor, [a_run(600)])
    assert monitor.health(AT + timedelta(minutes=10)).status == "ok"


def test_a_node_that_is_closing_is_down() -> None:
    monitor = planned(a_monitor(), AT)
    assert monitor.health(AT).status == "ok"
    monitor.close()
    assert monitor.health(AT).status == "down"


def test_a_node_that_has_not_planned_for_a_minute_is_down_whatever_the_wall_clock_says() -> None:
    steady = [0.0]
    monitor = NodeMonitor(NothingStored(), Keeps(), (), NoTasks(), "local", lambda: steady[0], AT)
    planned(monitor, AT)
    assert monitor.health(AT + timedelta(hours=2)).status == "ok"
    steady[0] = 61
    assert monitor.health(AT).status == "down"


def test_the_last_hour_outlives_a_restart() -> None:
    kept = Keeps()
    monitor = NodeMonitor(NothingStored(), kept, (), NoTasks(), "local", lambda: 0.0, AT)
    begin_and_end(monitor, [a_run(0.5), a_run(2, RunStatus.FAILED)])
    monitor.write(ClockReading(AT, 5.0))
    begin_and_end(monitor, [a_run(0.25)])
    monitor.write(ClockReading(AT, 5.5))  # too soon after the last
    now = AT + MINUTE
    before = monitor.stats("t", now)
    monitor.write(ClockReading(AT, 6.1))

    again = NodeMonitor(NothingStored(), kept, (), NoTasks(), "local", lambda: 0.0, now)
    assert again.stats("t", now).last_hour == before.last_hour
    assert again.stats("t", now).lateness_ms == before.lateness_ms
    later = NodeMonitor(
        NothingStored(), kept, (), NoTasks(), "local", lambda: 0.0, now + STATISTICS_PERIOD
    )
    assert later.stats("t", now + STATISTICS_PERIOD).last_hour == []


def test_what_an_undone_unit_wrote_is_written_again() -> None:
    kept = Keeps()
    monitor = NodeMonitor(NothingStored(), kept, (), NoTasks(), "local", lambda: 0.0, AT)
    begin_and_end(monitor, [a_run(0.5)])
    monitor.write(ClockReading(AT, 5.0))
    kept.rows.clear()
    monitor.on_rollback()
    monitor.write(ClockReading(AT, 6.1))
    assert [one.succeeded for one in kept.rows.values()] == [1]
