"""What the node counts of runs, one by one and a batch at a time."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from punctual.domain.run import Run, Status
from punctual.engine.clocks import Reading
from punctual.local.monitor import NodeMonitor

AT = datetime(2026, 11, 18, 12, 0, 59, tzinfo=UTC)


class NothingStored:
    def count_jobs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_runs(self, _tenant: str) -> Mapping[str, int]:
        return {}

    def count_queued(self, _tenant: str) -> int:
        return 0

    def oldest_queued(self, _tenant: str) -> datetime | None:
        return None


class NoTasks:
    types: tuple[str, ...] = ()


def a_monitor() -> NodeMonitor:
    return NodeMonitor(NothingStored(), (), NoTasks(), "local", lambda: 0.0, AT)


def a_run(late: float, status: Status = Status.SUCCESS) -> Run:
    due, at = AT, AT + timedelta(seconds=late)
    run = Run("r", status, 1, due, due, due, at)
    return replace(run, started_at=at, attempt_at=at, ended_at=at)


def test_a_batch_counts_as_its_runs_one_by_one() -> None:
    again = replace(a_run(3), started_at=AT)
    to_be_tried_again = replace(a_run(0.2, Status.QUEUED), ended_at=None)
    given_back = replace(a_run(0.3, Status.QUEUED), attempt_at=None, ended_at=None)
    cancelled = a_run(0.4, Status.CANCELLED)
    runs = [a_run(0.1), a_run(0.1), a_run(2, Status.FAILED), a_run(1.5, Status.TIMED_OUT)]
    runs += [again, to_be_tried_again, given_back, cancelled]

    together, singly = a_monitor(), a_monitor()
    together.performed(runs)
    for run in runs:
        singly.started(run)
        singly.ended(run)

    now = AT + timedelta(minutes=1)
    assert together.stats("t", now) == singly.stats("t", now)
    assert [sum(one.values()) for one in _counts(together, now)] == [4 + 2, 3 + 3]


def _counts(monitor: NodeMonitor, now: datetime) -> list[dict[str, int]]:
    found = monitor.stats("t", now).last_hour
    return [{name: n for name, n in one.items() if name != "minute"} for one in found]


def test_lateness_is_worked_out_anew_after_a_moment_and_not_for_each_who_asks() -> None:
    monitor = a_monitor()
    monitor.performed([a_run(0.001)])
    now = AT + timedelta(seconds=1)
    assert monitor.stats("t", now).lateness_ms["max"] == 1
    monitor.performed([a_run(0.5)])
    assert monitor.stats("t", now + timedelta(milliseconds=199)).lateness_ms["max"] == 1
    assert monitor.stats("t", now + timedelta(milliseconds=200)).lateness_ms["max"] == 500
    monitor.performed([a_run(0.7)])
    assert monitor.stats("t", now).lateness_ms["max"] == 700  # the clock was set back


def test_lateness_counts_from_when_its_own_job_let_a_run_in() -> None:
    let_in = replace(a_run(30), let_in_at=AT + timedelta(seconds=29))
    made_late = replace(let_in, created_at=AT + timedelta(seconds=20))  # by us: that counts
    assert (let_in.in_line, made_late.in_line) == (timedelta(seconds=29), timedelta(seconds=9))
    for run, late in ((let_in, 1_000), (made_late, 21_000)):
        together, singly = a_monitor(), a_monitor()
        together.performed([run])
        singly.started(run)
        for monitor in (together, singly):
            assert monitor.stats("t", AT).lateness_ms["max"] == late


def test_lateness_of_the_hour_and_of_health_are_kept_apart() -> None:
    monitor = a_monitor()
    monitor.performed([a_run(0.5)])
    later = AT + timedelta(minutes=30)
    monitor.planned(Reading(later, 0.0), later)
    assert monitor.stats("t", later).lateness_ms["max"] == 500
    assert monitor.health(later).lateness_ms_p99 is None
