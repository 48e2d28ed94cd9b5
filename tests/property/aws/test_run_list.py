"""The list of all runs of a tenant: each run once, in its latest form, however it was written."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.aws.dynamodb.lists.runs import (
    LIVE_RUN_RETENTION,
    MAX_PAGES_PER_SLOT,
    RunEntry,
    TenantRunList,
)
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import TooMuchWork
from punctual.domain.identifiers import sortable_id
from punctual.domain.run import ENDED_RUN_STATUSES, RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import Page
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from tests.support.aws.list_table import ListTable
from tests.support.builders import NOON, a_row, a_run, an_id
from tests.support.examples import examples

SLOTS = 3
LIVES: Sequence[Sequence[RunStatus | None]] = (
    (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUCCESS),
    (RunStatus.WAITING, RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING, RunStatus.FAILED),
    (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.QUEUED, RunStatus.RUNNING),
    (RunStatus.QUEUED, None),  # fired ahead and withdrawn
    (RunStatus.SKIPPED,),
    (RunStatus.WAITING,),
)

Name = tuple[str, str]  # run id and job id


class Change(NamedTuple):
    """A change of a run, as a record of the stream tells of it."""

    name: Name
    version: int
    status: RunStatus | None

    def entry(self) -> RunEntry:
        run_id, job_id = self.name
        is_ended = self.status in ENDED_RUN_STATUSES
        run = a_run(run_id, self.status or RunStatus.QUEUED, ended_at=NOON if is_ended else None)
        expires_at = NOON + (HISTORY_RETENTION if is_ended else LIVE_RUN_RETENTION)
        row = a_row(run_id, job_id, run=run, expires_at=expires_at)
        return RunEntry(row, self.version, self.status is None)


def stream_of(dice: Random, job_count: int) -> list[Change]:
    """Return the changes of some jobs. Those of one job are in order, jobs in any order."""
    jobs = []
    for number in range(job_count):
        job_id = an_id(9_000 + number)
        changes: list[Change] = []
        waiting_lives = [
            [(name, status) for status in dice.choice(LIVES)]
            for name in {
                (
                    sortable_id(NOON + timedelta(seconds=dice.randrange(30)), dice.randbytes(10)),
                    job_id,
                )
                for _ in range(dice.randrange(1, 4))
            }
        ]
        while waiting_lives:
            life = dice.choice(waiting_lives)
            name, status = life.pop(0)
            changes.append(Change(name, len(changes) + 1, status))
            waiting_lives = [life for life in waiting_lives if life]
        jobs.append(changes)
    stream = []
    while jobs:
        changes = dice.choice(jobs)
        stream.append(changes.pop(0))
        jobs = [changes for changes in jobs if changes]
    return stream


def batches_of(dice: Random, stream: Sequence[Change]) -> Iterator[Sequence[Change]]:
    start = 0
    while start < len(stream):
        end = start + dice.randrange(1, 9)
        yield stream[start:end]
        start = end


def write(runs: TenantRunList, batch: Sequence[Change]) -> None:
    """Write the last change of each run of a batch, as the status function does."""
    runs.append([change.entry() for change in {c.name: c for c in batch}.values()])


def write_with_faults(
    runs: TenantRunList, dice: Random, batches: Sequence[Sequence[Change]]
) -> None:
    """Write each batch at least once: in parts, again, and after batches of other jobs."""
    for number, batch in enumerate(batches):
        if dice.random() < 0.3:
            write(runs, batch[: dice.randrange(len(batch) + 1)])
        if dice.random() < 0.2:
            half = dice.randrange(len(batch) + 1)
            write(runs, batch[:half])
            write(runs, batch[half:])
        else:
            write(runs, batch)
        if dice.random() < 0.2:
            write(runs, batches[dice.randrange(number + 1)])


def latest_of(stream: Sequence[Change]) -> dict[Name, RunStatus]:
    last = {change.name: change.status for change in stream}
    return {name: status for name, status in last.items() if status is not None}


def page(
    runs: TenantRunList, filters: RunFilters, limit: int, after: tuple[str, ...] | None
) -> Page:
    answer = finish(runs.page("acme", filters, limit, after, NOON))
    assert len(answer.items) <= limit
    return answer


def read_all(runs: TenantRunList, filters: RunFilters, limit: int) -> list[RunView]:
    views: list[RunView] = []
    after: tuple[str, ...] | None = None
    for _ in range(1_000):
        answer = page(runs, filters, limit, after)
        views += answer.items
        if answer.next_cursor is None:
            return views
        assert after is None or answer.next_cursor < after
        after = answer.next_cursor
    raise AssertionError("the list does not end")


def named(views: Sequence[RunView]) -> list[tuple[Name, RunStatus]]:
    return [((view.run.run_id, view.job_id), view.run.status) for view in views]


seeds = st.integers(0, 2**32)


@settings(max_examples=examples(300))
@given(seeds, st.sampled_from([1, 2, 7, 50]), st.sampled_from([20, 60, 1_000]))
def test_reader_of_all_pages_sees_each_run_once_in_its_latest_form(
    seed: int, limit: int, page_rows: int
) -> None:
    dice = Random(seed)
    table = ListTable(page_rows)
    runs = TenantRunList(table.client, "lists", SLOTS)
    stream = stream_of(dice, dice.randrange(1, 12))
    write_with_faults(runs, dice, list(batches_of(dice, stream)))
    latest = latest_of(stream)
    expected = sorted(latest.items(), reverse=True)
    assert named(read_all(runs, RunFilters(), limit)) == expected
    statuses = frozenset({"RUNNING", "SUCCESS", "WAITING"})
    matching = [(name, status) for name, status in expected if status in statuses]
    assert named(read_all(runs, RunFilters(status=statuses), limit)) == matching


@settings(max_examples=examples(300))
@given(seeds, st.sampled_from([1, 3, 10]))
def test_pages_are_complete_and_without_doubles_while_runs_are_added_and_change(
    seed: int, limit: int
) -> None:
    dice = Random(seed)
    table = ListTable(60)
    runs = TenantRunList(table.client, "lists", SLOTS)
    stream = stream_of(dice, 10)
    batches = list(batches_of(dice, stream))
    begun = dice.randrange(len(batches))
    write_with_faults(runs, dice, batches[:begun])
    written = [change for batch in batches[:begun] for change in batch]
    at_first = latest_of(written)
    seen: list[tuple[Name, RunStatus]] = []
    after: tuple[str, ...] | None = None
    for number in range(1_000):
        answer = page(runs, RunFilters(), limit, after)
        for name, status in named(answer.items):
            assert latest_of(written)[name] == status
            seen.append((name, status))
        after = answer.next_cursor
        if after is None:
            break
        if begun + number < len(batches):
            write(runs, batches[begun + number])
            written += batches[begun + number]
    names = [name for name, _ in seen]
    assert names == sorted(set(names), reverse=True), "in order, each once"
    assert {name for name in at_first if name in latest_of(written)} <= set(names)


def test_batch_written_again_adds_no_row() -> None:
    dice = Random(1)
    table = ListTable()
    runs = TenantRunList(table.client, "lists", SLOTS)
    batch = stream_of(dice, 9)
    write(runs, batch)
    row_count = table.row_count
    write(runs, batch)
    assert table.row_count == row_count


def some_runs(count: int, seconds: float) -> list[Change]:
    """Return ended runs with ids that are so many seconds apart."""
    return [
        Change((an_id(n, NOON + n * timedelta(seconds=seconds)), an_id(1)), 1, RunStatus.SUCCESS)
        for n in range(count)
    ]


def test_call_reads_a_bounded_number_of_pages_and_goes_on_by_token() -> None:
    table = ListTable(page_rows=5)
    runs = TenantRunList(table.client, "lists", SLOTS)
    changes = some_runs(300, seconds=10)
    for change in changes:
        write(runs, [change])
    nothing = RunFilters(status=frozenset({"FAILED"}))
    answer = page(runs, nothing, 10, None)
    assert (answer.items, answer.next_cursor is None) == ([], False)
    assert len(table.pages_read) == SLOTS * MAX_PAGES_PER_SLOT
    assert read_all(runs, nothing, 10) == []
    assert [name for name, _ in named(read_all(runs, RunFilters(), 10))] == [
        change.name for change in reversed(changes)
    ]


def test_too_many_runs_of_one_moment_are_refused_with_advice() -> None:
    table = ListTable(page_rows=5)
    runs = TenantRunList(table.client, "lists", SLOTS)
    for change in some_runs(300, seconds=0.001):
        write(runs, [change])
    with pytest.raises(TooMuchWork, match=r"2026-03-02T1.*use `to`"):
        page(runs, RunFilters(), 10, None)


def test_filter_reads_no_groups_below_its_range() -> None:
    table = ListTable(page_rows=5)
    runs = TenantRunList(table.client, "lists", SLOTS)
    for change in some_runs(300, seconds=3_600):
        write(runs, [change])
    late = RunFilters(frozenset({"SUCCESS"}), start=NOON + timedelta(hours=10_000))
    answer = page(runs, late, 10, None)
    assert (answer.items, answer.next_cursor) == ([], None)
    assert len(table.pages_read) == SLOTS
