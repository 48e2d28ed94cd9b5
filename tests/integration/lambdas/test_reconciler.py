"""The reconciler function: several invocations continue one daily walk."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.control.walk_progress import Progress, WalkProgress
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.dispatch import late_timers, reconciler
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.engine.queries.slices import finish
from punctual.lambdas.status.handler import build_handler
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_faults import lost_answers
from tests.support.aws.stream_records import Stream
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch

DAY = timedelta(days=1)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatch]:
    monkeypatch.setattr(late_timers, "LATE_TIMER_SPAN", timedelta(minutes=20))
    with dispatch() as deployed:
        deployed.planner.tick()
        yield deployed


def job_without_timer(deployed: Dispatch, seconds: float = 7_200) -> JobKey:
    """Submit a job and delete its timer."""
    before = timers(deployed)
    key = deployed.submit(schedule_type="FUTURE", schedule_time=after(seconds).isoformat())
    deployed.aws.ports.timers.delete([timer for timer in timers(deployed) if timer not in before])
    return key


def timers(deployed: Dispatch) -> list[Timer]:
    return deployed.aws.timers()


def walk(deployed: Dispatch, seconds: float = 900) -> None:
    deployed.walk(seconds)


def count_jobs(deployed: Dispatch) -> None:
    """Let the status function count all jobs, so that the walk finds the counts right."""
    assert build_handler(deployed.new_runtime()).handle(Stream(deployed.aws).catch()) == []


def progress(deployed: Dispatch) -> Progress:
    progress = WalkProgress(
        deployed.new_runtime().dynamo, deployed.aws.settings.control_table
    ).read()
    assert progress is not None
    return progress


def test_walk_without_finds_is_logged_as_complete(deployed: Dispatch) -> None:
    deployed.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    count_jobs(deployed)
    walk(deployed)
    assert progress(deployed).is_complete
    assert deployed.telemetry.problem_names == []
    assert deployed.telemetry.latest[Metric.RECONCILER_FINDS] == 0


def test_run_that_lives_longer_than_an_hour_is_listed_again(deployed: Dispatch) -> None:
    """The status function saw nothing of this run, or its entry has expired."""
    key = deployed.submit(schedule_type="IMMEDIATE")

    def listed() -> list[tuple[str, RunStatus]]:
        now = deployed.clock.now
        page = finish(deployed.aws.lists.page("acme", RunFilters(), 10, None, now))
        return [(view.job_id, view.run.status) for view in page.items]

    assert listed() == []
    deployed.clock.set(after(7_200))
    walk(deployed)
    assert listed() == [(key.job_id, RunStatus.QUEUED)]
    assert dict(deployed.telemetry.events)["long_lived_runs_listed"] == {"number": 1}


def test_missing_timer_is_put_again_and_logged(deployed: Dispatch) -> None:
    key = job_without_timer(deployed)
    walk(deployed)
    assert deployed.telemetry.problem_names == ["reconciler_mended"]
    assert deployed.telemetry.latest[Metric.RECONCILER_FINDS] == 1
    ((_, fields),) = [
        event for event in deployed.telemetry.events if event[0] == "reconciler_mended"
    ]
    assert fields == {"number": 1, "jobs": [f"acme/{key.job_id}"]}
    deployed.planner.tick()
    deployed.clock.set(after(7_100))
    deployed.run(after(7_300))
    assert deployed.runs_sent() == [(7_200, key.job_id)]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (keys.STATUS_ATTR, {"S": "UNHEARD_OF"}, "ValidationError"),
        (keys.LAYOUT_ATTR, {"N": str(keys.ROW_LAYOUT + 1)}, "LaterVersion"),
        (keys.TTL, {"S": "soon"}, "KeyError"),
    ],
)
def test_unreadable_job_state_is_logged_and_walk_continues(
    deployed: Dispatch, name: str, value: dict[str, str], why: str
) -> None:
    broken = deployed.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    other = job_without_timer(deployed)
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=keys.state_key(*broken).item(),
        UpdateExpression="SET #name = :value",
        ConditionExpression="attribute_exists(#state)",
        ExpressionAttributeNames={"#name": name, "#state": keys.STATUS_ATTR},
        ExpressionAttributeValues={":value": value},
    )
    walk(deployed)
    assert progress(deployed).is_complete
    told = dict(deployed.telemetry.events)
    assert told["head_unreadable"] == {"tenant": "acme", "job_id": broken.job_id, "error": why}
    assert told["reconciler_mended"]["jobs"] == [f"acme/{other.job_id}"]
    assert deployed.telemetry.latest[Metric.RECONCILER_FINDS] == 2


def test_job_with_newer_timer_row_format_gets_readable_timer(
    deployed: Dispatch,
) -> None:
    """The jobs run on time. After the upgrade the old row only causes needless evaluations."""
    document = {
        "name": "n",
        "schedule_type": "FUTURE",
        "schedule_time": after(7_200).isoformat(),
    }
    deployed.jobs.submit("acme", "ada", [Submission(document)] * 2)
    (shared,) = deployed.aws.rows(keys.TIMERS_TABLE.name)
    put_row(deployed, {**shared, keys.LAYOUT_ATTR: {"N": str(keys.SHARED_TIMERS_LAYOUT + 1)}})
    walk(deployed)
    assert deployed.telemetry.problem_names == ["reconciler_mended"]
    deployed.run(after(7_300))
    assert len(deployed.runs_sent()) == 2
    put_row(deployed, shared)
    deployed.restart()
    deployed.run(after(7_900))
    assert len(deployed.runs_sent()) == 2
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []


def put_row(deployed: Dispatch, row: dict[str, Any]) -> None:
    deployed.aws.clients.dynamodb.batch_write_item(
        RequestItems={deployed.aws.settings.timers_table: [{"PutRequest": {"Item": row}}]}
    )


def test_timer_behind_watermark_is_evaluated(deployed: Dispatch) -> None:
    job = deployed.submit(schedule_type="FUTURE", schedule_time=after(120).isoformat())
    standing = timers(deployed)
    deployed.aws.ports.timers.delete(standing)
    for minute in range(11):
        deployed.clock.set(NOON + timedelta(minutes=minute))
        deployed.planner.tick()
    deployed.aws.ports.timers.put(standing)
    walk(deployed)
    assert "timers_behind_watermark" in deployed.telemetry.problem_names
    deployed.collect()
    assert {job_id for _, job_id in deployed.runs_sent()} == {job.job_id}


def test_walk_resumes_where_previous_invocation_ran_out_of_time(
    deployed: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "RECONCILER_PAGE_SIZE", 2)
    for _ in range(5):
        job_without_timer(deployed)
    count_jobs(deployed)
    pieces = 0
    real = deployed.new_runtime().ports.job_states.__class__.walk

    def slow(self: object, cursor: str | None, limit: int) -> object:
        deployed.clock.advance(timedelta(seconds=40))
        return real(self, cursor, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(deployed.new_runtime().ports.job_states.__class__, "walk", slow)
    while pieces == 0 or not progress(deployed).is_complete:
        walk(deployed, 90)
        pieces += 1
        assert pieces < 20
    assert pieces >= 4
    assert deployed.telemetry.metrics[Metric.RECONCILER_FINDS] == 5


def test_walk_runs_once_a_day(deployed: Dispatch) -> None:
    walk(deployed)
    first = progress(deployed)
    job_without_timer(deployed, 200_000)
    count_jobs(deployed)
    deployed.clock.set(NOON + timedelta(hours=22))
    spent = deployed.spend(lambda: walk(deployed))
    assert spent == {"BatchGetItem": 1}
    assert progress(deployed) == first
    deployed.clock.set(NOON + timedelta(hours=24))
    walk(deployed)
    assert progress(deployed).started_at == NOON + DAY
    assert deployed.telemetry.problem_names == ["reconciler_mended"]


def test_only_one_of_two_concurrent_walks_continues(deployed: Dispatch) -> None:
    rows = WalkProgress(deployed.new_runtime().dynamo, deployed.aws.settings.control_table)
    assert rows.save(Progress(started_at=NOON, state_cursor="here"))
    assert not rows.save(Progress(started_at=NOON, state_cursor="there"))
    standing = rows.read()
    assert standing is not None
    assert standing.state_cursor == "here"
    with lost_answers(deployed.aws.clients.dynamodb, "PutItem", 1):
        assert rows.save(standing), "its own write with a lost answer"
