"""Counts equal all changes in any order, after repeats, splits and crashes."""

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

from punctual.aws.dynamodb.client import DynamoClient, KeyRange
from punctual.aws.dynamodb.control.counters import (
    COUNTER_PARTITIONS,
    MAX_CHANGES_PER_COUNTED_ROW,
    CountChange,
    Counters,
    change_id_of,
    totals_key,
)
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.lambdas.status.counters import live_counts
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, after
from tests.support.item_size import item_size

MORE, LESS = {"job_SCHEDULED": 1}, {"job_SCHEDULED": -1}


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class CrashingClient(DynamoClient):
    """Crashes before or after a transaction, or loses it to another writer, by `fates`."""

    def __init__(self, aws: Moto) -> None:
        patience = RetryPolicy(aws.slept.append, seed="t")
        super().__init__(lambda: aws.clients.dynamodb, ThreadPool(1), patience)
        self.fates: list[str] = []
        self.planned_actions: list[Callable[[], None]] = []

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        if self.planned_actions:
            self.planned_actions.pop()()
        fate = self.fates.pop() if self.fates else ""
        if fate == "before":
            raise Crashed
        if fate == "others":
            return False
        answer = super().transact(writes)
        if fate == "after":
            raise Crashed
        return answer and fate != "no answer"


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
def dynamo(aws: Moto) -> CrashingClient:
    return CrashingClient(aws)


@pytest.fixture
def counters(aws: Moto, dynamo: CrashingClient) -> Counters:
    return Counters(dynamo, aws.settings.control_table)


def a_change(place: int, counts: Mapping[str, int] = MORE, seconds: float = 0) -> CountChange:
    mark = change_id_of(str(place), f"job {place}")
    return CountChange(mark, after(seconds), counts, {NOON: {"started": sum(counts.values())}})


def test_changes_of_slower_reader_are_counted(counters: Counters) -> None:
    for places in ((10, 30, 50), (20, 40, 60)):
        counters.count("acme", [a_change(place) for place in places])
    assert counters.totals("acme") == {"job_SCHEDULED": 6}
    (minute,) = counters.minutes("acme", NOON, NOON)
    assert (minute.minute_at, minute.counts) == (NOON, {"started": 6})


def test_two_thousand_jobs_created_and_deleted_count_zero(counters: Counters) -> None:
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


def test_batch_costs_a_query_and_a_transaction(aws: Moto, counters: Counters) -> None:
    for place in (1, 2):
        counted = partial(counters.count, "calls", [a_change(place), a_change(place + 10)])
        assert aws.spend(counted) == {"Query": 1, "TransactWriteItems": 1}
    assert aws.spend(counted) == {"Query": 1}, "a repeated batch writes nothing"


def test_conflicting_writer_adds_to_another_row(
    aws: Moto, dynamo: CrashingClient, counters: Counters
) -> None:
    dynamo.fates = ["others"]
    counters.count("met", [a_change(1)])
    table = aws.settings.control_table
    assert [
        part for part in range(COUNTER_PARTITIONS) if dynamo.read(table, [totals_key("met", part)])
    ] == [1]
    counters.count("met", [a_change(2)])
    assert counters.totals("met") == {"job_SCHEDULED": 2}


@pytest.mark.parametrize(("mine", "theirs"), [("ab", "bc"), ("bc", "ab"), ("abc", "b")])
def test_concurrent_readers_count_shared_changes_once(
    dynamo: CrashingClient, counters: Counters, mine: str, theirs: str
) -> None:
    """One reader writes between the read and the write of the other one."""
    changes = {name: CountChange(name.encode() * 8, NOON, MORE) for name in "abc"}
    tenant = f"shared {mine} {theirs}"
    dynamo.planned_actions = [lambda: counters.count(tenant, [changes[name] for name in theirs])]
    counters.count(tenant, [changes[name] for name in mine])
    assert dynamo.planned_actions == []
    assert counters.totals(tenant) == {"job_SCHEDULED": len({*mine, *theirs})}


