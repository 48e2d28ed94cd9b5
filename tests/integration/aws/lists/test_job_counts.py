"""Counts of jobs: equal to the rows of the list after replays, reordered batches and crashes."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from bench.cost.sizes import item_bytes
from punctual.aws.dynamodb.lists.job_counts import CountedWrites, JobCounts, part_key
from punctual.aws.dynamodb.lists.job_rows import CLASS_ATTR, JobRows
from punctual.aws.dynamodb.stream_records import parse_record
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import JobKey
from punctual.identity import new_id
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.job_list import JobListWriter
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import NOON, ManualClock, a_definition_row, a_job_state, a_run, an_id

JOBS = [an_id(number) for number in range(1, 7)]
DAY = timedelta(days=1)


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class Lists:
    """The writer of rows and counts over moto, with faults that the test chooses."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        self.aws, self.clock = aws, clock
        self.stream = Stream(aws)
        aws.ports.job_states.put_definitions([a_definition_row(job_id) for job_id in JOBS])
        self.dynamo = aws.ports.job_states._dynamo
        self.table = aws.settings.lists_table
        self.crash_in: int | None = None
        self.counts = JobCounts(self.dynamo, self.table, 4)
        self.restart()
        for moment in ("before-call", "after-call"):
            aws.clients.dynamodb.meta.events.register(f"{moment}.dynamodb.*", self._step)

    def restart(self) -> None:
        self.rows = JobRows(self.dynamo, self.table, 4, self.clock, new_id(self.clock))
        self.writer = JobListWriter(self.rows, DefinitionCache(self.aws.ports.job_states))

    def _step(self, **_: Any) -> None:
        """Crash before a call, or after it, so that its answer is lost."""
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in == 0:
                self.crash_in = None
                raise Crashed

    def follow(self, records: Sequence[Any]) -> None:
        parsed = [parse_record(record) for record in records]
        self.writer.write_changes(
            [(record, compare_states(record.old, record.new)) for record in parsed if record],
            self.clock(),
        )

    def deliver(self, records: Sequence[Any], crash_in: int | None) -> None:
        """Deliver a batch until it succeeds, as Lambda does. The first try crashes at a call."""
        self.crash_in = crash_in
        for _ in range(9):
            try:
                self.follow(records)
                break
            except (Crashed, Unavailable):
                self.restart()
        else:
            raise AssertionError("the batch never succeeds")
        self.crash_in = None

    def counted(self) -> dict[str, int]:
        counts = self.counts.read("acme").by_class
        return {name: count for name, count in counts.items() if count}

    def listed(self) -> dict[str, int]:
        """Return the number of rows by class."""
        rows = [row for row in self.aws.rows("lists") if CLASS_ATTR in row]
        return dict(Counter(row[CLASS_ATTR]["S"] for row in rows))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def lists(clock: ManualClock) -> Iterator[Lists]:
    with moto(clock) as aws:
        yield Lists(aws, clock)


def history_of(job_id: str, chance: random.Random) -> list[JobState | None]:
    """Return the states of a job that is created, runs, is paused, resumed, ended and reopened."""
    states: list[JobState | None] = [None]
    for version in range(1, chance.randint(2, 9)):
        status = chance.choice(list(JobStatus))
        is_over = status in (JobStatus.COMPLETED, JobStatus.CANCELLED)
        ended_at = NOON - chance.choice((0, 1)) * DAY if is_over else None
        runs = (a_run(an_id(100 + version)),) if chance.random() < 0.3 else ()
        states.append(
            a_job_state(job_id, version=version, status=status, ended_at=ended_at, runs=runs)
        )
    return states


def deliveries_of(records: Sequence[Any], chance: random.Random) -> list[list[Any]]:
    """Return batches of these records: of any size, some repeated, split, late or again later."""
    batches: list[list[Any]] = []
    start = 0
    while start < len(records):
        size = chance.randint(1, 7)
        batches.append(list(records[start : start + size]))
        start += size
    deliveries: list[list[Any]] = []
    for batch in batches:
        deliveries.append(batch)
        if chance.random() < 0.3:
            middle = chance.randint(0, len(batch))
            deliveries += [part for part in (batch[:middle], batch[middle:]) if part]
    for _ in range(chance.randint(0, 4)):
        deliveries.insert(
            chance.randrange(len(deliveries)), deliveries.pop(chance.randrange(len(deliveries)))
        )
    return deliveries


