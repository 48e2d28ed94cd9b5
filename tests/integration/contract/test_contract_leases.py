"""Leases: set and dropped with a swap, renewed by a beat, and required as they were read."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobState
from punctual.domain.run import Lease
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import JobKey
from tests.support.builders import JOB, RUN, a_head, after, an_id, key_of
from tests.support.ports import Ports

LEASE = Lease(token=2, until=after(30.000001))
OTHER = an_id(1_000_002)


def stored(ports: Ports, head: JobState) -> StoredState:
    return ports.job_states.load([key_of(head)])[key_of(head)]


def held(ports: Ports, **leases: Lease) -> JobState:
    """A head at version 2 whose run is held."""
    head = a_head(version=2)
    given = {RUN: LEASE} if not leases else dict(leases)
    assert list(ports.job_states.swap([Swap(head, 0, given)])) == [True]
    return head


def next_of(head: JobState, writer: str = "next") -> JobState:
    return replace(head, version=head.version + 1, write_ids=(*head.write_ids, writer))


def test_a_lease_is_set_with_the_swap(ports: Ports) -> None:
    head = held(ports)
    assert dict(stored(ports, head).leases) == {RUN: LEASE}


def test_a_lease_is_dropped_with_the_swap(ports: Ports) -> None:
    head = held(ports)
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {RUN: None})])) == [True]
    assert dict(stored(ports, head).leases) == {}


def test_dropping_what_is_not_there_is_no_error(ports: Ports) -> None:
    head = held(ports)
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {OTHER: None})])) == [True]
    assert dict(stored(ports, head).leases) == {RUN: LEASE}


def test_a_swap_keeps_the_leases_it_does_not_name(ports: Ports) -> None:
    head = held(ports)
    second = Lease(token=3, until=after(40), is_renewed=True)
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {OTHER: second})])) == [True]
    assert dict(stored(ports, head).leases) == {RUN: LEASE, OTHER: second}


def test_a_lost_swap_leaves_the_leases(ports: Ports) -> None:
    head = held(ports)
    assert list(ports.job_states.swap([Swap(next_of(head), 1, {RUN: None, OTHER: LEASE})])) == [
        False
    ]
    assert dict(stored(ports, head).leases) == {RUN: LEASE}


def test_a_hundred_holders_have_a_lease_each(ports: Ports) -> None:
    leases = {an_id(n): Lease(token=2, until=after(n)) for n in range(100)}
    head = a_head(version=2)
    ports.job_states.swap([Swap(head, 0, leases)])
    assert dict(stored(ports, head).leases) == leases
    ports.job_states.swap([Swap(next_of(head), 2, dict.fromkeys(leases))])
    assert dict(stored(ports, head).leases) == {}


def test_a_swap_wins_while_the_lease_is_as_it_was_read(ports: Ports) -> None:
    head = held(ports)
    swap = Swap(next_of(head), 2, {RUN: None}, {RUN: LEASE})
    assert list(ports.job_states.swap([swap])) == [True]
    assert dict(stored(ports, head).leases) == {}


@pytest.mark.parametrize(
    "read",
    [
        Lease(token=1, until=LEASE.until),
        Lease(token=2, until=LEASE.until - timedelta(microseconds=1)),
        Lease(token=2, until=LEASE.until, is_renewed=True),
    ],
)
def test_a_swap_is_lost_when_a_required_lease_is_another(ports: Ports, read: Lease) -> None:
    head = held(ports)
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {RUN: None}, {RUN: read})])) == [
        False
    ]
    assert stored(ports, head) == StoredState(head, {RUN: LEASE})


def test_a_swap_is_lost_when_a_required_lease_is_gone(ports: Ports) -> None:
    head = held(ports)
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {}, {OTHER: LEASE})])) == [False]
    assert stored(ports, head).state == head


def test_a_beat_renews_and_raises_no_version(ports: Ports) -> None:
    head = held(ports)
    beat = LeaseRenewal(key_of(head), RUN, 2, after(50.000001))
    assert list(ports.job_states.renew_leases([beat])) == [head]
    assert stored(ports, head) == StoredState(
        head, {RUN: Lease(token=2, until=after(50.000001), is_renewed=True)}
    )


def test_a_beat_fences_who_read_before_it(ports: Ports) -> None:
    head = held(ports)
    ports.job_states.renew_leases([LeaseRenewal(key_of(head), RUN, 2, after(50))])
    assert list(ports.job_states.swap([Swap(next_of(head), 2, {RUN: None}, {RUN: LEASE})])) == [
        False
    ]


def test_a_beat_does_not_stand_in_the_way_of_a_swap(ports: Ports) -> None:
    head = held(ports)
    ports.job_states.renew_leases([LeaseRenewal(key_of(head), RUN, 2, after(50))])
    assert list(ports.job_states.swap([Swap(next_of(head), 2)])) == [True]
    assert stored(ports, head).leases[RUN].until == after(50)


def test_a_beat_reads_the_head_as_it_is(ports: Ports) -> None:
    """That is how a holder learns that it is to stop."""
    head = held(ports)
    newer = next_of(head)
    ports.job_states.swap([Swap(newer, 2)])
    assert list(ports.job_states.renew_leases([LeaseRenewal(key_of(head), RUN, 2, after(50))])) == [
        newer
    ]


def test_an_old_token_renews_nothing(ports: Ports) -> None:
    head = held(ports)
    assert list(ports.job_states.renew_leases([LeaseRenewal(key_of(head), RUN, 1, after(50))])) == [
        None
    ]
    assert dict(stored(ports, head).leases) == {RUN: LEASE}


def test_a_lost_lease_is_not_renewed(ports: Ports) -> None:
    head = held(ports)
    ports.job_states.swap([Swap(next_of(head), 2, {RUN: None})])
    assert list(ports.job_states.renew_leases([LeaseRenewal(key_of(head), RUN, 2, after(50))])) == [
        None
    ]
    assert dict(stored(ports, head).leases) == {}


def test_a_lease_taken_over_belongs_to_the_new_token(ports: Ports) -> None:
    head = held(ports)
    taken = Lease(token=3, until=after(60))
    ports.job_states.swap([Swap(next_of(head), 2, {RUN: taken})])
    beats = [
        LeaseRenewal(key_of(head), RUN, 2, after(70)),
        LeaseRenewal(key_of(head), RUN, 3, after(80)),
    ]
    assert list(ports.job_states.renew_leases(beats)) == [None, next_of(head)]
    assert stored(ports, head).leases[RUN].until == after(80)


def test_a_beat_of_a_job_that_is_not_there_is_refused(ports: Ports) -> None:
    assert list(
        ports.job_states.renew_leases([LeaseRenewal(JobKey("acme", JOB), RUN, 2, after(50))])
    ) == [None]


def test_each_of_many_beats_is_judged_alone(ports: Ports) -> None:
    heads = [a_head(an_id(n), version=2) for n in range(150)]
    ports.job_states.swap([Swap(head, 0, {RUN: LEASE}) for head in heads])
    beats = [
        LeaseRenewal(key_of(head), RUN, 2 if index % 3 else 1, after(50))
        for index, head in enumerate(heads)
    ]
    answers = list(ports.job_states.renew_leases(beats))
    assert answers == [head if index % 3 else None for index, head in enumerate(heads)]
