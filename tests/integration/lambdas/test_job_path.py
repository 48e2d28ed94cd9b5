"""The path of a job through the functions: submitted, fired, sent, claimed, finished, recorded."""

from collections import Counter
from collections.abc import Iterator

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.queries.slices import finish
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch
from tests.support.deployed.world import MINUTE, SECOND

WRITES = ("PutItem", "UpdateItem", "BatchWriteItem")


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as driver:
        yield driver


def test_job_runs_at_its_second_and_is_recorded(deployed: Dispatch) -> None:
    deployed.planner.tick()
    key = deployed.submit(
        schedule_type="FUTURE", schedule_time=after(90).isoformat(), payload={"a": 1}
    )
    deployed.run(after(60))
    assert deployed.sent == []
    deployed.run(after(89.9))
    views = finish(deployed.search.runs(*key, RunFilters(), 10, None)).items
    assert views == []
    deployed.run(after(91))
    assert len(deployed.sent) == 1
    assert deployed.search.job(*key).state.status is JobStatus.COMPLETED
    (view,) = finish(deployed.search.runs(*key, RunFilters(), 10, None)).items
    assert view.run.status is RunStatus.SUCCESS
    assert view.run.scheduled_at == after(90)
    assert view.run.started_at == after(90)
    assert deployed.aws.rows("timers") == []


def test_recurring_run_writes_six_rows(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="INTERVAL", interval_seconds=60)
    deployed.run(NOON + MINUTE / 2)
    written_by_minute: list[dict[str, int]] = []
    for minute in range(1, 4):
        before = Counter(deployed.aws.written)
        deployed.run(NOON + minute * MINUTE + MINUTE / 2)
        written = dict(deployed.aws.written - before)
        written.pop(keys.CONTROL_TABLE.name)  # leases and lists are shared by many runs
        written_by_minute.append(written)
    # Fired, claimed, finished; the next timer put and this one deleted; the row of history.
    assert written_by_minute == [{"jobs": 3, "timers": 2, "runs": 1}] * 3
    views = finish(deployed.search.runs(*key, RunFilters(), 10, None)).items
    assert [view.run.status for view in views] == [RunStatus.SUCCESS] * 3


def test_submission_is_four_writes_and_no_message(deployed: Dispatch) -> None:
    deployed.planner.tick()
    spent = deployed.spend(
        lambda: deployed.submit(schedule_type="CRON", cron_expression="0 0 * * *", payload={"a": 1})
    )
    assert {name: spent.get(name, 0) for name in WRITES} == {
        "PutItem": 2,  # the job state, and the row of the name
        "BatchWriteItem": 2,
        "UpdateItem": 0,
    }
    assert "SendMessageBatch" not in spent


def test_cancelled_job_leaves_no_run_and_no_timer(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="IMMEDIATE")
    cancelled = deployed.jobs.cancel(*key)
    assert cancelled.state.status is JobStatus.CANCELLED
    deployed.collect()
    assert len(deployed.queued) == 1
    assert not deployed.runtime.executor.claim(deployed.queued).claimed
    deployed.run(NOON + SECOND)
    assert deployed.aws.rows("timers") == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_paused_job_resumes_at_its_time(deployed: Dispatch, is_restarted: bool) -> None:
    deployed.planner.tick()
    key = deployed.submit(schedule_type="CRON", cron_expression="* * * * *", misfire_policy="SKIP")
    deployed.run(after(70))
    deployed.jobs.pause(*key, until=after(300), note="a move")
    if is_restarted:
        deployed.restart()
    deployed.run(after(290))
    assert deployed.job_state(key).status is JobStatus.PAUSED
    deployed.run(after(305))
    state = deployed.job_state(key)
    assert (state.status, state.pause) == (JobStatus.SCHEDULED, None)
    views = finish(deployed.search.runs(*key, RunFilters(), 10, None)).items
    assert [(v.run.status.value, v.run.reason.value, v.run.occurrence_count) for v in views] == [
        ("SUCCESS", "", 1),
        ("SKIPPED", "PAUSED", 3),
        ("SUCCESS", "", 1),
    ]