@pytest.mark.parametrize("seed", range(3))
def test_eight_concurrent_readers_count_each_change_once(aws: Moto, seed: int) -> None:
    """A reader with too many conflicts fails, and Lambda delivers its batch again."""
    chance, turns, tenant = random.Random(seed), TurnTaker(), f"eight {seed}"
    table = aws.settings.control_table
    changes = [a_change(place) for place in range(100)]
    stores = [SlowClient(aws, turns, random.Random(f"{seed} {reader}")) for reader in range(8)]
    failures: list[int] = []

    def read(reader: int) -> None:
        own = list({*range(reader * 12, reader * 12 + 16), *chance.sample(range(100), 4)})
        for places in (own[:10], own[10:], own):
            batch = [changes[place] for place in places]
            for _ in range(10):
                try:
                    Counters(stores[reader], table).count(tenant, batch)
                    break
                except Unavailable:
                    failures.append(reader)

    turns.play([partial(read, reader) for reader in range(8)])
    transactions = sum(store.transactions for store in stores)
    print(f"{transactions} transactions, {len(failures)} batches again")
    assert Counters(stores[0], table).totals(tenant) == {"job_SCHEDULED": 100}
    rows = DynamoClient(
        lambda: aws.clients.dynamodb, ThreadPool(1), RetryPolicy(aws.slept.append, seed="t")
    )
    named = list(rows.query(table, KeyRange(f"eight$20{seed}#counted"), 100))
    assert [row["sk"]["S"][-3:] for row in named] == [f"{row:03}" for row in range(len(named))]


def test_endless_conflicts_are_an_error(dynamo: CrashingClient, counters: Counters) -> None:
    dynamo.fates = ["others"] * 100
    with pytest.raises(Unavailable, match="too often"):
        counters.count("busy", [a_change(1)])
    assert len(dynamo.fates) > 90


def test_counter_rows_stay_under_their_size_limits(
    aws: Moto, dynamo: CrashingClient, counters: Counters
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
    rows = aws.rows(aws.settings.control_table)
    names = [item_size(row) for row in rows if row["pk"]["S"] == "whole#counted"]
    others = [item_size(row) for row in rows if row["pk"]["S"] in ("whole#totals", "whole#minutes")]
    assert (len(names), len(others)) == (2, 2)
    assert max(names) <= 2 * 1024
    assert max(others) <= 1024


def test_change_of_many_minutes_fits_into_a_transaction(counters: Counters) -> None:
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
    rows = counters.minutes("wide", NOON - timedelta(hours=3), NOON)
    assert sum(minute.counts["queued"] for minute in rows) == 210


@pytest.mark.parametrize("seed", range(40))
def test_counts_equal_sum_of_all_changes(
    counters: Counters, dynamo: CrashingClient, seed: int
) -> None:
    """Readers with separate jobs, a shard split, crashes and repeats."""
    chance, tenant = random.Random(seed), f"walk{seed}"
    happened = _happened(chance)
    split_at = chance.randrange(len(happened))
    for shard in (
        happened[:split_at],
        happened[split_at:],
    ):  # the second part is read after the first one
        feeds = _readers(shard, chance.choice((1, 4, 10)))
        while any(feeds):
            feed = chance.choice([feed for feed in feeds if feed])
            dynamo.fates = [chance.choice(("", "", "before", "after", "no answer", "others"))]
            size = chance.randrange(1, 9)
            if _tried(counters, tenant, feed[:size]):
                del feed[:size]
            if chance.random() < 0.2:  # a new event source mapping starts with records of a day ago
                _tried(counters, tenant, [change for _, change in chance.sample(happened, 5)])
    dynamo.fates = []
    counters.count(tenant, [change for _, change in happened])
    truth: Counter[str] = Counter()
    for _, change in happened:
        truth.update(change.totals)
    assert counters.totals(tenant) == {name: n for name, n in truth.items() if n}


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
