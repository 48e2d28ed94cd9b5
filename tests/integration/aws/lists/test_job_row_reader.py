"""Reads of the rows of jobs: complete pages, bounded calls, changed numbers of slots."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from punctual.aws.dynamodb.lists import job_index as index_module
from punctual.aws.dynamodb.lists import job_row_reader as module
from punctual.aws.dynamodb.lists.job_row_reader import JobRowReader, ListedJob
from punctual.aws.ports import build_aws_ports
from punctual.domain.errors import Invalid
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import JobFilters, JobQuery, JobSort, Position
from punctual.engine.ports.rows import JobKey
from tests.support.aws.job_lists import JobLists
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

IDS = [an_id(number) for number in range(30)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def aws(clock: ManualClock) -> Iterator[Moto]:
    with moto(clock) as aws:
        yield aws


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_PAGE_ROWS", 2)
    monkeypatch.setattr(module, "MAX_PAGES_PER_SLOT", 2)


def reader(aws: Moto, clock: ManualClock, slots: int = 4) -> JobRowReader:
    dynamo = aws.ports.job_states._dynamo
    return JobRowReader(dynamo, aws.settings.lists_table, slots, clock)


def put(aws: Moto, *states: JobState) -> None:
    aws.ports.job_states.put_definitions([a_definition_row(state.job_id) for state in states])
    assert all(aws.ports.job_states.swap([Swap(state, 0) for state in states]))


def scanned(rows: JobRowReader) -> tuple[list[str], int]:
    """Return the ids of all jobs, by as many calls as it takes, and the number of calls."""
    job_ids: list[str] = []
    before = None
    for call in range(1, 100):
        entries = list(rows.scan("acme", before))
        job_ids += [entry.job_id for entry in entries if isinstance(entry, ListedJob)]
        before = entries[-1] if entries and isinstance(entries[-1], str) else None
        if before is None:
            return job_ids, call
    raise AssertionError("the list does not end")


def test_scan_yields_each_job_once_newest_first(aws: Moto, clock: ManualClock) -> None:
    put(aws, *(a_job_state(job_id) for job_id in IDS))
    assert scanned(reader(aws, clock)) == (IDS[::-1], 1)


def test_scan_reads_few_pages_a_call_and_goes_on(
    aws: Moto, clock: ManualClock, small_pages: None
) -> None:
    put(aws, *(a_job_state(job_id) for job_id in IDS))
    rows = reader(aws, clock)
    job_ids, calls = scanned(rows)
    assert job_ids == IDS[::-1]
    assert calls > 1
    assert aws.spend(lambda: list(rows.scan("acme")))["Query"] <= 2 * 4


def test_tenant_with_too_many_rows_is_not_read_whole(
    aws: Moto, clock: ManualClock, small_pages: None
) -> None:
    put(aws, *(a_job_state(job_id) for job_id in IDS[:4]))
    jobs = reader(aws, clock).read_all("acme")
    assert jobs is not None
    assert sorted(job.job_id for job in jobs) == IDS[:4]
    put(aws, *(a_job_state(job_id) for job_id in IDS[4:]))
    assert reader(aws, clock).read_all("acme") is None
    assert aws.ports.job_states.upcoming("acme", (NOON, ""), after(60), 5, 100) is None


def test_row_in_a_slot_of_another_number_of_slots_shows_once(aws: Moto, clock: ManualClock) -> None:
    put(aws, *(a_job_state(job_id) for job_id in IDS))
    settings = aws.settings.__class__.from_env(
        {**aws.settings.to_env(), "PUNCTUAL_LIST_SLOTS": "7"}
    )
    JobLists(aws.clients.dynamodb, settings, clock).follow()
    assert scanned(reader(aws, clock, slots=7))[0] == IDS[::-1]
    page = reader(aws, clock, slots=7).page("acme", None, 10)
    assert list(page.job_ids) == IDS[:-11:-1]


def test_expired_rows_do_not_show(aws: Moto, clock: ManualClock) -> None:
    put(aws, a_job_state(IDS[0]))
    put(aws, a_job_state(IDS[1], status=JobStatus.COMPLETED, ended_at=NOON))
    clock.now = NOON + timedelta(days=31)
    assert scanned(reader(aws, clock))[0] == IDS[:1]
    assert list(reader(aws, clock).page("acme", None, 10).job_ids) == IDS[:1]


def test_jobs_with_held_runs_are_found(aws: Moto, clock: ManualClock) -> None:
    held = a_run("r", RunStatus.RUNNING, token=1, executor_id="e", changed_at=after(1))
    put(aws, *(a_job_state(job_id) for job_id in IDS[:20]))
    put(aws, a_job_state(IDS[20], runs=(held,)), a_job_state(IDS[21], runs=(a_run("q"),)))
    assert list(reader(aws, clock).held_jobs("acme", 10)) == [JobKey("acme", IDS[20])]
    assert list(reader(aws, clock).held_jobs("other", 10)) == []
    states = aws.ports.job_states.load_held_states("acme", 10)
    assert [key.job_id for key in states] == [IDS[20]]
    free = a_job_state(IDS[20], version=2)
    assert aws.ports.job_states.swap([Swap(free, 1, {"r": None})]) == [True]
    assert list(reader(aws, clock).held_jobs("acme", 10)) == []


def test_page_shows_job_states_as_they_are_and_drops_gone_jobs(
    aws: Moto, clock: ManualClock
) -> None:
    """Only the membership of the list lags. Its content is read from the job states."""
    put(aws, *(a_job_state(job_id) for job_id in IDS[:3]))
    lagging = build_aws_ports(aws.settings, clock, aws.clients).job_states
    changed = a_job_state(IDS[1], version=2, status=JobStatus.PAUSED, write_id="w2")
    assert lagging.swap([Swap(changed, 1)]) == [True]
    key = {"pk": {"S": f"acme#{IDS[0]}"}, "sk": {"S": "state"}}
    aws.clients.dynamodb.delete_item(TableName=aws.settings.jobs_table, Key=key)
    page = aws.ports.job_states.page("acme", None, 10)
    assert [(state.job_id, state.status) for state, _ in page.items] == [
        (IDS[2], JobStatus.SCHEDULED),
        (IDS[1], JobStatus.PAUSED),
    ]


def test_upcoming_jobs_are_chosen_by_their_rows(aws: Moto, clock: ManualClock) -> None:
    put(aws, *(a_job_state(job_id, next_at=after(60 * n)) for n, job_id in enumerate(IDS[:9])))
    spent = aws.spend(
        lambda: aws.ports.job_states.upcoming("acme", (after(90), ""), after(3_600), 3, 100)
    )
    assert spent == {"Query": 4, "BatchGetItem": 1}
    upcoming = aws.ports.job_states.upcoming("acme", (after(90), ""), after(3_600), 3, 100)
    assert upcoming is not None
    assert [state.job_id for state in upcoming.states] == IDS[2:5]
    assert upcoming.complete_until == (after(240), IDS[4])


def test_order_of_too_many_jobs_is_refused_and_filters_are_not(
    aws: Moto, clock: ManualClock, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(aws, *(a_job_state(job_id) for job_id in IDS[:4]))
    monkeypatch.setattr(index_module, "MAX_SORTED_JOBS", 3)
    index = aws.ports.job_index
    for sort in (JobSort.NAME, JobSort.NEXT_RUN):
        with pytest.raises(Invalid) as refused:
            index.page("acme", JobQuery(sort=sort), 10, None, NOON)
        assert [error.field for error in refused.value.errors] == ["sort"]
    put(aws, *(a_job_state(job_id) for job_id in IDS[4:]))
    query = JobQuery(JobFilters(name="cleanup"))
    positions: list[Position] = []
    cursor: Position | None = None
    for _ in range(100):
        page = index.page("acme", query, 4, cursor, NOON)
        positions += page.positions
        cursor = page.next_cursor
        if cursor is None:
            break
    assert positions == [(job_id,) for job_id in IDS[::-1]]