@pytest.mark.parametrize("seed", range(60))
def test_counts_equal_rows_after_crashes_replays_and_any_order(lists: Lists, seed: int) -> None:
    chance = random.Random(seed)
    histories = {job_id: history_of(job_id, chance) for job_id in JOBS}
    streams = [
        [lists.stream.of(old, new) for old, new in pairwise(states)]
        for states in histories.values()
    ]
    records: list[Any] = []
    while any(streams):
        records.append(chance.choice([stream for stream in streams if stream]).pop(0))
    for batch in deliveries_of(records, chance):
        lists.deliver(batch, chance.choice((None, *range(1, 30))))
    final = Counter(lists.listed())
    assert lists.counted() == final
    latest = [states[-1] for states in histories.values()]
    statuses = Counter(state.status.value for state in latest if state is not None)
    assert lists.counts.read("acme").by_status(NOON) == statuses
    assert lists.counts.live_jobs("acme") == statuses["SCHEDULED"] + statuses["PAUSED"]


def test_crash_at_each_call_counts_once(lists: Lists) -> None:
    """A batch creates, pauses and cancels jobs. It crashes at each call, and is repeated."""
    for crash_in in range(1, 60):
        jobs = [an_id(1_000 + 10 * crash_in + number) for number in range(4)]
        before = Counter(lists.counted())
        lists.follow([lists.stream.of(None, a_job_state(job_id, version=1)) for job_id in jobs[1:]])
        created = a_job_state(jobs[0], version=1)
        batch = [
            lists.stream.of(None, created),
            lists.stream.of(
                a_job_state(jobs[1], version=1),
                a_job_state(jobs[1], version=2, status=JobStatus.PAUSED),
            ),
            lists.stream.of(
                a_job_state(jobs[2], version=1),
                a_job_state(jobs[2], version=2, status=JobStatus.CANCELLED, ended_at=NOON),
            ),
            lists.stream.of(a_job_state(jobs[3], version=1), a_job_state(jobs[3], version=2)),
        ]
        lists.deliver(batch, crash_in)
        added = Counter(lists.counted())
        added.subtract(before)
        assert {name[0]: number for name, number in added.items() if number} == {
            "S": 2,
            "P": 1,
            "X": 1,
        }, crash_in
    assert lists.counted() == lists.listed()


def test_next_change_counts_what_a_crashed_batch_did_not(lists: Lists) -> None:
    created = a_job_state(JOBS[0], version=1)
    lists.crash_in = 6  # between the write of the row and the end of the batch
    with pytest.raises(Crashed):
        lists.follow([lists.stream.of(None, created)])
    assert (lists.counted(), lists.listed()) == ({}, {"S": 1})
    lists.restart()
    paused = a_job_state(JOBS[0], version=2, status=JobStatus.PAUSED)
    lists.follow([lists.stream.of(created, paused)])
    assert lists.counted() == {"P": 1}


def test_run_of_a_job_costs_no_write_of_counts(lists: Lists) -> None:
    states = [
        None,
        a_job_state(JOBS[0], version=1),
        a_job_state(JOBS[0], version=2, runs=(a_run(),)),
        a_job_state(JOBS[0], version=3),
    ]
    created, *changes = (lists.stream.of(old, new) for old, new in pairwise(states))
    lists.follow([created])
    assert lists.aws.spend(lambda: lists.follow(changes)) == {"UpdateItem": 1}
    assert lists.counted() == {"S": 1}


def test_batch_of_many_jobs_writes_counts_twice_and_one_unit_each(lists: Lists) -> None:
    created = [
        lists.stream.of(None, a_job_state(an_id(100 + number), version=1)) for number in range(90)
    ]
    lists.aws.ports.job_states.put_definitions(
        [a_definition_row(an_id(100 + number)) for number in range(90)]
    )
    assert lists.aws.spend(lambda: lists.follow(created))["UpdateItem"] == 90 + 2
    assert lists.counted() == {"S": 90}


