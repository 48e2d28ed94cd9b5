"""The whole node. Each test steps it on a clock that stands still."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import NotFound
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.queries.slices import finish
from punctual.tasks.contract import Outcome
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[World]:
    with a_world(tmp_path, clock) as world:
        yield world


def test_immediate_event_runs_with_the_next_step(world: World) -> None:
    job = world.submit(payload={"x": 1})
    world.node.step()
    (view,) = world.runs(job)
    assert (view.run.status, view.run.lateness) == (RunStatus.SUCCESS, timedelta(0))
    assert world.do(lambda: world.node.search.job(T, job)).state.status is JobStatus.COMPLETED
    assert world.do(lambda: world.node.search.output(T, job, view.run.run_id)).data


def test_cron_job_runs_each_minute_on_its_second(world: World) -> None:
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *")
    world.until(3_600)
    views = world.runs(job)
    assert [view.run.scheduled_at for view in reversed(views)] == [
        NOON + timedelta(minutes=n) for n in range(1, 61)
    ]
    assert {view.run.lateness for view in views} == {timedelta(0)}


def test_task_in_a_thread_stores_output_and_log(world: World) -> None:
    job = world.submit(task={"type": "script"})
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    (running,) = world.runs(job)
    assert running.run.status is RunStatus.RUNNING
    run_id = running.run.run_id
    assert world.do(lambda: world.node.search.logs(T, job, run_id, 0).data) == b"begun\n"
    world.gate.open.set()
    world.settle()
    assert world.statuses(job) == ["SUCCESS"]
    assert world.do(lambda: world.node.search.output(T, job, run_id)).data == b"done"
    assert world.do(lambda: world.node.search.logs(T, job, run_id, 3).data) == b"un\n"


def test_output_is_a_file_named_by_its_attempt(world: World) -> None:
    world.gate.open.set()
    job = world.submit(task={"type": "script"})
    world.node.step()
    world.settle()
    (view,) = world.runs(job)
    path = world.folder / "blobs" / "outputs" / T / job / view.run.run_id / "1"
    assert path.read_bytes() == b"done"


def test_job_with_discarded_output_stores_no_file_and_shows_live_log(
    world: World,
) -> None:
    job = world.submit(task={"type": "script"}, output="discard")
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    (running,) = world.runs(job)
    run_id = running.run.run_id
    assert world.do(lambda: world.node.search.logs(T, job, run_id, 0).data) == b"begun\n"
    world.gate.open.set()
    world.settle()
    (view,) = world.runs(job)
    assert (view.run.status, view.detail.discarded) == (RunStatus.SUCCESS, True)
    assert [path for path in (world.folder / "blobs").rglob("*") if path.is_file()] == []
    with pytest.raises(NotFound, match="no output: its job discards"):
        world.do(lambda: world.node.search.output(T, job, run_id))
    with pytest.raises(NotFound, match="no logs: its job discards"):
        world.do(lambda: world.node.search.logs(T, job, run_id, 0))


def test_discarded_output_includes_the_event_id(world: World) -> None:
    job = world.submit(output="discard")
    world.node.step()
    (view,) = world.runs(job)
    assert (view.run.status, view.run.inline_output, view.detail.output) == (
        RunStatus.SUCCESS,
        "",
        None,
    )
    assert view.detail.discarded


def test_failed_task_retries_after_its_delay_until_max_retries(world: World) -> None:
    world.gate.open.set()
    job = world.submit(task={"type": "script"}, payload="fail", max_retries=2)
    world.node.step()
    for attempt in (1, 2):
        world.settle()
        (view,) = world.runs(job)
        assert (view.run.status, view.run.attempt) == (RunStatus.WAITING, attempt + 1)
        assert view.run.next_at is not None
        world.clock.set(view.run.next_at)
        world.node.step()
    world.settle()
    (view,) = world.runs(job)
    assert (view.run.status, view.detail.error) == (RunStatus.FAILED, "no luck")
    full = world.do(lambda: world.node.search.run(T, job, view.run.run_id))
    assert [row.status for row in full.attempts] == ["FAILED", "FAILED"]
    assert world.gate.attempts == [1, 2, 3]


def test_error_output_of_a_script_stays_out_of_the_log(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "Exit code 3\npassword: hush"
    monkeypatch.setattr(world.gate, "run", lambda *_: Outcome.failed(error))
    job = world.submit(task={"type": "script"}, max_retries=1)
    world.node.step()
    world.settle()
    clock.advance(timedelta(minutes=5))
    world.node.step()
    world.settle()
    (view,) = world.runs(job)
    assert (view.run.status, view.detail.error) == (RunStatus.FAILED, error)
    errors = [facts["error"] for event, facts in world.lines if "error" in facts]
    assert errors == ["Exit code 3"] * 2
    assert "hush" not in str(world.lines)


def test_cancelled_job_stops_its_runs(world: World) -> None:
    job = world.submit(task={"type": "script"})
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    assert world.do(lambda: world.node.jobs.cancel(T, job)).state.status is JobStatus.CANCELLED
    world.settle()
    assert world.statuses(job) == ["CANCELLED"]


def test_restarted_node_ends_claims_of_the_crashed_node(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as first:
        job = first.submit(task={"type": "script"})
        first.node.step()
        assert first.gate.begun.acquire(timeout=10)
    clock.advance(timedelta(seconds=2))
    with a_world(tmp_path, clock) as second:
        second.gate.open.set()
        second.node.step()
        second.settle()
        (view,) = second.runs(job)
        assert (view.run.status, view.run.past_attempts) == (RunStatus.SUCCESS, "L")
        assert second.gate.attempts == [2]


def test_restarted_node_takes_over_buckets_of_the_crashed_node(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    at = (NOON + timedelta(seconds=30)).isoformat()
    with a_world(tmp_path, clock) as first:
        job = first.submit(schedule_type="FUTURE", schedule_time=at)
    clock.advance(timedelta(seconds=10))
    with a_world(tmp_path, clock) as second:
        second.until(31)
        (view,) = second.runs(job)
        assert (view.run.status, view.run.lateness) == (RunStatus.SUCCESS, timedelta(0))


def test_long_run_keeps_its_claim_by_heartbeats(world: World) -> None:
    job = world.submit(task={"type": "script"})
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    world.until(120)
    (view,) = world.runs(job)
    assert (view.run.status, view.run.past_attempts) == (RunStatus.RUNNING, "")
    world.gate.open.set()
    world.settle()
    assert world.statuses(job) == ["SUCCESS"]


def test_missed_occurrences_after_an_outage_coalesce_into_the_latest(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as first:
        job = first.submit(schedule_type="CRON", cron_expression="* * * * *")
        first.until(60)
    clock.set(NOON + timedelta(days=7, seconds=30))
    with a_world(tmp_path, clock) as second:
        for _ in range(200):
            second.node.step()
            clock.advance(timedelta(seconds=1))
        views = second.runs(job)
        coalesced = [view.run for view in views if view.run.reason == "COALESCED"]
        # One ran before the outage. The latest missed one and those after it run too.
        assert [run.occurrence_count for run in coalesced] == [7 * 1_440 - 3]
        ran = [view.run for view in views if view.run.status is RunStatus.SUCCESS]
        assert len(ran) + coalesced[0].occurrence_count == (clock.now - NOON) // timedelta(
            minutes=1
        )


def test_resumed_job_skips_occurrences_missed_while_paused(world: World) -> None:
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *", misfire_policy="SKIP")
    world.until(60)
    world.do(lambda: world.node.jobs.pause(T, job))
    world.until(300)
    assert world.statuses(job) == ["SUCCESS"]
    world.do(lambda: world.node.jobs.resume(T, job))
    world.until(360)
    views = world.runs(job)
    assert [(v.run.status.value, v.run.reason.value, v.run.occurrence_count) for v in views] == [
        ("SUCCESS", "", 1),
        ("SKIPPED", "PAUSED", 4),
        ("SUCCESS", "", 1),
    ]


def test_wait_queue_time_does_not_count_as_lateness(world: World) -> None:
    job_id = world.submit(
        schedule_type="INTERVAL", interval_seconds=10, misfire_grace_seconds=60, max_runs=2,
        task={"type": "script", "runtime": "bash", "code": "true"},
    )  # fmt: skip
    world.until(10)
    assert world.gate.begun.acquire(timeout=10)
    world.until(50)
    world.gate.open.set()
    world.settle()
    assert world.gate.begun.acquire(timeout=10)
    world.settle()
    begun = [view.run for view in world.runs(job_id) if view.run.has_begun]
    assert [run.lateness for run in begun] == [timedelta(seconds=30), timedelta(0)]
    assert [run.wait_queue_time for run in begun] == [timedelta(seconds=30), timedelta(0)]
    health = world.do(lambda: world.node.search.health())
    assert (health.status, health.lateness_ms_p99) == ("ok", 0)
    assert world.do(lambda: world.node.search.stats(T)).lateness_ms["max"] == 0


def test_run_fired_ahead_is_not_listed_before_its_due_time(world: World) -> None:
    world.gate.open.set()
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *", task={"type": "script"})
    world.until(60)
    world.settle()
    world.until(119)
    assert world.statuses(job) == ["SUCCESS"]
    view = world.do(lambda: world.node.search.job(T, job))
    assert [run.due_at for run in view.state.runs] == [NOON + timedelta(minutes=2)]
    assert view.latest_run.run.scheduled_at == NOON + timedelta(minutes=1)
    at = NOON + timedelta(minutes=2)
    explained = world.do(lambda: finish(world.node.search.explain(T, job, at)))
    assert (explained.outcome, explained.run_id) == ("PLANNED", None)
    world.do(lambda: world.node.jobs.pause(T, job))
    assert world.statuses(job) == ["SUCCESS"]


def test_closed_node_returns_claims_of_its_runs(tmp_path: Path, clock: ManualClock) -> None:
    with a_world(tmp_path, clock) as world:
        job = world.submit(task={"type": "script"})
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
        world.node.close()
        world.settle()
        assert world.node.is_idle
        (view,) = world.runs(job)
        assert (view.run.status, view.run.past_attempts) == (RunStatus.QUEUED, "L")


def test_idle_node_checkpoints_the_write_ahead_log(world: World, tmp_path: Path) -> None:
    far = {"name": "far", "schedule_type": "FUTURE", "schedule_time": "2026-11-19T12:00:00Z"}
    file = tmp_path / "punctual.db"
    world.do(lambda: world.node.jobs.submit(T, "me", [Submission(dict(far)) for _ in range(2_000)]))
    before = file.stat().st_size
    world.node.step()
    assert before < 1_000_000 < file.stat().st_size
