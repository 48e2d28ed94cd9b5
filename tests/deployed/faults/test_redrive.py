"""An operator redrives failed stream batches. Lists, audit, events and counts are complete.

The failure queue has only positions in the stream, which keeps records for a day.
"""

import io
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from infra.app import read_context
from infra.config.stage import read_stage
from infra.operations.redrive import redrive
from tests.support.builders import after
from tests.support.deployed.faults import Moment, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import published_events, runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.stream import SHARD
from tests.support.deployed.world import MINUTE, World

EVENT = {"type": "event", "detail_type": "Paid"}
STAGE = read_stage("dev", read_context()["stages"])


class Streams:
    """The streams client: returns the records of a shard from a sequence number on."""

    class exceptions:
        class TrimmedDataAccessException(Exception): ...

    def __init__(self, world: World) -> None:
        self._world = world

    def get_shard_iterator(self, **asked: Any) -> dict[str, Any]:
        kept = self._world.streams[asked["StreamArn"]].kept
        places = [record["dynamodb"]["SequenceNumber"] for record in kept]
        assert (asked["ShardId"], asked["ShardIteratorType"]) == (SHARD, "AT_SEQUENCE_NUMBER")
        return {"ShardIterator": (asked["StreamArn"], places.index(asked["SequenceNumber"]))}

    def get_records(self, ShardIterator: tuple[str, int], Limit: int) -> dict[str, Any]:
        arn, first = ShardIterator
        records = self._world.streams[arn].kept[first : first + Limit]
        return {"Records": records, "NextShardIterator": (arn, first + len(records))}


class Account:
    """The boto3 session of an operator."""

    def __init__(self, world: World) -> None:
        self._world = world

    def client(self, service: str) -> Any:
        match service:
            case "dynamodbstreams":
                return Streams(self._world)
            case "lambda":
                return self
        client = self._world.session.client(service)
        self._world.sqs.answer(client)
        return client

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        answer = self._world.invoke(FunctionName, json.loads(Payload))
        if answer is not None:
            return {"Payload": io.BytesIO(json.dumps(answer).encode())}
        error_body = b'{"errorType": "Unavailable", "errorMessage": "no store"}'
        return {"Payload": io.BytesIO(error_body), "FunctionError": "Unhandled"}


def reduce_retries(world: World) -> None:
    """Reduce the hundred retries to one, because all are equal."""
    sources = [
        replace(source, retries=1) if source.function == world.name("status") else source
        for source in world.deployed.sources
    ]
    world.deployed = replace(world.deployed, sources=sources)


def tenant_view(api: Gateway) -> tuple[Any, ...]:
    """Return what a tenant sees of the status function's results."""
    runs = api.get("/runs?limit=100").json["runs"]
    lines = api.get("/audit?limit=100").json["entries"]
    stats = api.get("/stats").json
    return (
        Counter((run["job_id"], run["status"]) for run in runs),
        Counter((line["job_id"], line["action"]) for line in lines),
        stats["jobs"],
        stats["runs"],
    )


@pytest.mark.parametrize("away", ["PutEvents", "BatchWriteItem", "PutItem"])
def test_redrive_completes_lists_audit_events_and_counts(
    world: World, api: Gateway, away: str
) -> None:
    """One operation of the status function fails for all its retries."""
    reduce_retries(world)

    def refuses(moment: Moment) -> Refusal | None:
        mine = moment.role == world.name("status") and not moment.answered
        return Refusal("ThrottlingException") if mine and moment.operation == away else None

    world.faults.plan = refuses
    once = {"schedule_type": "FUTURE", "schedule_time": after(90).isoformat(), "task": EVENT}
    jobs = [submit_job(api, **once) for _ in range(3)]
    later = submit_job(api, **{**once, "schedule_time": after(86_400).isoformat()})
    assert api.post(f"/jobs/{later}/pause").status == 200
    world.run(4 * MINUTE)
    assert world.queue("status-failed").messages
    assert all(stream.records == [] for stream in world.streams.values()), (
        "all batches were given up"
    )
    log_lines: list[str] = []
    assert redrive(STAGE, Account(world), log_lines.append) > 0, "the fault still exists"
    world.faults.plan = None
    world.run(16 * MINUTE)
    next_day = submit_job(api, **{**once, "schedule_time": after(90_000).isoformat()})
    world.run(MINUTE)
    assert redrive(STAGE, Account(world), log_lines.append) == 0
    assert world.queue("status-failed").messages == []
    runs, lines, by_state, by_status = tenant_view(api)
    assert runs == {(job, "SUCCESS"): 1 for job in jobs}
    assert lines == {
        **{(job, "job.create"): 1 for job in (*jobs, later, next_day)},
        (later, "job.pause"): 1,
    }
    assert by_state == {"COMPLETED": 3, "PAUSED": 1, "SCHEDULED": 1}
    assert by_status == {"SUCCESS": 3}
    changes = {event["id"]: event["to"] for event in published_events(world, "Job State Change")}
    assert Counter(changes.values()) == {"SCHEDULED": 5, "COMPLETED": 3, "PAUSED": 1}
    assert {event["run_id"] for event in published_events(world, "Run State Change")} == {
        runs_of(api, job)[0]["run_id"] for job in jobs
    }