def test_part_stays_under_a_unit_and_forgets_expired_jobs(lists: Lists, clock: ManualClock) -> None:
    number = 0
    for _ in range(40):
        for status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
            for _ in range(4):
                number += 1
                state = a_job_state(
                    an_id(number), version=1, status=status, ended_at=clock(), created_at=clock()
                )
                lists.follow([lists.stream.of(None, state)])
        clock.now += DAY
    rows = lists.dynamo.read(lists.table, [part_key("acme", part) for part in range(4)])
    assert max(item_bytes(row) for row in rows.values()) <= 1024
    assert all("open" not in row and "broken" not in row for row in rows.values())
    counts = lists.counts.read("acme").by_status(clock())
    kept_days = HISTORY_RETENTION // DAY
    assert counts == {"COMPLETED": 4 * kept_days, "CANCELLED": 4 * kept_days}


def test_removed_rows_do_not_count(lists: Lists) -> None:
    key = JobKey("acme", JOBS[0])
    lists.follow([lists.stream.of(None, a_job_state(JOBS[0], version=3))])
    for _ in range(2):
        lists.rows.remove([lists.rows.row_key(key)])
        assert (lists.counted(), lists.listed(), lists.rows.load([key])) == ({}, {}, {})
    lists.follow([lists.stream.of(None, a_job_state(JOBS[0], version=1))])
    assert (lists.counted(), lists.listed()) == ({"S": 1}, {"S": 1})


def test_row_of_a_former_slot_moves_with_its_outcomes(lists: Lists, clock: ManualClock) -> None:
    former = JobRows(lists.dynamo, lists.table, 1, clock, new_id(clock))
    job_id = next(
        job_id
        for job_id in JOBS
        if lists.rows.row_key(JobKey("acme", job_id)) != former.row_key(JobKey("acme", job_id))
    )
    states: list[JobState | None] = [None]
    for version in range(1, 4):
        run = a_run(an_id(50 + version), RunStatus.SUCCESS, ended_at=NOON)
        states.append(a_job_state(job_id, version=version, unrecorded=(run,)))
    records = [lists.stream.of(old, new) for old, new in pairwise(states)]
    writer = lists.writer
    lists.writer = JobListWriter(former, DefinitionCache(lists.aws.ports.job_states))
    lists.follow(records[:2])
    lists.writer = writer
    lists.follow(records[2:])
    (stored,) = lists.rows.load([JobKey("acme", job_id)]).values()
    assert [outcome.run_id for outcome in stored.outcomes] == [an_id(53), an_id(52), an_id(51)]
    assert (lists.counted(), lists.listed()) == ({"S": 1}, {"S": 1})


def test_walk_counts_what_a_crashed_batch_did_not(lists: Lists) -> None:
    lists.crash_in = 6
    with pytest.raises(Crashed):
        lists.follow([lists.stream.of(None, a_job_state(JOBS[0], version=1))])
    lists.restart()
    for _ in range(2):
        lists.rows.settle(lists.rows.load([JobKey("acme", JOBS[0])]).values())
        assert lists.counted() == {"S": 1}


def test_two_writers_of_the_same_batch_count_once(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second function has the same batch. It runs between the rows and the end of the first."""
    records = [lists.stream.of(None, a_job_state(job_id, version=1)) for job_id in JOBS]
    other = JobListWriter(
        JobRows(lists.dynamo, lists.table, 4, lists.clock, new_id(lists.clock)),
        DefinitionCache(lists.aws.ports.job_states),
    )
    real_close = CountedWrites.close
    is_first = True

    def close(self: CountedWrites) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            parsed = [record for record in map(parse_record, records[:3]) if record]
            other.write_changes(
                [(record, compare_states(record.old, record.new)) for record in parsed], NOON
            )
        real_close(self)

    monkeypatch.setattr(CountedWrites, "close", close)
    lists.follow(records)
    assert lists.counted() == {"S": len(JOBS)}
