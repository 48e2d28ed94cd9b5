"""Leases: set and removed by a swap, renewed by a heartbeat, and required by later swaps."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Progress
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import JobKey
from tests.support.builders import JOB, RUN, a_job_state, after, an_id, key_of
from tests.support.ports import Ports

LEASE = Lease(token=2, until=after(30.000001))
OTHER = an_id(1_000_002)


def load(ports: Ports, state: JobState) -> StoredState:
    return ports.job_states.load([key_of(state)])[key_of(state)]


def store_with_lease(ports: Ports, **leases: Lease) -> JobState:
    """Store a job state at version 2 with a lease of its run."""
    state = a_job_state(version=2)
    stored_leases = {RUN: LEASE} if not leases else dict(leases)
    assert list(ports.job_states.swap([Swap(state, 0, stored_leases)])) == [True]
    return state


def next_of(state: JobState, writer: str = "next") -> JobState:
    return replace(state, version=state.version + 1, write_ids=(*state.write_ids, writer))


def test_swap_sets_a_lease(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert dict(load(ports, state).leases) == {RUN: LEASE}


def test_swap_removes_a_lease(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {RUN: None})])) == [True]
    assert dict(load(ports, state).leases) == {}


def test_swap_that_removes_a_missing_lease_wins(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {OTHER: None})])) == [True]
    assert dict(load(ports, state).leases) == {RUN: LEASE}


def test_swap_keeps_other_leases(ports: Ports) -> None:
    state = store_with_lease(ports)
    second = Lease(token=3, until=after(40), is_renewed=True)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {OTHER: second})])) == [True]
    assert dict(load(ports, state).leases) == {RUN: LEASE, OTHER: second}


def test_lost_swap_changes_no_lease(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert list(ports.job_states.swap([Swap(next_of(state), 1, {RUN: None, OTHER: LEASE})])) == [
        False
    ]
    assert dict(load(ports, state).leases) == {RUN: LEASE}


def test_hundred_runs_have_a_lease_each(ports: Ports) -> None:
    leases = {an_id(n): Lease(token=2, until=after(n)) for n in range(100)}
    state = a_job_state(version=2)
    ports.job_states.swap([Swap(state, 0, leases)])
    assert dict(load(ports, state).leases) == leases
    ports.job_states.swap([Swap(next_of(state), 2, dict.fromkeys(leases))])
    assert dict(load(ports, state).leases) == {}


def test_swap_wins_if_its_required_lease_is_unchanged(ports: Ports) -> None:
    state = store_with_lease(ports)
    swap = Swap(next_of(state), 2, {RUN: None}, {RUN: LEASE})
    assert list(ports.job_states.swap([swap])) == [True]
    assert dict(load(ports, state).leases) == {}


@pytest.mark.parametrize(
    "read",
    [
        Lease(token=1, until=LEASE.until),
        Lease(token=2, until=LEASE.until - timedelta(microseconds=1)),
        Lease(token=2, until=LEASE.until, is_renewed=True),
    ],
)
def test_swap_loses_if_its_required_lease_changed(ports: Ports, read: Lease) -> None:
    state = store_with_lease(ports)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {RUN: None}, {RUN: read})])) == [
        False
    ]
    assert load(ports, state) == StoredState(state, {RUN: LEASE})


def test_swap_loses_if_its_required_lease_is_gone(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {}, {OTHER: LEASE})])) == [False]
    assert load(ports, state).state == state


def test_heartbeat_renews_the_lease_and_keeps_the_version(ports: Ports) -> None:
    state = store_with_lease(ports)
    renewal = LeaseRenewal(key_of(state), RUN, 2, after(50.000001))
    assert list(ports.job_states.renew_leases([renewal])) == [state]
    assert load(ports, state) == StoredState(
        state, {RUN: Lease(token=2, until=after(50.000001), is_renewed=True)}
    )


def test_lease_keeps_the_last_progress_until_the_next_claim(ports: Ports) -> None:
    state = store_with_lease(ports)
    texts = Progress(text='a "quoted" text\x00, ' + "é" * 200)

    def renew(seconds: int, progress: Progress | None) -> Lease:
        renewal = LeaseRenewal(key_of(state), RUN, 2, after(seconds), progress)
        assert list(ports.job_states.renew_leases([renewal])) == [state]
        return load(ports, state).leases[RUN]

    assert renew(50, Progress(12.5, "sorting")).progress == Progress(12.5, "sorting")
    assert renew(60, None) == Lease(2, after(60), True, Progress(12.5, "sorting"))
    assert renew(70, texts) == Lease(2, after(70), True, texts)
    lease = renew(80, Progress(100.0))
    assert lease.progress == Progress(100)
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {}, {RUN: lease})])) == [True]
    assert load(ports, state).leases[RUN] == lease
    new_lease = Lease(token=3, until=after(60))
    newer = replace(next_of(state), version=4)
    assert list(ports.job_states.swap([Swap(newer, 3, {RUN: new_lease}, {RUN: lease})])) == [True]
    assert load(ports, state).leases[RUN] == new_lease


def test_heartbeat_fences_a_swap_that_read_the_old_lease(ports: Ports) -> None:
    state = store_with_lease(ports)
    ports.job_states.renew_leases([LeaseRenewal(key_of(state), RUN, 2, after(50))])
    assert list(ports.job_states.swap([Swap(next_of(state), 2, {RUN: None}, {RUN: LEASE})])) == [
        False
    ]


def test_heartbeat_does_not_stop_a_swap_without_required_lease(ports: Ports) -> None:
    state = store_with_lease(ports)
    ports.job_states.renew_leases([LeaseRenewal(key_of(state), RUN, 2, after(50))])
    assert list(ports.job_states.swap([Swap(next_of(state), 2)])) == [True]
    assert load(ports, state).leases[RUN].until == after(50)


def test_heartbeat_returns_the_present_state(ports: Ports) -> None:
    """So a holder learns that it has to stop."""
    state = store_with_lease(ports)
    newer = next_of(state)
    ports.job_states.swap([Swap(newer, 2)])
    assert list(
        ports.job_states.renew_leases([LeaseRenewal(key_of(state), RUN, 2, after(50))])
    ) == [newer]


def test_heartbeat_with_old_token_renews_nothing(ports: Ports) -> None:
    state = store_with_lease(ports)
    assert list(
        ports.job_states.renew_leases([LeaseRenewal(key_of(state), RUN, 1, after(50))])
    ) == [None]
    assert dict(load(ports, state).leases) == {RUN: LEASE}


def test_removed_lease_is_not_renewed(ports: Ports) -> None:
    state = store_with_lease(ports)
    ports.job_states.swap([Swap(next_of(state), 2, {RUN: None})])
    assert list(
        ports.job_states.renew_leases([LeaseRenewal(key_of(state), RUN, 2, after(50))])
    ) == [None]
    assert dict(load(ports, state).leases) == {}


def test_lease_taken_over_is_renewed_only_by_the_new_token(ports: Ports) -> None:
    state = store_with_lease(ports)
    new_lease = Lease(token=3, until=after(60))
    ports.job_states.swap([Swap(next_of(state), 2, {RUN: new_lease})])
    renewals = [
        LeaseRenewal(key_of(state), RUN, 2, after(70)),
        LeaseRenewal(key_of(state), RUN, 3, after(80)),
    ]
    assert list(ports.job_states.renew_leases(renewals)) == [None, next_of(state)]
    assert load(ports, state).leases[RUN].until == after(80)


def test_heartbeat_of_a_missing_job_is_refused(ports: Ports) -> None:
    assert list(
        ports.job_states.renew_leases([LeaseRenewal(JobKey("acme", JOB), RUN, 2, after(50))])
    ) == [None]


def test_each_of_many_heartbeats_is_checked_alone(ports: Ports) -> None:
    states = [a_job_state(an_id(n), version=2) for n in range(150)]
    ports.job_states.swap([Swap(state, 0, {RUN: LEASE}) for state in states])
    renewals = [
        LeaseRenewal(key_of(state), RUN, 2 if index % 3 else 1, after(50))
        for index, state in enumerate(states)
    ]
    answers = list(ports.job_states.renew_leases(renewals))
    assert answers == [state if index % 3 else None for index, state in enumerate(states)]
