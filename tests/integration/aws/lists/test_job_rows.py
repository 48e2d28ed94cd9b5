"""Rows of jobs in the lists: right after replays, reordered batches and crashes at any call."""

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from bench.cost.sizes import item_bytes
from punctual.aws.dynamodb.lists.job_row import (
    MAX_RECENT_OUTCOMES,
    DefinitionHead,
    RecentOutcome,
    derive_job_row,
    merge_outcomes,
    outcome_of,
    pack_outcomes,
    unpack_outcomes,
)
from punctual.aws.dynamodb.lists.job_rows import StoredJobRow
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.rows import JobKey
from tests.support.aws.crashing_lists import Crashed, CrashingLists
from tests.support.aws.moto_adapter import moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import (
    JOB,
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_run,
    after,
    an_id,
)

KEY = JobKey("acme", JOB)
HEAD = DefinitionHead(a_definition_row(JOB).name, {}, "")
ENDED_STATUSES = (RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.SKIPPED, RunStatus.CANCELLED)


class Lists(CrashingLists):
    def row(self, key: JobKey = KEY) -> StoredJobRow | None:
        return self.rows.load([key]).get(key)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def lists(clock: ManualClock) -> Iterator[Lists]:
    with moto(clock) as aws:
        yield Lists(aws, clock)


def ended(number: int, status: RunStatus = RunStatus.SUCCESS) -> Run:
    at = after(60 * number)
    return a_run(
        occurrence_id(JOB, at) if number % 2 else an_id(number),
        status,
        scheduled_at=at,
        due_at=at,
        started_at=at,
        attempt_at=at,
        ended_at=at + timedelta(seconds=number, microseconds=123_456),
    )


def history_of(count: int, chance: random.Random) -> list[JobState | None]:
    """Return the states of a job with `count` runs, each live, then ended, then forgotten."""
    states: list[JobState | None] = [None]
    version = 0
    for number in range(1, count + 1):
        last = ended(number, chance.choice(ENDED_STATUSES))
        live = replace(last, status=RunStatus.QUEUED, ended_at=None)
        steps: list[dict[str, Any]] = [{"runs": (live,)}, {"unrecorded": (last,)}, {}]
        for fields in steps:
            version += 1
            states.append(
                a_job_state(
                    version=version,
                    kind=ScheduleKind.CRON,
                    latest_run_id=live.run_id,
                    next_at=after(60 * number + 60),
                    **fields,
                )
            )
    return states


def records_of(stream: Stream, states: Sequence[JobState | None]) -> list[Any]:
    return [stream.of(old, new) for old, new in pairwise(states)]


def test_row_has_definition_state_and_newest_outcomes(lists: Lists) -> None:
    states = history_of(40, random.Random(1))
    for record in records_of(lists.stream, states):
        lists.follow([record])
    stored = lists.row()
    assert stored is not None
    assert stored.version == 119, "the last change only forgets a run"
    assert stored.row.name == a_definition_row(JOB).name
    assert stored.row.next_at == after(60 * 41)
    assert (stored.row.has_run, stored.row.live_runs) == (True, 0)
    assert [outcome.scheduled_at for outcome in stored.outcomes] == [
        after(60 * number) for number in range(40, 10, -1)
    ]


def test_batch_writes_row_once_and_reads_none_for_first_runs(
    lists: Lists, clock: ManualClock
) -> None:
    states = [
        None,
        a_job_state(version=1, kind=ScheduleKind.IMMEDIATE),
        a_job_state(version=2, kind=ScheduleKind.IMMEDIATE, runs=(a_run(),)),
        a_job_state(version=3, kind=ScheduleKind.IMMEDIATE, unrecorded=(ended(1),)),
    ]
    records = records_of(lists.stream, states)
    # The definition, the row of the job, and two writes of the counts.
    calls = {"BatchGetItem": 1, "UpdateItem": 3}
    assert lists.aws.spend(lambda: lists.follow(records)) == calls
    clock.advance(timedelta(seconds=1))
    assert lists.aws.spend(lambda: lists.follow(records)) == calls
    stored = lists.row()
    assert stored is not None
    assert stored.outcomes == [outcome_of(ended(1))]


