"""The views of an API caller and of a bus listener, and the invariants at rest."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.cost.meter import purpose
from punctual.aws.dynamodb import keys
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.world import World


def runs_of(api: Gateway, job_id: str) -> list[dict[str, Any]]:
    answer = api.get(f"/jobs/{job_id}/runs")
    assert answer.status == 200, answer.body
    return list(answer.json["runs"])


def statuses(api: Gateway, job_id: str) -> Counter[str]:
    return Counter(run["status"] for run in runs_of(api, job_id))


def job_of(api: Gateway, job_id: str) -> Mapping[str, Any]:
    answer = api.get(f"/jobs/{job_id}")
    assert answer.status == 200, answer.body
    job: Mapping[str, Any] = answer.json
    return job


def published_events(world: World, kind: str) -> list[Any]:
    """Return the details of events on the bus by kind, our own or those of `event` tasks."""
    return [
        json.loads(entry["Detail"]) for entry in world.published() if entry["DetailType"] == kind
    ]


def ended_run_events(world: World) -> list[Any]:
    """Return the changes that end a run. Every stage publishes these."""
    return [event for event in published_events(world, "Run State Change") if event["end_time"]]


def assert_at_rest(world: World) -> None:
    """Check that no timer, message or stream record is left."""
    assert world.rows(keys.TIMERS_TABLE) == []
    for queue in world.deployed.queues:
        assert queue.messages == [], queue.name
    assert all(stream.records == [] for stream in world.streams.values())


def unique_scheduled_times(api: Gateway, job_id: str) -> list[str]:
    """Return the nominal times of a job's runs. Each time must have exactly one outcome."""
    times = [run["scheduled_time"] for run in runs_of(api, job_id)]
    assert len(set(times)) == len(times), "an occurrence has two outcomes"
    return sorted(times)


def write_counts(world: World, since: int = 0) -> Counter[str]:
    return Counter(
        purpose(write.table, write.key, write.after is None)
        for call in world.meter.calls[since:]
        for write in call.writes
    )
