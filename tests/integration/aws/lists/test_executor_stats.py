"""The executors in the statistics, from the list rows and leases of jobs with held runs."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.lists.job_counts import JobCounts
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run, RunStatus
from punctual.engine.ports.job_states import LeaseRenewal, Swap
from punctual.lambdas.job_search.monitor import DeployedMonitor
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import (
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_run,
    after,
    an_id,
)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(ManualClock(NOON)) as aws:
        yield aws


def running_run(number: int, by: str) -> Run:
    return a_run(f"r{number}", RunStatus.RUNNING, token=1, executor_id=by, changed_at=after(1))


def put_claimed(aws: Moto, number: int, by: str, renewed_at: float | None) -> JobState:
    """Store a job with a claimed run, and renew its lease unless `renewed_at` is None."""
    run = running_run(number, by)
    state = a_job_state(an_id(number), runs=(run,))
    aws.ports.job_states.put_definitions([a_definition_row(state.job_id)])
    swap = Swap(state, 0, {run.run_id: Lease(1, after(30))})
    assert aws.ports.job_states.swap([swap]) == [True]
    if renewed_at is not None:
        renewal = LeaseRenewal(swap.key, run.run_id, 1, after(renewed_at + 20))
        assert aws.ports.job_states.renew_leases([renewal]) == [state]
    return state


def monitor(aws: Moto) -> DeployedMonitor:
    counters = Counters(aws.ports.job_states._dynamo, aws.settings.control_table, lambda: NOON)
    job_counts = JobCounts(aws.ports.job_states._dynamo, aws.settings.lists_table, 4)
    load_held_states = aws.ports.job_states.load_held_states
    return DeployedMonitor(aws.ports.partitions, counters, job_counts, load_held_states, ("event",))


def test_stats_show_runs_and_last_heartbeat_of_executors(aws: Moto) -> None:
    put_claimed(aws, 1, "b", renewed_at=30)
    put_claimed(aws, 2, "a", renewed_at=8)
    put_claimed(aws, 3, "a", renewed_at=12)
    put_claimed(aws, 4, "c", renewed_at=None)
    aws.ports.job_states.put_definitions([a_definition_row(an_id(5))])
    queued = a_job_state(an_id(5), runs=(a_run("q", send_count=3),))
    assert aws.ports.job_states.swap([Swap(queued, 0)]) == [True]
    assert monitor(aws).stats("acme", after(60)).executors == [
        {"executor_id": "a", "last_heartbeat": after(12), "running": 2},
        {"executor_id": "b", "last_heartbeat": after(30), "running": 1},
        {"executor_id": "c", "last_heartbeat": after(1), "running": 1},
    ]
    assert monitor(aws).stats("other", after(60)).executors == []


def test_stats_count_second_run_without_heartbeat(aws: Moto) -> None:
    state = put_claimed(aws, 1, "a", renewed_at=8)
    two = replace(state, version=2, write_ids=("w", "w2"), runs=(*state.runs, running_run(2, "b")))
    assert aws.ports.job_states.swap([Swap(two, 1, {"r2": Lease(1, after(30))})]) == [True]
    assert monitor(aws).stats("acme", after(60)).executors == [
        {"executor_id": "a", "last_heartbeat": after(8), "running": 1},
        {"executor_id": "b", "last_heartbeat": after(1), "running": 1},
    ]
