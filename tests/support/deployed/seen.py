"""What a caller of the API and a listener on the bus see, and what must be true at rest."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.meter import purpose
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


def told(world: World, kind: str) -> list[Any]:
    """Details of events on the bus: our own, or what `event` tasks published, by kind."""
    return [
        json.loads(entry["Detail"]) for entry in world.published() if entry["DetailType"] == kind
    ]


def ends_told(world: World) -> list[Any]:
    """Of changes of runs those that a bus is told of on every stage."""
    return [one for one in told(world, "Run State Change") if one["end_time"]]


def at_rest(world: World) -> None:
    """Nothing is left to do: no timer, no message, no change that nobody followed."""
    assert world.rows(keys.TIMERS) == []
    for queue in world.deployed.queues:
        assert queue.letters == [], queue.name
    assert all(stream.records == [] for stream in world.streams.values())


def each_once(api: Gateway, job_id: str) -> list[str]:
    """The nominal times of a job's runs, an entry for many by its first: each has one outcome."""
    times = [run["scheduled_time"] for run in runs_of(api, job_id)]
    assert len(set(times)) == len(times), "an occurrence with two outcomes"
    return sorted(times)


def written(world: World, since: int = 0) -> Counter[str]:
    return Counter(
        purpose(one.table, one.key, one.after is None)
        for call in world.meter.calls[since:]
        for one in call.writes
    )