@pytest.mark.parametrize("seed", range(25))
def test_row_is_the_same_after_crashes_replays_and_any_order(lists: Lists, seed: int) -> None:
    """The batches of one job are split, repeated, cut off by crashes, and partly reordered."""
    chance = random.Random(seed)
    states = history_of(chance.randint(1, 12), chance)
    records = records_of(lists.stream, states)
    batches: list[list[Any]] = []
    start = 0
    while start < len(records):
        size = chance.randint(1, 5)
        batches.append(records[start : start + size])
        start += size
    deliveries = [batch for batch in batches for _ in range(chance.choice((1, 1, 2)))]
    for _ in range(chance.randint(0, 4)):  # parked batches that an operator sends again
        deliveries.append(deliveries.pop(chance.randrange(len(deliveries))))
    for batch in deliveries:
        lists.crash_in = chance.choice((None, 0, 1, 2))
        for _ in range(9):
            try:
                lists.follow(batch)
                break
            except (Crashed, Unavailable):
                continue
        lists.crash_in = None
    stored = lists.row()
    assert stored is not None
    final = states[-1]
    assert final is not None
    assert stored.row == derive_job_row(final, HEAD)
    runs = {run.run_id: run for state in states if state for run in state.unrecorded}
    assert stored.outcomes == merge_outcomes((), map(outcome_of, runs.values()))


def test_row_expires_with_its_job_and_gives_way_to_a_later_one(
    lists: Lists, clock: ManualClock
) -> None:
    over = a_job_state(version=9, status=JobStatus.COMPLETED, ended_at=NOON, unrecorded=(ended(1),))
    lists.follow([lists.stream.of(None, over)])
    assert lists.row() is not None
    clock.now = NOON + timedelta(days=31)
    assert lists.row() is None
    lists.follow([lists.stream.of(None, a_job_state(version=1))])
    stored = lists.row()
    assert stored is not None
    assert (stored.version, stored.outcomes) == (1, [])


def test_reopened_job_keeps_its_row(lists: Lists, clock: ManualClock) -> None:
    over = a_job_state(version=1, status=JobStatus.COMPLETED, ended_at=NOON)
    lists.follow([lists.stream.of(None, over)])
    lists.follow([lists.stream.of(over, a_job_state(version=2))])
    clock.now = NOON + timedelta(days=31)
    assert lists.row() is not None


def test_job_without_definition_is_listed_until_it_expires(
    lists: Lists, clock: ManualClock
) -> None:
    key = JobKey("acme", an_id(7))
    over = a_job_state(an_id(7), version=1, status=JobStatus.CANCELLED, ended_at=NOON)
    lists.follow([lists.stream.of(None, over)])
    assert lists.row(key) is not None
    row_key = lists.rows.row_key(key).item()
    lists.aws.clients.dynamodb.delete_item(TableName=lists.aws.settings.lists_table, Key=row_key)
    clock.now = NOON + timedelta(days=31)
    lists.follow([lists.stream.of(None, over)])
    assert key.job_id not in [row["sk"]["S"] for row in lists.aws.rows("lists")]


def test_row_of_usual_job_with_thirty_outcomes_takes_one_write_unit(lists: Lists) -> None:
    for record in records_of(lists.stream, history_of(30, random.Random(3))):
        lists.follow([record])
    item = row_of(lists)
    assert item_bytes(item) <= 1024


def test_packed_outcomes_keep_ids_times_and_statuses() -> None:
    outcomes = [
        RecentOutcome(after(61.000001), "not a UUID", RunStatus.MISSED),
        RecentOutcome(
            after(60), occurrence_id(JOB, after(60)), RunStatus.SUCCESS, timedelta(microseconds=7)
        ),
        RecentOutcome(NOON, an_id(3), RunStatus.TIMED_OUT),
        RecentOutcome(NOON, an_id(2), RunStatus.FAILED),
        RecentOutcome(NOON - timedelta(days=20_000), "0" * 36, RunStatus.SKIPPED),
    ]
    assert unpack_outcomes(JOB, pack_outcomes(JOB, outcomes)) == outcomes


def test_merge_keeps_the_newest_outcomes_of_both() -> None:
    outcomes = [outcome_of(ended(number)) for number in range(50)]
    merged = merge_outcomes(outcomes[::2], outcomes[1::2])
    assert merged == outcomes[: -MAX_RECENT_OUTCOMES - 1 : -1]
    assert merge_outcomes(merged, outcomes) == merge_outcomes(outcomes, merged) == merged


def row_of(lists: Lists) -> dict[str, Any]:
    (row,) = [row for row in lists.aws.rows("lists") if "#jobs#" in row["pk"]["S"]]
    return row
