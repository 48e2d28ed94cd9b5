"""The rows of a job state, and the check whether a swap has won."""

from collections import Counter

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobStatus, has_won
from punctual.domain.run import Lease
from punctual.engine.ports.job_states import StoredState
from punctual.node.sqlite.state_rows import STATE_CODEC, JobStateRows, merge_leases, queue_rows
from tests.support.builders import RUN, a_job_state, a_run, after, an_id

LEASE = Lease(token=2, until=after(30))


def statements(old: StoredState | None, new: StoredState) -> list[str]:
    rows = JobStateRows(Counter())
    rows.add(1, old, new)
    return [" ".join(statement.split()[:3]) for statement, _ in rows.statements()]


@pytest.mark.parametrize(
    ("own_swap", "stored", "is_own"),
    [
        ((2, "m"), (2, "w m"), True),
        ((2, "m"), (3, "w m x"), True),
        ((2, "m"), (5, "m x y z"), True),
        ((2, "m"), (6, "x y z u"), False),
        ((2, "m"), (2, "w x"), False),
        ((3, "m"), (2, "w m"), False),
        ((3, "m"), (3, "w m x"), False),
        ((4, "m"), (5, "m w x y"), False),
        ((2, ""), (2, "w m"), False),
    ],
)
def test_write_id_counts_from_its_version_on(
    own_swap: tuple[int, str], stored: tuple[int, str], is_own: bool
) -> None:
    write_ids = tuple(stored[1].split())
    assert (
        has_won(a_job_state(version=own_swap[0], write_id=own_swap[1]), stored[0], write_ids)
        is is_own
    )


def test_new_job_state_is_inserted_and_a_stored_one_updated() -> None:
    old, new = StoredState(a_job_state(), {}), StoredState(a_job_state(version=2), {})
    assert statements(None, old) == ["INSERT INTO heads"]
    assert statements(old, new) == ["UPDATE heads SET"]


def test_update_names_only_the_changed_columns() -> None:
    state = a_job_state(next_at=after(60))
    runs, ended = (a_run(),), {"status": JobStatus.COMPLETED, "ended_at": after(60)}
    for new, names in (
        (replace(state, version=2), set()),
        (replace(state, next_at=after(90)), {"coming", "again"}),
        (replace(state, runs=runs), {"leased", "busy"}),
        (replace(state, next_at=None, **ended), {"state", "expires", "coming", "again"}),
    ):
        rows = JobStateRows(Counter())
        rows.add(1, StoredState(state, {}), StoredState(new, {}))
        (statement, ((packed, *_),)), *queue = rows.statements()
        assert [rows for _, rows in queue] == [[row] for row in queue_rows(new)]
        assignments = statement.removeprefix("UPDATE heads SET ").removesuffix(" WHERE id = ?")
        assert {assignment.partition(" = ")[0] for assignment in assignments.split(", ")} == {
            "head"
        } | names
        assert STATE_CODEC.decode(packed) == new


def test_renewed_lease_is_written_without_the_job_state() -> None:
    old = StoredState(a_job_state(), {RUN: LEASE})
    assert statements(old, StoredState(old.state, {RUN: Lease(2, after(50))})) == [
        "INSERT INTO leases"
    ]


def test_only_changed_leases_are_written() -> None:
    other = an_id(7)
    old = StoredState(a_job_state(), {RUN: LEASE, other: LEASE})
    assert statements(old, StoredState(a_job_state(version=2), dict(old.leases))) == [
        "UPDATE heads SET"
    ]
    without_lease = StoredState(a_job_state(version=2), {other: LEASE})
    assert statements(old, without_lease) == ["UPDATE heads SET", "DELETE FROM leases"]


def test_merged_leases_do_not_change_the_read_ones() -> None:
    read = {RUN: LEASE}
    assert merge_leases(read, {RUN: None, "b": LEASE}) == {"b": LEASE}
    assert read == {RUN: LEASE}
