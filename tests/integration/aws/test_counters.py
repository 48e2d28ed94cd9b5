"""Counts equal all changes in any order, after repeats, splits, crashes and folds."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any
from zlib import crc32

import pytest

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange
from punctual.aws.dynamodb.control.count_log import (
    COUNT_LOG_RETENTION,
    MAX_CHANGES_PER_COUNTED_ROW,
    CountChange,
    change_id_of,
)
from punctual.aws.dynamodb.control.counters import SMALL_LOG_ROWS, Counters
from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.retries import ConditionFailed, RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.lambdas.status.counters import live_counts
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, ManualClock, after
from tests.support.item_size import item_size
from tests.support.load.tables import Tables
from tests.support.load.timeline import Timeline

MORE, LESS = {"job_SCHEDULED": 1}, {"job_SCHEDULED": -1}
LATER = timedelta(minutes=1)  # by then a slice may be folded


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class CrashingClient(DynamoClient):
    """Crashes before or after writes, or loses transactions to another writer, by `fates`."""

    def __init__(self, client: Callable[[], Any]) -> None:
        super().__init__(client, ThreadPool(1), RetryPolicy(lambda _: None, seed="t"))
        self.fates: list[str] = []
        self.planned_actions: list[Callable[[], None]] = []

    def put(self, table: str, items: Sequence[Item]) -> None:
        self._write(lambda: super(CrashingClient, self).put(table, items))

    def delete_if(self, table: str, key: RowKey, condition: Condition) -> ConditionFailed | None:
        failed: ConditionFailed | None = self._write(
            lambda: super(CrashingClient, self).delete_if(table, key, condition)
        )
        return failed

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        if self.planned_actions:
            self.planned_actions.pop()()
        if self.fates and self.fates[-1] == "others":
            self.fates.pop()
            return False
        is_lost = bool(self.fates) and self.fates[-1] == "no answer"
        return self._write(lambda: super(CrashingClient, self).transact(writes)) and not is_lost

    def _write(self, write: Callable[[], Any]) -> Any:
        fate = self.fates.pop() if self.fates else ""
        if fate == "before":
            raise Crashed
        answer = write()
        if fate == "after":
            raise Crashed
        return answer


class TurnTaker:
    """Threads that run one at a time, in the order of a test clock."""

    def __init__(self) -> None:
        self._now = 0.0
        self._numbers = count()
        self._waiting: list[tuple[float, int, threading.Semaphore]] = []
        self._turn = threading.Semaphore(0)

    def pause(self, seconds: float) -> None:
        """Let the other threads run until so many seconds have passed."""
        go_on = threading.Semaphore(0)
        heappush(self._waiting, (self._now + seconds, next(self._numbers), go_on))
        self._turn.release()
        go_on.acquire()

    def play(self, works: Sequence[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=self._work, args=[work]) for work in works]
        for thread in threads:
            thread.start()
            self._turn.acquire()
        while self._waiting:
            self._now, _, go_on = heappop(self._waiting)
            go_on.release()
            self._turn.acquire()
        for thread in threads:
            thread.join()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            self.pause(0)
            work()
        finally:
            self._turn.release()


class SlowClient(DynamoClient):
    """The store of one of several readers. Each call takes some milliseconds."""

    def __init__(self, aws: Moto, turns: TurnTaker, chance: random.Random) -> None:
        patience = RetryPolicy(turns.pause, seed=str(chance.random()))
        super().__init__(lambda: aws.clients.dynamodb, ThreadPool(1), patience)
        self._turns, self._chance = turns, chance
        self.transactions = 0

    def query(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        self._takes_time()
        yield from list(super().query(*arguments, **options))
        self._takes_time()

    def query_page(
        self, table: str, key_range: KeyRange, limit: int | None
    ) -> tuple[list[Item], bool]:
        self._takes_time()
        page = super().query_page(table, key_range, limit)
        self._takes_time()
        return page

    def put(self, table: str, items: Sequence[Item]) -> None:
        self._takes_time()
        super().put(table, items)
        self._takes_time()

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        self._takes_time()
        answer = super().transact(writes)
        self.transactions += 1
        self._takes_time()
        return answer

    def _takes_time(self) -> None:
        self._turns.pause(self._chance.uniform(0.003, 0.012))


@pytest.fixture(scope="module")
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def dynamo(aws: Moto) -> CrashingClient:
    return CrashingClient(lambda: aws.clients.dynamodb)


@pytest.fixture
def counters(aws: Moto, dynamo: CrashingClient, clock: ManualClock) -> Counters:
    return Counters(dynamo, aws.settings.control_table, clock)


def a_change(place: int, counts: Mapping[str, int] = MORE, seconds: float = 0) -> CountChange:
    mark = change_id_of(str(place), f"job {place}")
    return CountChange(mark, after(seconds), counts, {NOON: {"started": sum(counts.values())}})


def rows_of(aws: Moto, pk: str) -> list[Item]:
    return [row for row in aws.rows(aws.settings.control_table) if row["pk"]["S"] == pk]


def test_changes_of_slower_reader_are_counted(counters: Counters) -> None:
    for places in ((10, 30, 50), (20, 40, 60)):
        counters.count("acme", [a_change(place) for place in places])
    assert counters.totals("acme") == {"job_SCHEDULED": 6}
    (minute,) = counters.minutes("acme", NOON, NOON)
    assert (minute.minute_at, minute.counts) == (NOON, {"started": 6})


def test_two_thousand_jobs_created_and_deleted_count_zero(
    counters: Counters, clock: ManualClock
) -> None:
    chance = random.Random(1)
    created = [
        CountChange(change_id_of(str(n), "made"), after(n / 100), MORE) for n in range(2_000)
    ]
    deleted = [
        CountChange(change_id_of(str(n), "gone"), after(n / 100), LESS) for n in range(2_000)
    ]
    readers = [[*created[n::4], *deleted[n::4]] for n in range(4)]
    while any(readers):
        reader = chance.choice([reader for reader in readers if reader])
        counters.count("many", reader[:200])
        del reader[: chance.choice([100, 200])]  # the other half is delivered again
        clock.advance(timedelta(seconds=7))
    assert counters.totals("many") == {}
    clock.advance(LATER)
    counters.fold("many")
    assert counters.totals("many") == {}


def test_changes_that_cancel_out_are_counted_once(counters: Counters) -> None:
    both = [a_change(1), a_change(2, LESS)]
    counters.count("nothing", both)
    counters.count("nothing", both[:1])
    counters.count("nothing", both[1:])
    assert counters.totals("nothing") == {}


def test_changes_without_counts_make_no_call(aws: Moto, counters: Counters) -> None:
    none = [
        CountChange(b"1" * 8, NOON, {}),
        CountChange(b"2" * 8, NOON, {"a": 0}, {NOON: {"b": 0}}),
    ]
    assert aws.spend(lambda: counters.count("none", none)) == {}


def test_batch_costs_one_write_once_its_slice_is_marked(aws: Moto, counters: Counters) -> None:
    counted = partial(counters.count, "calls", [a_change(1), a_change(11)])
    assert aws.spend(counted) == {"BatchWriteItem": 2, "Query": 1}, "row, mark, look for old slices"
    assert aws.spend(partial(counters.count, "calls", [a_change(2)])) == {"BatchWriteItem": 1}


def test_repeated_batch_adds_no_row(aws: Moto, counters: Counters) -> None:
    for _ in range(2):
        counters.count("again", [a_change(place) for place in (1, 2)])
    assert len(rows_of(aws, "again#counted#log")) == 1


def test_next_batch_folds_old_slices_into_one_row(
    aws: Moto, counters: Counters, clock: ManualClock
) -> None:
    counters.count("old", [a_change(1)])
    clock.advance(LATER)
    counters.count("old", [a_change(2, seconds=60)])
    (totals,) = rows_of(aws, "old#totals")
    assert totals["job_SCHEDULED"] == {"N": "1"}
    assert counters.totals("old") == {"job_SCHEDULED": 2}
    (mark,) = rows_of(aws, "old#uncounted")
    assert mark["sk"]["S"] == "2026-03-02T12:00:55.000000Z"


def test_change_that_comes_after_the_fold_is_counted_once(
    counters: Counters, clock: ManualClock
) -> None:
    counters.count("late", [a_change(1)])
    clock.advance(LATER)
    counters.fold("late")
    counters.count("late", [a_change(1), a_change(2)])
    assert counters.totals("late") == {"job_SCHEDULED": 2}
    counters.fold("late")
    assert counters.totals("late") == {"job_SCHEDULED": 2}
    (minute,) = counters.minutes("late", NOON, NOON)
    assert minute.counts == {"started": 2}


def test_moved_counts_are_those_of_the_time_folded_or_not(
    counters: Counters, clock: ManualClock
) -> None:
    for number, seconds in enumerate((0, 60, 120)):
        change = a_change(number, seconds=seconds)._replace(moved_counts={"job_SCHEDULED": 1})
        counters.count("moved", [change])
        clock.advance(LATER)
    moved = counters.moved_counts("moved", after(50), after(130))
    assert [counts for counts in moved if counts] == [{"job_SCHEDULED": 1}, {"job_SCHEDULED": 1}]


def test_large_log_shows_when_it_is_folded(
    aws: Moto, dynamo: CrashingClient, counters: Counters, clock: ManualClock
) -> None:
    """One process claims it, so that others do not read it as well."""
    number = SMALL_LOG_ROWS + 1
    for place in range(number):
        counters.count("large", [a_change(place)])
    assert counters.totals("large") == {}
    clock.advance(LATER)
    other = Counters(aws.ports.job_states._dynamo, aws.settings.control_table, clock)
    dynamo.fates = ["before"]  # after its claim
    with pytest.raises(Crashed):
        counters.fold("large")
    other.fold("large")
    assert rows_of(aws, "large#totals") == [], "claimed"
    clock.advance(LATER)
    other.fold("large")
    assert other.totals("large") == {"job_SCHEDULED": number}
    assert rows_of(aws, "large#uncounted") == []


def test_slice_whose_log_may_have_expired_is_left_alone(
    aws: Moto, counters: Counters, dynamo: CrashingClient, clock: ManualClock
) -> None:
    counters.count("gone", [a_change(1)])
    clock.advance(LATER)
    counters.fold("gone")
    counters.count("gone", [a_change(1)])
    pk = "gone#counted#log"
    log_keys = [RowKey(pk, row["sk"]["S"]) for row in rows_of(aws, pk)]
    dynamo.delete(aws.settings.control_table, log_keys)
    clock.advance(COUNT_LOG_RETENTION)
    counters.fold("gone")
    assert counters.totals("gone") == {"job_SCHEDULED": 1}
    assert rows_of(aws, "gone#uncounted") == []


@pytest.mark.parametrize(("mine", "theirs"), [("ab", "bc"), ("bc", "ab"), ("abc", "b")])
def test_concurrent_folds_count_shared_changes_once(
    aws: Moto,
    dynamo: CrashingClient,
    counters: Counters,
    clock: ManualClock,
    mine: str,
    theirs: str,
) -> None:
    """Another process appends and folds between the read and the transaction of the first one."""
    changes = {name: CountChange(name.encode() * 8, NOON, MORE) for name in "abc"}
    tenant = f"shared {mine} {theirs}"
    other = Counters(aws.ports.job_states._dynamo, aws.settings.control_table, clock)

    def interfere() -> None:
        other.count(tenant, [changes[name] for name in theirs])
        other.fold(tenant)

    counters.count(tenant, [changes[name] for name in mine])
    clock.advance(LATER)
    dynamo.planned_actions = [interfere]
    counters.fold(tenant)
    assert dynamo.planned_actions == []
    counters.fold(tenant)
    assert counters.totals(tenant) == {"job_SCHEDULED": len({*mine, *theirs})}
    assert rows_of(aws, f"{tenant.replace(' ', '$20')}#uncounted") == []


@pytest.mark.parametrize("seed", range(3))
def test_eight_concurrent_readers_count_each_change_once(aws: Moto, seed: int) -> None:
    chance, turns, tenant = random.Random(seed), TurnTaker(), f"eight {seed}"
    table, clock = aws.settings.control_table, ManualClock(NOON)
    changes = [a_change(place) for place in range(100)]
    stores = [SlowClient(aws, turns, random.Random(f"{seed} {reader}")) for reader in range(8)]

    def read(reader: int) -> None:
        own = list({*range(reader * 12, reader * 12 + 16), *chance.sample(range(100), 4)})
        for places in (own[:10], own[10:], own):
            Counters(stores[reader], table, clock).count(
                tenant, [changes[place] for place in places]
            )
            clock.advance(timedelta(seconds=chance.uniform(0, 5)))

    turns.play([partial(read, reader) for reader in range(8)])
    counters = Counters(aws.ports.job_states._dynamo, table, clock)
    assert counters.totals(tenant) == {"job_SCHEDULED": 100}
    clock.advance(LATER)
    turns.play([partial(Counters(store, table, clock).fold, tenant) for store in stores])
    counters.fold(tenant)
    assert counters.totals(tenant) == {"job_SCHEDULED": 100}
    assert rows_of(aws, f"eight$20{seed}#uncounted") == []


def test_endless_conflicts_leave_the_slice_to_a_later_process(
    dynamo: CrashingClient, counters: Counters, clock: ManualClock
) -> None:
    counters.count("busy", [a_change(1)])
    clock.advance(LATER)
    dynamo.fates = ["others"] * 4
    counters.fold("busy")
    assert dynamo.fates == []
    assert counters.totals("busy") == {"job_SCHEDULED": 1}
    counters.fold("busy")
    assert counters.totals("busy") == {"job_SCHEDULED": 1}


def test_counter_rows_stay_under_their_size_limits(
    aws: Moto, counters: Counters, clock: ManualClock
) -> None:
    counts = {f"job_{status}": 10**6 for status in JobStatus} | {
        f"run_{status}": 10**9 for status in RunStatus
    }
    moved = dict.fromkeys(live_counts(counts), 4)
    changes = [
        a_change(n, counts)._replace(moved_counts=moved)
        for n in range(MAX_CHANGES_PER_COUNTED_ROW + 1)
    ]
    counters.count("whole", changes)
    clock.advance(LATER)
    counters.fold("whole")
    log = rows_of(aws, "whole#counted#log")
    others = [*rows_of(aws, "whole#totals"), *rows_of(aws, "whole#counted")]
    assert (len(log), len(others)) == (2, 2)
    assert max(map(item_size, log)) <= 3 * 1024
    assert max(map(item_size, others)) <= 1024


def test_counts_of_many_minutes_are_kept(counters: Counters, clock: ManualClock) -> None:
    minutes = [NOON - timedelta(minutes=n) for n in range(70)]
    changes = [
        CountChange(change_id_of(str(n), "j"), NOON, MORE, {at - timedelta(hours=n): {"queued": 1}})
        for n in range(2)
        for at in minutes
    ]
    whole = CountChange(change_id_of("9", "j"), NOON, MORE, {at: {"queued": 1} for at in minutes})
    changes = [
        change._replace(change_id=change_id_of(str(n), "k")) for n, change in enumerate(changes)
    ]
    counters.count("wide", [whole, *changes])
    for _ in range(2):
        rows = counters.minutes("wide", NOON - timedelta(hours=3), NOON)
        assert sum(minute.counts["queued"] for minute in rows) == 210
        clock.advance(LATER)
        counters.fold("wide")


@pytest.mark.parametrize("seed", range(200))
def test_counts_equal_sum_of_all_changes(seed: int) -> None:
    """Readers with separate jobs, a shard split, crashes, repeats and folds."""
    chance, tenant, clock = random.Random(seed), "walk", ManualClock(NOON)
    tables = Tables(Timeline(NOON))
    dynamo = CrashingClient(lambda: tables.client())
    counters = Counters(dynamo, "control", clock)
    happened = _happened(chance)
    split_at = chance.randrange(len(happened))
    for shard in (
        happened[:split_at],
        happened[split_at:],
    ):  # the second part is read after the first one
        feeds = _readers(shard, chance.choice((1, 4, 10)))
        while any(feeds):
            feed = chance.choice([feed for feed in feeds if feed])
            fates = ("", "", "", "before", "after", "no answer", "others")
            dynamo.fates = [chance.choice(fates) for _ in range(4)]
            size = chance.randrange(1, 9)
            if _tried(counters, tenant, feed[:size]):
                del feed[:size]
            elif chance.random() < 0.5:  # a new environment, which knows no marks
                counters = Counters(dynamo, "control", clock)
            clock.advance(timedelta(seconds=chance.choice((0, 1, 8, 40))))
            if chance.random() < 0.2:  # a new event source mapping starts with records of a day ago
                _tried(counters, tenant, [change for _, change in chance.sample(happened, 5)])
    dynamo.fates = []
    counters.count(tenant, [change for _, change in happened])
    truth: Counter[str] = Counter()
    for _, change in happened:
        truth.update(change.totals)
    expected = {name: n for name, n in truth.items() if n}
    assert counters.totals(tenant) == expected
    clock.advance(LATER)
    counters.fold(tenant)
    assert counters.totals(tenant) == expected
    assert [row for row in tables.rows("control") if row["pk"]["S"] == "walk#uncounted"] == []


def _happened(chance: random.Random) -> list[tuple[str, CountChange]]:
    changes = []
    for place in range(60):
        job, counts = (
            f"job {chance.randrange(9)}",
            {chance.choice("abc"): chance.choice([-1, 1, 1])},
        )
        changes.append((job, CountChange(change_id_of(str(place), job), after(place / 3), counts)))
    return changes


def _readers(shard: Sequence[tuple[str, CountChange]], number: int) -> list[list[CountChange]]:
    """Return the records by reader. Lambda keeps only the order of each item."""
    readers: list[list[CountChange]] = [[] for _ in range(number)]
    for job, change in shard:
        readers[crc32(job.encode()) % number].append(change)
    return readers


def _tried(counters: Counters, tenant: str, changes: Sequence[CountChange]) -> bool:
    try:
        counters.count(tenant, changes)
    except Crashed:
        return False
    return True
