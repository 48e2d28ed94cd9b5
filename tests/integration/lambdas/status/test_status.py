"""Effects of the stream of job states: lists, events, counts, and deleted data."""

import itertools
import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.keys import ROW_LAYOUT, ROW_LAYOUT_ATTRIBUTE, definition_key, name_key
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus, Trigger, WaitingRun
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.integration.lambdas.test_api import DAILY, load
from tests.support.aws.status_world import ENDED, QUEUED, RUNNING, World, place
from tests.support.aws.stream_records import BY_TTL, is_state_of
from tests.support.builders import (
    JOB,
    NOON,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_attempt,
    an_id,
)
from tests.support.deployed.drivers.api import an_api


def test_run_is_listed_counted_and_published_from_firing_to_end(world: World) -> None:
    heads = [
        None,
        a_job_state(version=1),
        a_job_state(version=2, runs=(QUEUED,)),
        a_job_state(version=3, runs=(RUNNING,)),
        a_job_state(version=4, unrecorded=(ENDED,)),
        a_job_state(version=5),
    ]
    world.store.ports.history.put_attempts([an_attempt(1, 3, ENDED.run_id, status="SUCCESS")])
    records = [world.stream.of(old, new) for old, new in itertools.pairwise(heads)]
    assert world.follow(*records) == []
    assert world.bus.changes("Job") == [(None, "SCHEDULED")]
    assert world.bus.changes("Run") == [
        (None, "QUEUED"),
        ("QUEUED", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    assert world.listed() == [(ENDED.run_id, RunStatus.SUCCESS)]
    stats = world.stats()
    assert (stats.jobs, stats.runs) == ({"SCHEDULED": 1}, {"SUCCESS": 1})
    late = stats.lateness_ms
    assert late["max"] == pytest.approx(1_000, rel=0.05)
    counts = {"started": 1, "succeeded": 1, "failed": 0}
    assert stats.last_hour == [{"minute": NOON, **counts, "lateness_ms": late}]
    assert stats.queue == {"depth": 0, "oldest_seconds": 0}


def test_event_matches_its_schema(world: World) -> None:
    world.follow(
        world.stream.of(
            a_job_state(version=3, runs=(RUNNING,)), a_job_state(version=4, unrecorded=(ENDED,))
        )
    )
    (event,) = world.bus.events
    assert (event["source"], event["detail-type"]) == ("punctual", "Run State Change")
    assert json.loads(json.dumps(event["detail"])) == {
        "version": 1,
        "id": f"{ENDED.run_id}.4",
        "sequence": 4,
        "time": "2026-03-02T12:00:00.000Z",
        "tenant": "acme",
        "job_id": JOB,
        "run_id": ENDED.run_id,
        "job_version": 1,
        "trigger": "SCHEDULE",
        "retried_from": None,
        "from": "RUNNING",
        "to": "SUCCESS",
        "reason": None,
        "attempt_number": 1,
        "scheduled_time": "2026-03-02T12:00:00.000Z",
        "due_time": "2026-03-02T12:00:00.000Z",
        "queued_at": "2026-03-02T12:00:00.000Z",
        "claimed_at": "2026-03-02T12:00:01.000Z",
        "start_time": "2026-03-02T12:00:01.000Z",
        "end_time": "2026-03-02T12:00:02.000Z",
        "lateness_ms": 1000.0,
        "duration_ms": 1000.0,
        "count": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({}, {"status": JobStatus.PAUSED, "edition": 2}, ("SCHEDULED", "PAUSED", "PAUSED")),
        ({"status": JobStatus.PAUSED}, {"edition": 2}, ("PAUSED", "SCHEDULED", "RESUMED")),
        ({}, {"status": JobStatus.COMPLETED}, ("SCHEDULED", "COMPLETED", "COMPLETED")),
        ({"status": JobStatus.COMPLETED}, {}, ("COMPLETED", "SCHEDULED", "REOPENED")),
        ({}, {"status": JobStatus.CANCELLED}, ("SCHEDULED", "CANCELLED", "CANCELLED")),
        ({}, {"edition": 2}, ("SCHEDULED", "SCHEDULED", "CHANGED")),
        ({}, {}, None),
    ],
)
def test_job_event_has_a_reason(
    world: World, old: dict[str, Any], new: dict[str, Any], told: tuple[str, str, str] | None
) -> None:
    world.follow(world.stream.of(a_job_state(version=1, **old), a_job_state(version=2, **new)))
    reasons = [
        (e["detail"]["from"], e["detail"]["to"], e["detail"]["reason"]) for e in world.bus.events
    ]
    assert reasons == ([] if told is None else [told])


@pytest.mark.parametrize(("run_events", "told"), [("all", 4), ("ended", 2), ("none", 1)])
def test_stage_setting_selects_run_events(run_events: str, told: int) -> None:
    with an_api() as api:
        world = World(api, run_events)
        heads = [
            None,
            a_job_state(version=2, runs=(QUEUED,)),
            a_job_state(version=3, runs=(RUNNING,)),
            a_job_state(version=4, unrecorded=(ENDED,)),
        ]
        for old, new in itertools.pairwise(heads):
            world.follow(world.stream.of(old, new))
        assert len(world.bus.events) == told


def test_run_fired_ahead_and_withdrawn_is_published(world: World) -> None:
    ahead = a_run(due_at=after(60))
    world.follow(world.stream.of(a_job_state(version=1), a_job_state(version=2, runs=(ahead,))))
    assert world.stats().queue["depth"] == 0
    world.follow(
        world.stream.of(a_job_state(version=2, runs=(ahead,)), a_job_state(version=3, edition=2))
    )
    assert world.bus.changes("Run") == [(None, "QUEUED"), ("QUEUED", None)]
    assert world.stats().runs == {}


def test_packed_wait_queue_is_read(world: World) -> None:
    line = tuple(
        WaitingRun(an_id(n), 1, NOON, NOON, NOON, Trigger.RUN_NOW) for n in range(1_000, 1_020)
    )
    record = world.stream.of(a_job_state(version=1), a_job_state(version=2, wait_queue=line))
    assert "B" in record["dynamodb"]["NewImage"]["line"]
    world.follow(record)
    assert world.bus.changes("Run") == [(None, "WAITING")] * 20
    assert world.stats().runs == {"WAITING": 20}


def test_repeated_records_change_nothing(world: World) -> None:
    records = [
        world.stream.of(None, a_job_state(version=1, runs=(QUEUED,))),
        world.stream.of(
            a_job_state(version=1, runs=(QUEUED,)), a_job_state(version=2, unrecorded=(ENDED,))
        ),
    ]
    world.follow(*records)
    stats, listed = world.stats(), world.listed()
    ids = [event["detail"]["id"] for event in world.bus.events]
    world.follow(*records)
    assert (world.stats(), world.listed()) == (stats, listed)
    again = [event["detail"]["id"] for event in world.bus.events]
    assert again == ids * 2
    assert len(set(ids)) == len(ids)


def test_expired_runs_and_minutes_are_not_stored_again(world: World) -> None:
    record = world.stream.of(a_job_state(version=1), a_job_state(version=2, unrecorded=(ENDED,)))
    world.clock.advance(timedelta(seconds=40 * 86_400))
    world.follow(record)
    assert world.listed() == []
    assert world.stats().last_hour == []
    assert world.stats().runs == {"SUCCESS": 1}


def test_other_rows_and_blank_job_states_are_skipped(world: World) -> None:
    body = {**definition_key("acme", JOB, "1-x").item(), **ROW_LAYOUT_ATTRIBUTE}
    blank = a_job_state(version=7, is_blank=True)
    assert world.follow(world.stream.record(None, body), world.stream.of(None, blank)) == []
    assert world.bus.events == []
    world.follow(world.stream.of(blank, a_job_state(version=8)))
    assert world.bus.changes("Job") == [(None, "SCHEDULED")]


def test_lease_change_alone_has_no_effect(world: World) -> None:
    head = a_job_state(version=3, runs=(RUNNING,))
    spent = world.store.spend(lambda: world.follow(world.stream.of(head, head)))
    assert (spent, world.bus.events) == ({}, [])


def test_events_of_a_job_keep_their_order(world: World) -> None:
    heads = [a_job_state(version=v, edition=v) for v in range(1, 30)]
    world.follow(*(world.stream.of(a, b) for a, b in itertools.pairwise(heads)))
    assert [event["detail"]["sequence"] for event in world.bus.events] == list(range(2, 30))


def a_poison(world: World, kind: str) -> Any:
    record = world.stream.of(None, a_job_state(an_id(77)))
    image = record["dynamodb"]["NewImage"]
    match kind:
        case "later layout":
            image["f"] = {"N": str(ROW_LAYOUT + 1)}
        case "earlier layout":
            image["f"] = {"N": str(ROW_LAYOUT - 1)}
        case "no layout":
            del image["f"]
        case "no state":
            del image["state"]
        case "no image":
            del record["dynamodb"]["NewImage"]
        case "unknown event":
            record["eventName"] = "RENAME"
        case "unknown state":
            image["state"] = {"S": "DREAMING"}
        case "broken line":
            image["line"] = {"B": "AAAA"}
    return record


POISON = (
    "later layout",
    "earlier layout",
    "no layout",
    "no state",
    "no image",
    "unknown event",
    "unknown state",
)


@pytest.mark.parametrize("kind", [*POISON, "broken line"])
def test_unreadable_record_holds_up_only_later_records(world: World, kind: str) -> None:
    good = [world.stream.of(None, a_job_state(an_id(n))) for n in range(2)]
    poison = a_poison(world, kind)
    behind = world.stream.of(None, a_job_state(an_id(9)))
    assert world.follow(*good, poison, behind) == [place(poison)]
    assert len(world.bus.events) == 2
    (line,) = world.telemetry.named("record_not_read")
    assert line["keys"]["pk"]["S"] == f"acme#{an_id(77)}"
    with pytest.raises(Exception, match=r".*"):
        world.follow(poison, behind)
    with pytest.raises(Exception, match=r".*"):
        world.follow(poison)
    assert world.follow(behind) == []
    assert world.stats().jobs == {"SCHEDULED": 3}


def test_record_with_failing_effects_is_reported_alone(world: World) -> None:
    heads = [a_job_state(an_id(n), runs=(a_run(an_id(n + 100)),)) for n in range(3)]
    records = [world.stream.of(None, head) for head in heads]
    world.bus.refuse = heads[1].runs[0].run_id
    assert world.follow(*records) == [place(records[1])]
    assert [event["detail"]["job_id"] for event in world.bus.events] == [heads[0].job_id] * 2
    (line,) = world.telemetry.named("record_failed")
    assert line["job_id"] == heads[1].job_id
    with pytest.raises(ValueError, match="refused"):
        world.follow(*records[1:])
    assert world.follow(records[2]) == []
    assert world.stats().jobs == {"SCHEDULED": 3}
    assert world.stats().runs == {"QUEUED": 2}, "the runs of the failed record are not counted"


def test_unavailable_bus_fails_batch_and_no_job_is_counted_twice(world: World) -> None:
    record = world.stream.of(None, a_job_state())
    world.bus.error = Unavailable("no bus")
    with pytest.raises(Unavailable):
        world.follow(record)
    assert world.stats().jobs == {"SCHEDULED": 1}
    world.bus.error = None
    assert world.follow(record) == []
    assert world.stats().jobs == {"SCHEDULED": 1}


@pytest.mark.parametrize("identity", [{"userIdentity": BY_TTL}, {}], ids=["by TTL", "by hand"])
def test_deleted_job_state_deletes_all_data_of_job(world: World, identity: dict[str, Any]) -> None:
    api, clock = world.api, world.clock
    kept = api("POST", "/jobs", {**DAILY, "name": "kept", "payload": "y" * 9_000}).json["job_id"]
    job_id = api("POST", "/jobs", {**DAILY, "payload": "x" * 9_000}).json["job_id"]
    world.follow(*world.stream.catch())
    api("PATCH", f"/jobs/{job_id}", {"payload": "z" * 90_000})
    world.follow(*world.stream.catch())
    api("POST", f"/jobs/{job_id}/runNow", {"payload": 1})
    world.follow(*world.stream.catch())
    api("DELETE", f"/jobs/{job_id}")
    world.follow(*world.stream.catch())
    assert len(blobs(world)) == 4
    remove_head(world, job_id)
    clock.advance(timedelta(seconds=60))
    (record, *_) = world.stream.catch(**identity)
    assert world.follow(record) == []
    assert [name.split("/")[2] for name in blobs(world)] == [kept]
    left = {f"default#{kept}", name_key("default", "kept").pk}
    assert {row["pk"]["S"] for row in world.store.rows("jobs")} == left
    assert world.bus.changes("Job")[-1] == ("CANCELLED", None)
    assert world.stats("default").jobs == {"SCHEDULED": 1}
    assert world.follow(record) == []


def test_recreated_job_keeps_its_data(world: World) -> None:
    heads = world.store.ports.job_states
    heads.put_definitions([a_definition_row()])
    assert heads.swap([Swap(a_job_state(version=2), 0)]) == [True]
    world.follow(world.stream.of(a_job_state(version=1, is_blank=True), None))
    assert heads.load_definitions([(JobKey("acme", JOB), "1-body")])


def test_blank_state_comes_and_goes_without_a_trace(world: World) -> None:
    blank = blank_state(JobKey("acme", JOB), 3, "w", NOON)
    world.follow(world.stream.of(None, blank))
    world.follow(world.stream.of(blank, None, userIdentity=BY_TTL))
    assert world.store.rows("lists") == []


def test_job_without_large_payloads_is_deleted_without_s3_calls(world: World) -> None:
    world.store.ports.job_states.put_definitions([a_definition_row()])
    state = a_job_state(status=JobStatus.CANCELLED, ended_at=NOON - timedelta(days=31))
    record = world.stream.of(state, None, userIdentity=BY_TTL)
    spent = world.store.spend(lambda: world.follow(record))
    # The writes are those of the change feed, and of the deletion.
    assert spent == {"BatchGetItem": 1, "Query": 1, "BatchWriteItem": 2}
    assert world.store.rows("jobs") == []


def test_batch_of_hundred_runs_costs_a_row_a_job_and_few_other_calls(world: World) -> None:
    """One batch of records reports a hundred ended runs."""
    world.status._run_events = "none"
    records = []
    definitions = [a_definition_row(an_id(n)) for n in range(100)]
    world.store.ports.job_states.put_definitions(definitions)
    for n in range(100):
        run = replace(ENDED, run_id=an_id(n))
        world.store.ports.history.put_runs([a_row(run.run_id, an_id(n), run=run)])
        old = a_job_state(an_id(n), version=3, runs=(replace(RUNNING, run_id=run.run_id),))
        world.follow(world.stream.of(None, old))
        records.append(world.stream.of(old, a_job_state(an_id(n), version=4, unrecorded=(run,))))
    spent = world.store.spend(lambda: world.follow(*records))
    assert spent == {
        "BatchGetItem": 1,  # history rows
        "BatchWriteItem": 4,  # the list of runs, the change feed, the log of counts and its mark
        "UpdateItem": 100,  # the row of each job
    }


def test_status_handler_reports_batch_item_failures(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = load(world.store, "status", monkeypatch)
    good, poison = world.stream.of(None, a_job_state()), a_poison(world, "later layout")
    assert handler({"Records": [good]}, None) == {"batchItemFailures": []}
    answer = handler({"Records": [good, poison]}, None)
    assert answer == {"batchItemFailures": [{"itemIdentifier": place(poison)}]}


def blobs(world: World) -> list[str]:
    response = world.store.clients.s3.list_objects_v2(Bucket=world.store.settings.bucket)
    return [item["Key"] for item in response.get("Contents", [])]


def remove_head(world: World, job_id: str) -> None:
    for row in world.store.rows("jobs"):
        if is_state_of(row, job_id):
            world.store.clients.dynamodb.delete_item(
                TableName=world.store.settings.jobs_table, Key={"pk": row["pk"], "sk": row["sk"]}
            )
