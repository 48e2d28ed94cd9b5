"""Open failures of the node: written with the history rows, closed by successes and cancels."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.failures import Acknowledgement, Failure
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.failures import FailureCounts
from punctual.engine.ports.rows import Detail, RunRow
from punctual.node.sqlite.store import Store
from tests.support.builders import JOB, NOON, ManualClock, a_job_state, a_row, a_run, after, an_id

ACKNOWLEDGEMENT = Acknowledgement("ann", NOON, "known")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = Store.open(folder, ManualClock(NOON))
    yield store
    store.close()


def ended(number: int, status: str = "FAILED", error: str = "it broke", **fields: Any) -> RunRow:
    """Return the row of a run that ended `number` seconds after noon."""
    run = a_run(
        an_id(number), RunStatus(status), attempt_at=after(number - 0.5), ended_at=after(number)
    )
    return a_row(an_id(number), run=run, detail=Detail(error=error), **fields)


def open_failures(store: Store, tenant: str = "acme") -> list[Failure]:
    return list(store.failures.page(tenant, 100, None).failures)


def put_and_fail(store: Store, row: RunRow) -> None:
    with store.transaction():
        store.history.put_runs([row])
        store.history.flush()
        raise RuntimeError


def test_failure_is_open_until_a_success(store: Store) -> None:
    store.history.put_runs([ended(1)])
    store.history.put_runs([ended(2, error="it broke 2 times"), ended(3)])
    first, second = open_failures(store)
    assert [(failure.error, failure.count) for failure in (first, second)] == [
        ("it broke", 2),
        ("it broke 2 times", 1),
    ]
    store.history.put_runs([ended(4, "SUCCESS")])
    assert open_failures(store) == []


def test_success_in_the_same_commit_closes_the_failure(store: Store) -> None:
    store.history.put_runs([ended(1), ended(2, "SUCCESS")])
    assert open_failures(store) == []
    store.history.put_runs([ended(3, "SUCCESS"), ended(4)])
    assert [failure.last_at for failure in open_failures(store)] == [after(4)]


def test_success_of_another_job_or_tenant_closes_nothing(store: Store) -> None:
    store.history.put_runs([ended(1)])
    store.history.put_runs([ended(2, "SUCCESS", job_id=an_id(2))])
    store.history.put_runs([ended(3, "SUCCESS", tenant="umbrella")])
    assert len(open_failures(store)) == 1
    assert open_failures(store, "umbrella") == []


def test_failures_survive_a_restart(store: Store, folder: Path) -> None:
    store.history.put_runs([ended(1)])
    known = store.failures.acknowledge("acme", open_failures(store)[0].failure_id, ACKNOWLEDGEMENT)
    store.close()
    again = Store.open(folder, ManualClock(NOON))
    try:
        assert open_failures(again) == [known]
        again.history.put_runs([ended(2, "SUCCESS")])
        assert open_failures(again) == []
    finally:
        again.close()


def test_rolled_back_commit_leaves_the_failures_as_they_were(store: Store) -> None:
    store.history.put_runs([ended(1)])
    before = open_failures(store)
    for row in (ended(2), ended(3, "SUCCESS"), ended(4, job_id=an_id(2))):
        with pytest.raises(RuntimeError):
            put_and_fail(store, row)
        assert open_failures(store) == before
    store.history.put_runs([ended(5, "SUCCESS")])
    assert open_failures(store) == []


def test_acknowledged_failure_is_counted_apart(store: Store) -> None:
    store.history.put_runs([ended(1), ended(2, error="it broke otherwise")])
    failure_id = open_failures(store)[0].failure_id
    assert store.failures.counts("acme") == FailureCounts(0, 2, None, after(1))
    known = store.failures.acknowledge("acme", failure_id, ACKNOWLEDGEMENT)
    assert known is not None
    assert known.acknowledged == ACKNOWLEDGEMENT
    assert store.failures.counts("acme") == FailureCounts(1, 1, after(2), after(1))
    assert store.failures.counts("umbrella") == FailureCounts(0, 0)
    for tenant, wrong_id in (("umbrella", failure_id), ("acme", JOB), ("acme", "x"), ("acme", "")):
        assert store.failures.acknowledge(tenant, wrong_id, ACKNOWLEDGEMENT) is None


def test_cancel_of_the_job_closes_its_failures_in_any_order(store: Store) -> None:
    store.job_states.swap([Swap(a_job_state(), 0)])
    store.history.put_runs([ended(1)])
    with store.transaction():
        store.history.put_runs([ended(2, error="it broke otherwise")])
        cancelled = a_job_state(version=2, status=JobStatus.CANCELLED, ended_at=NOON)
        assert store.job_states.swap([Swap(cancelled, 1)]) == [True]
    assert open_failures(store) == []


def test_expired_job_has_no_failures(store: Store) -> None:
    done = a_job_state(status=JobStatus.COMPLETED, ended_at=NOON)
    store.job_states.swap([Swap(done, 0)])
    store.history.put_runs([ended(1)])
    store.purge(NOON + HISTORY_RETENTION - timedelta(days=1), 100)
    assert len(open_failures(store)) == 1
    store.purge(NOON + HISTORY_RETENTION + timedelta(days=1), 100)
    assert open_failures(store) == []


def test_failures_are_paged_with_the_last_that_happened_first(store: Store) -> None:
    rows = [ended(number, job_id=an_id(number % 7)) for number in range(1, 15)]
    store.history.put_runs([*rows, ended(20, job_id=an_id(3), error="it broke otherwise")])
    shown: list[Failure] = []
    cursor = None
    for _ in range(10):
        page = store.failures.page("acme", 3, cursor)
        assert len(page.failures) <= 3
        shown += page.failures
        cursor = page.next_cursor
        if cursor is None:
            break
    assert shown == open_failures(store)
    assert [failure.last_at for failure in shown] == [after(n) for n in (20, *range(14, 7, -1))]


def test_unreadable_failure_hides_no_other(store: Store) -> None:
    store.history.put_runs([ended(1), ended(2, job_id=an_id(2))])
    with store.transaction():
        store.transaction().begin()
        store.transaction().db.execute(
            "UPDATE failures SET failure = x'00' WHERE last = ?",
            (int(after(1).timestamp() * 1_000_000),),
        )
    assert [failure.job_id for failure in open_failures(store)] == [an_id(2)]
    assert [warning.code for warning in store.warnings()] == ["ROWS_UNREADABLE"]
