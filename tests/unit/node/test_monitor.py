"""The statistics that the node counts of runs, one by one and in batches."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.run import Run, RunStatus
from punctual.engine.clock import ClockReading
from punctual.engine.ports.monitor import STATISTICS_PERIOD
from punctual.node.monitor import Minute, NodeMonitor

AT = datetime(2026, 11, 18, 12, 0, 59, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class EmptyStore:
    def count_jobs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_runs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_queued(self, _tenant: str) -> int:
        return 0

    def oldest_queued(self, _tenant: str) -> datetime | None:
        return None


class StatisticsRows:
    """Statistics rows, as the store keeps them."""

    def __init__(self) -> None:
        self.rows: dict[datetime, Minute] = {}

    def load_since(self, first: datetime) -> dict[datetime, Minute]:
        return {at: minute for at, minute in self.rows.items() if at >= first}

    def save(self, counted: Mapping[datetime, Minute], first: datetime) -> None:
        self.rows.update(deepcopy(dict(counted)))
        self.rows = {at: minute for at, minute in self.rows.items() if at >= first}


class NoTasks:
    types: tuple[str, ...] = ()


def a_monitor() -> NodeMonitor:
    return NodeMonitor(EmptyStore(), StatisticsRows(), (), NoTasks(), "local", lambda: 0.0, AT)


def a_run(late_seconds: float, status: RunStatus = RunStatus.SUCCESS) -> Run:
    due, at = AT, AT + timedelta(seconds=late_seconds)
    run = Run("r", status, 1, due, due, due, at)
    return replace(run, started_at=at, attempt_at=at, ended_at=at)


def count_runs(monitor: NodeMonitor, runs: list[Run]) -> None:
    monitor.count_started(runs)
    monitor.count_ended(runs)


def test_batch_counts_as_its_runs_one_by_one() -> None:
    second_attempt = replace(a_run(3), started_at=AT)
    to_be_retried = replace(a_run(0.2, RunStatus.QUEUED), ended_at=None)
    returned = replace(a_run(0.3, RunStatus.QUEUED), attempt_at=None, ended_at=None)
    cancelled = a_run(0.4, RunStatus.CANCELLED)
    runs = [a_run(0.1), a_run(0.1), a_run(2, RunStatus.FAILED), a_run(1.5, RunStatus.TIMED_OUT)]
    runs += [second_attempt, to_be_retried, returned, cancelled]

    batched, singly = a_monitor(), a_monitor()
    batched.count_started(runs)
    batched.count_ended(runs)
    for run in runs:
        singly.count_started([run])
        singly.count_ended([run])

    now = AT + timedelta(minutes=1)
    assert batched.stats("t", now) == singly.stats("t", now)
    assert [sum(minute.values()) for minute in counts_by_minute(batched, now)] == [4 + 2, 3 + 3]


def counts_by_minute(monitor: NodeMonitor, now: datetime) -> list[dict[str, int]]:
    minutes = monitor.stats("t", now).last_hour
    others = ("minute", "lateness_ms")
    return [
        {name: count for name, count in minute.items() if name not in others} for minute in minutes
    ]


def test_lateness_counts_from_the_admission_of_a_run() -> None:
    admitted = replace(a_run(30), admitted_at=AT + timedelta(seconds=29))
    created_late = replace(
        admitted, created_at=AT + timedelta(seconds=20)
    )  # created late by the node, so it counts
    assert (admitted.wait_queue_time, created_late.wait_queue_time) == (
        timedelta(seconds=29),
        timedelta(seconds=9),
    )
    for run, lateness_ms in ((admitted, 1_000), (created_late, 21_000)):
        batched, singly = a_monitor(), a_monitor()
        batched.count_started([run])
        batched.count_ended([run])
        singly.count_started([run])
        for monitor in (batched, singly):
            assert monitor.stats("t", AT + MINUTE).lateness_ms["max"] == lateness_ms


def test_lateness_of_the_hour_and_of_health_are_separate() -> None:
    monitor = a_monitor()
    count_runs(monitor, [a_run(0.5)])
    later = AT + timedelta(minutes=30)
    monitor.note_plan(ClockReading(later, 0.0), later)
    assert monitor.stats("t", later).lateness_ms["max"] == 500
    assert monitor.health(later).lateness_ms_p99 is None


def test_lateness_is_right_to_five_percent_and_its_maximum_exact() -> None:
    monitor = a_monitor()
    count_runs(monitor, [a_run(number / 1_000) for number in range(1, 1_001)])
    lateness = monitor.stats("t", AT + MINUTE).lateness_ms
    assert lateness["p50"] == pytest.approx(500, rel=0.05)
    assert lateness["p99"] == pytest.approx(990, rel=0.05)
    assert lateness["max"] == 1_000


def test_each_minute_has_the_lateness_of_its_own_runs() -> None:
    monitor = a_monitor()
    count_runs(monitor, [a_run(0.5), a_run(0.5)])
    count_runs(monitor, [a_run(4)])  # it starts in the next minute
    second_attempt = replace(a_run(9), started_at=AT)
    count_runs(monitor, [second_attempt])  # another attempt is not late
    first, second = monitor.stats("t", AT + MINUTE).last_hour
    assert first["lateness_ms"]["max"] == 500
    assert first["lateness_ms"]["p50"] == pytest.approx(500, rel=0.05)
    assert second["lateness_ms"]["max"] == 4_000


def test_minute_without_a_started_run_has_no_lateness() -> None:
    monitor = a_monitor()
    monitor.count_ended([a_run(0)])
    (minute,) = monitor.stats("t", AT + MINUTE).last_hour
    assert minute["lateness_ms"] == {"p50": None, "p99": None, "max": None}


def test_run_on_time_has_a_lateness_of_zero() -> None:
    monitor = a_monitor()
    count_runs(monitor, [a_run(0)])
    assert monitor.stats("t", AT).lateness_ms == {"p50": 0, "p99": 0, "max": 0}


def with_plan(monitor: NodeMonitor, now: datetime) -> NodeMonitor:
    monitor.note_plan(ClockReading(now, 0.0), now)
    return monitor


def test_run_due_before_the_start_does_not_make_the_node_late() -> None:
    monitor = with_plan(a_monitor(), AT)
    due_before = replace(a_run(600), due_at=AT - timedelta(minutes=5))
    monitor.count_started([replace(due_before, created_at=AT - timedelta(minutes=5))])
    now = AT + timedelta(minutes=10)
    assert monitor.health(now).status == "ok"
    assert monitor.stats("t", now).lateness_ms["max"] == 900_000, "it was late all the same"

    count_runs(monitor, [a_run(590)])
    assert monitor.health(now).status == "late", "this became due here"


def test_run_due_before_a_clock_change_does_not_make_the_node_late() -> None:
    monitor = with_plan(a_monitor(), AT)
    monitor.on_clock_set(AT + timedelta(minutes=10))
    count_runs(monitor, [a_run(600)])
    assert monitor.health(AT + timedelta(minutes=10)).status == "ok"


def test_closing_node_is_down() -> None:
    monitor = with_plan(a_monitor(), AT)
    assert monitor.health(AT).status == "ok"
    monitor.close()
    assert monitor.health(AT).status == "down"


def test_node_without_a_plan_for_a_minute_is_down_by_its_steady_clock() -> None:
    steady = [0.0]
    monitor = NodeMonitor(
        EmptyStore(), StatisticsRows(), (), NoTasks(), "local", lambda: steady[0], AT
    )
    with_plan(monitor, AT)
    assert monitor.health(AT + timedelta(hours=2)).status == "ok"
    steady[0] = 61
    assert monitor.health(AT).status == "down"


def test_last_hour_survives_a_restart() -> None:
    rows = StatisticsRows()
    monitor = NodeMonitor(EmptyStore(), rows, (), NoTasks(), "local", lambda: 0.0, AT)
    count_runs(monitor, [a_run(0.5), a_run(2, RunStatus.FAILED)])
    monitor.write(ClockReading(AT, 5.0))
    count_runs(monitor, [a_run(0.25)])
    monitor.write(ClockReading(AT, 5.5))  # too soon after the last
    now = AT + MINUTE
    before = monitor.stats("t", now)
    monitor.write(ClockReading(AT, 6.1))

    restarted = NodeMonitor(EmptyStore(), rows, (), NoTasks(), "local", lambda: 0.0, now)
    assert restarted.stats("t", now).last_hour == before.last_hour
    assert restarted.stats("t", now).lateness_ms == before.lateness_ms
    later = NodeMonitor(
        EmptyStore(), rows, (), NoTasks(), "local", lambda: 0.0, now + STATISTICS_PERIOD
    )
    assert later.stats("t", now + STATISTICS_PERIOD).last_hour == []


def test_rolled_back_statistics_are_written_again() -> None:
    rows = StatisticsRows()
    monitor = NodeMonitor(EmptyStore(), rows, (), NoTasks(), "local", lambda: 0.0, AT)
    count_runs(monitor, [a_run(0.5)])
    monitor.write(ClockReading(AT, 5.0))
    rows.rows.clear()
    monitor.on_rollback()
    monitor.write(ClockReading(AT, 6.1))
    assert [minute.succeeded for minute in rows.rows.values()] == [1]
