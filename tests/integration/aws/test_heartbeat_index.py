"""The index of job states with a heartbeat: its members, and the reads that use it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.keys import RowKey
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Reason, Run, RunStatus, WaitingRun
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.job_search.monitor import DeployedMonitor
from tests.integration.aws.test_job_states import Clock
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, a_definition_row, a_job_state, a_run, after, an_id

ALL = 1_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aws(clock: Clock) -> Iterator[Moto]:
    with moto(clock) as aws:
        yield aws


def put_states(aws: Moto, *heads: JobState) -> None:
    aws.ports.job_states.put_definitions([a_definition_row(head.job_id) for head in heads])
    assert all(aws.ports.job_states.swap([Swap(head, head.version - 1) for head in heads]))


def running_run(number: int, by: str = "e") -> Run:
    return a_run(f"r{number}", RunStatus.RUNNING, token=1, executor_id=by, changed_at=after(1))


def put_claimed(
    aws: Moto, number: int, by: str = "e", beat: float | None = 0, **fields: Any
) -> JobState:
    """Store a job with a claimed run, and renew its lease unless `beat` is None."""
    run = running_run(number, by)
    head = a_job_state(an_id(number), runs=(run,), **fields)
    aws.ports.job_states.put_definitions([a_definition_row(head.job_id)])
    swap = Swap(head, 0, {run.run_id: Lease(1, after(30))})
    assert aws.ports.job_states.swap([swap]) == [True]
    if beat is not None:
        beaten = LeaseRenewal(swap.key, run.run_id, 1, after(beat + 20))
        assert aws.ports.job_states.renew_leases([beaten]) == [head]
    return head


def changed(head: JobState, **fields: Any) -> JobState:
    new = {"version": head.version + 1, "write_ids": (*head.write_ids, f"w{head.version}")}
    return replace(head, **new, **fields)


def indexed(aws: Moto) -> list[str]:
    return sorted(key.job_id for key in aws.ports.job_states.load_heartbeat_states("acme", ALL))


def test_only_a_heartbeat_puts_job_state_into_index(aws: Moto) -> None:
    put_states(
        aws,
        a_job_state(an_id(1)),
        a_job_state(an_id(2), runs=(a_run(send_count=2),)),
        a_job_state(an_id(3), unrecorded=(a_run("e", RunStatus.SUCCESS, ended_at=NOON),)),
        a_job_state(an_id(4), runs=(a_run("b", RunStatus.WAITING, reason=Reason.BACKOFF),)),
        a_job_state(an_id(5), wait_queue=(WaitingRun("w", 1, NOON, NOON, NOON),)),
    )
    put_claimed(aws, 6, beat=None)
    put_claimed(aws, 7, beat=4)
    assert indexed(aws) == [an_id(7)]


def test_job_state_is_in_index_until_its_last_lease_ends(aws: Moto) -> None:
    head = put_claimed(aws, 1)
    cancelling = changed(head)
    assert aws.ports.job_states.swap([Swap(cancelling, 1)]) == [True]
    assert indexed(aws) == [an_id(1)], "a change of the job keeps the heartbeat"
    with_two = changed(cancelling, runs=(*cancelling.runs, running_run(2)))
    with_one = changed(with_two, runs=(running_run(2),))
    with_none = changed(with_one, runs=(a_run("next"),))
    for new, is_indexed in ((with_two, True), (with_one, True), (with_none, False)):
        assert aws.ports.job_states.swap([Swap(new, new.version - 1)]) == [True]
        assert indexed(aws) == [an_id(1)] * is_indexed


def test_renewal_of_lost_lease_puts_nothing_into_index(aws: Moto) -> None:
    head = put_claimed(aws, 1)
    over = changed(head, runs=())
    assert aws.ports.job_states.swap([Swap(over, 1, {"r1": None})]) == [True]
    assert aws.ports.job_states.renew_leases(
        [LeaseRenewal(JobKey("acme", an_id(1)), "r1", 1, after(90))]
    ) == [None]
    assert indexed(aws) == []
    assert aws.ports.job_states.load([JobKey("acme", an_id(1))]) == {
        JobKey("acme", an_id(1)): StoredState(over, {})
    }


def test_index_has_no_job_states_of_other_tenants(aws: Moto) -> None:
    put_claimed(aws, 1, tenant="other")
    assert indexed(aws) == []


def test_expired_job_state_is_not_found_by_index(aws: Moto) -> None:
    put_claimed(aws, 1, ended_at=NOON - timedelta(days=31))
    assert indexed(aws) == []


def test_index_reads_at_most_the_limit(aws: Moto) -> None:
    for number in range(201, 221):
        put_claimed(aws, number)
    job_states = aws.ports.job_states
    assert len(job_states.load_heartbeat_states("acme", ALL)) == 20
    assert 0 < len(job_states.load_heartbeat_states("acme", 1)) <= 16
    spent = aws.spend(lambda: job_states.load_heartbeat_states("acme", ALL))
    assert spent == {"Query": 16, "BatchGetItem": 1}


def test_job_state_changed_after_index_read_is_current(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index may lag. The job states that it names are read consistently."""
    put_claimed(aws, 201)
    job_states = aws.ports.job_states
    over = changed(a_job_state(an_id(201), runs=(running_run(201),)), runs=())
    read = job_states._dynamo.query_index

    def behind(*asked: Any) -> list[RowKey]:
        row_keys = read(*asked)
        if any(row_key.sk == over.job_id for row_key in row_keys):
            assert job_states.swap([Swap(over, 1)]) == [True]
        return row_keys

    monkeypatch.setattr(job_states._dynamo, "query_index", behind)
    (stored,) = job_states.load_heartbeat_states("acme", ALL).values()
    assert stored.state == over


def test_stats_show_runs_and_last_heartbeat_of_executors(aws: Moto) -> None:
    put_claimed(aws, 1, "b", beat=30)
    put_claimed(aws, 2, "a", beat=8)
    put_claimed(aws, 3, "a", beat=12)
    put_claimed(aws, 4, "c", beat=None)
    put_states(aws, a_job_state(an_id(5), runs=(a_run("q", send_count=3),)))
    stats = monitor(aws).stats("acme", after(60))
    assert stats.executors == [
        {"executor_id": "a", "last_heartbeat": after(12), "running": 2},
        {"executor_id": "b", "last_heartbeat": after(30), "running": 1},
    ]
    assert monitor(aws).stats("other", after(60)).executors == []


def test_stats_count_second_run_without_heartbeat(aws: Moto) -> None:
    head = put_claimed(aws, 1, "a", beat=8)
    two = changed(head, runs=(*head.runs, running_run(2, "b")))
    assert aws.ports.job_states.swap([Swap(two, 1, {"r2": Lease(1, after(30))})]) == [True]
    assert monitor(aws).stats("acme", after(60)).executors == [
        {"executor_id": "a", "last_heartbeat": after(8), "running": 1},
        {"executor_id": "b", "last_heartbeat": after(1), "running": 1},
    ]


def monitor(aws: Moto) -> DeployedMonitor:
    tallies = Counters(aws.ports.job_states._dynamo, aws.settings.control_table)
    return DeployedMonitor(
        aws.ports.partitions, tallies, aws.ports.job_states.load_heartbeat_states, ("event",)
    )
