"""The last part of the daily walk: payloads without a job."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws import s3
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.control.walk_progress import Progress, WalkProgress
from punctual.aws.dynamodb.jobs.names import MARK_ATTR
from punctual.aws.dynamodb.jobs.orphans import MIN_ORPHANED_PAYLOAD_AGE
from punctual.domain.errors import Unavailable
from punctual.engine.commands.definitions_store import PAYLOAD_PREFIX, payload_name
from punctual.engine.dispatch import late_timers
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.tenants.artifact_rows import BlobPage
from tests.support.aws.moto_faults import unreached
from tests.support.builders import NOON, a_definition_row, an_id
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch

LARGE = {"text": "x" * 10_000}
DAILY = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
SECOND = timedelta(seconds=1)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatch]:
    monkeypatch.setattr(late_timers, "LATE_TIMER_SPAN", timedelta(minutes=1))
    with dispatch() as deployed:
        deployed.planner.tick()
        yield deployed


def put_orphan(deployed: Dispatch, number: int) -> JobKey:
    """Store what a submission leaves if it crashes before it writes the job state."""
    key = JobKey("acme", an_id(number))
    deployed.aws.ports.blobs.put(payload_name(key, "1-w"), b"{}", "application/json")
    deployed.aws.ports.job_states.put_definitions([a_definition_row(key.job_id, ref="1-w")])
    return key


def payloads(deployed: Dispatch) -> list[str]:
    response = deployed.aws.clients.s3.list_objects_v2(
        Bucket=deployed.aws.settings.bucket, Prefix=PAYLOAD_PREFIX
    )
    return [item["Key"].removeprefix(PAYLOAD_PREFIX) for item in response.get("Contents", [])]


def body_rows(deployed: Dispatch) -> list[dict[str, Any]]:
    """Return the rows of jobs, without their states and names."""
    others = {keys.STATUS_ATTR, MARK_ATTR}
    return [row for row in deployed.aws.rows(keys.JOBS_TABLE.name) if others.isdisjoint(row)]


def walk(deployed: Dispatch, seconds: float = 900) -> Progress:
    """Continue the walk. A new walk starts at its last part."""
    kept = WalkProgress(deployed.new_runtime().dynamo, deployed.aws.settings.control_table)
    last = kept.read()
    if last is None or last.is_complete:
        step = 0 if last is None else last.step
        assert kept.save(
            Progress(deployed.clock.now, states_done=True, timers_done=True, step=step)
        )
    deployed.walk(seconds)
    progress = kept.read()
    assert progress is not None
    return progress


def removed_count(deployed: Dispatch) -> int:
    return sum(
        fields["number"] for name, fields in deployed.telemetry.events if name == "orphans_removed"
    )


def test_orphaned_payload_is_deleted_after_two_days(deployed: Dispatch) -> None:
    key = put_orphan(deployed, 1)
    deployed.clock.set(NOON + MIN_ORPHANED_PAYLOAD_AGE)
    assert walk(deployed).is_complete
    assert payloads(deployed) == [f"acme/{key.job_id}/1-w"]
    assert len(body_rows(deployed)) == 1
    deployed.clock.advance(SECOND)
    put_orphan(deployed, 2)
    assert walk(deployed).is_complete
    assert payloads(deployed) == [f"acme/{an_id(2)}/1-w"]
    assert len(body_rows(deployed)) == 1
    assert dict(deployed.telemetry.events)["orphans_removed"] == {
        "number": 1,
        "jobs": [f"acme/{key.job_id}"],
    }
    assert deployed.telemetry.problem_names == []


def test_walk_deletes_orphaned_payloads_last(deployed: Dispatch) -> None:
    put_orphan(deployed, 1)
    deployed.clock.set(NOON + MIN_ORPHANED_PAYLOAD_AGE + SECOND)
    deployed.walk(900)
    assert payloads(deployed) == []
    assert deployed.telemetry.events[-1] == ("walked", {"over": True, "finds": 0})


def test_payloads_of_existing_jobs_are_kept(deployed: Dispatch) -> None:
    kept = deployed.submit(payload=LARGE, **DAILY)
    unreadable = deployed.submit(payload=LARGE, **DAILY)
    deployed.jobs.run_now("acme", kept.job_id, LARGE)
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=keys.state_key(*unreadable).item(),
        UpdateExpression="SET #name = :value",
        ConditionExpression="attribute_exists(#name)",
        ExpressionAttributeNames={"#name": keys.STATUS_ATTR},
        ExpressionAttributeValues={":value": {"S": "UNHEARD_OF"}},
    )
    before = payloads(deployed), body_rows(deployed)
    assert len(before[0]) == 3
    deployed.clock.set(NOON + 10 * MIN_ORPHANED_PAYLOAD_AGE)
    assert walk(deployed).is_complete
    assert (payloads(deployed), body_rows(deployed)) == before
    assert removed_count(deployed) == 0


def test_walk_resumes_after_failed_delete(
    deployed: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "S3_LIST_PAGE_SIZE", 2)
    live = deployed.submit(payload=LARGE, **DAILY)
    for number in range(1, 6):
        put_orphan(deployed, number)
    deployed.clock.set(NOON + MIN_ORPHANED_PAYLOAD_AGE + SECOND)
    with unreached(deployed.aws.clients.s3, "DeleteObjects", 9), pytest.raises(Unavailable):
        walk(deployed)
    assert len(payloads(deployed)) == 6, (
        "rows are deleted first, because the blob keys still name the jobs"
    )
    assert len(body_rows(deployed)) == 5
    progress = walk(deployed)
    assert progress.is_complete
    assert [key.split("/")[1] for key in payloads(deployed)] == [live.job_id]
    assert len(body_rows(deployed)) == 1
    assert removed_count(deployed) == 5


def test_invocation_resumes_where_previous_one_ran_out_of_time(
    deployed: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "S3_LIST_PAGE_SIZE", 2)
    for number in range(7):
        put_orphan(deployed, number)
    deployed.clock.set(NOON + MIN_ORPHANED_PAYLOAD_AGE + SECOND)
    real = s3.S3Blobs.list_page

    def slow(self: s3.S3Blobs, prefix: str, after: str | None) -> BlobPage:
        if prefix == PAYLOAD_PREFIX:
            deployed.clock.advance(timedelta(seconds=40))
        return real(self, prefix, after)

    monkeypatch.setattr(s3.S3Blobs, "list_page", slow)
    assert not walk(deployed, 90).is_complete
    assert len(payloads(deployed)) == 5
    assert not walk(deployed, 120).is_complete
    assert len(payloads(deployed)) == 1
    assert walk(deployed, 130).is_complete  # the walk over artifacts follows
    assert payloads(deployed) == []


def test_object_without_payload_name_is_kept(deployed: Dispatch) -> None:
    deployed.aws.ports.blobs.put(f"{PAYLOAD_PREFIX}by-hand", b"{}", "application/json")
    deployed.clock.set(NOON + 2 * MIN_ORPHANED_PAYLOAD_AGE)
    assert walk(deployed).is_complete
    assert payloads(deployed) == ["by-hand"]
