"""Timers that share rows on AWS: their cost, and concurrent changes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.cost.sizes import item_bytes
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.aws.dynamodb.timers import timers
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR
from punctual.aws.dynamodb.timers.rows import TimerRow, TimerRowCache
from punctual.engine.ports.timers import Timer
from punctual.lambdas.poller.handler import CACHED_TIMER_PAGES
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.timer_processes import FOREVER, another, due
from tests.support.builders import NOON, a_timer, after, an_id

TEN = [a_timer(after(1), an_id(n)) for n in range(10)]
MANY = [a_timer(after(1), an_id(n)) for n in range(500)]


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def rows(aws: Moto) -> list[dict[str, Any]]:
    return aws.rows(keys.TIMERS_TABLE.name)


def written(aws: Moto, work: Callable[[], object]) -> int:
    before = aws.written[keys.TIMERS_TABLE.name]
    work()
    return aws.written[keys.TIMERS_TABLE.name] - before


def test_ten_timers_put_together_are_one_row(aws: Moto) -> None:
    mine = aws.ports.timers
    assert written(aws, lambda: mine.put(TEN)) == 1
    (row,) = rows(aws)
    assert row[MEMBERS_ATTR] == {"SS": [f"acme#{timer.job_id}#1" for timer in TEN]}
    assert item_bytes(row) < 1_000
    assert aws.spend(lambda: due(mine)) == {"Query": 1}
    assert aws.spend(lambda: mine.delete(TEN)) == {"BatchWriteItem": 1}
    assert rows(aws) == []


def test_shared_row_holds_twenty_timers(aws: Moto) -> None:
    assert written(aws, lambda: aws.ports.timers.put(MANY[::-1])) == 25
    assert max(item_bytes(row) for row in rows(aws)) <= 1_000
    poller = another(aws)
    assert due(poller) == MANY
    assert written(aws, lambda: poller.delete(MANY)) == 25
    assert rows(aws) == []


def test_single_timer_has_its_own_row_key(
    aws: Moto,
) -> None:
    aws.ports.timers.put(TEN[:1])
    (row,) = rows(aws)
    assert row == timer_keys.timer_key(*TEN[0]).item()
    reader = another(aws)
    assert due(reader) == TEN[:1]
    assert aws.spend(lambda: reader.delete(TEN[:1])) == {"BatchWriteItem": 1}
    assert rows(aws) == []


def test_timers_of_different_times_or_shards_share_no_row(aws: Moto) -> None:
    unshared = [
        a_timer(after(1), an_id(1)),
        a_timer(after(1.000001), an_id(2)),
        a_timer(after(61), an_id(3)),
        a_timer(after(1), an_id(4), shard=1),
    ]
    aws.ports.timers.put(unshared)
    assert len(rows(aws)) == 4
    assert not any(MEMBERS_ATTR in row for row in rows(aws))


def test_partial_delete_keeps_remaining_timers(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    poller = another(aws)
    due(poller)
    assert aws.spend(lambda: poller.delete(TEN[:4])) == {"UpdateItem": 1}
    assert due(another(aws)) == TEN[4:]
    assert aws.spend(lambda: poller.delete(TEN[4:])) == {"BatchWriteItem": 1}
    assert rows(aws) == []


def test_second_of_two_partial_deletes_removes_row(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    first, second = another(aws), another(aws)
    assert due(first) == due(second) == TEN
    first.delete(TEN[:5])
    second.delete(TEN[3:])
    assert rows(aws) == []
    first.delete(TEN[5:])
    assert rows(aws) == []


def test_concurrent_partial_deletes_leave_no_empty_row(aws: Moto) -> None:
    """One process changes the row between the read and the write of the other one."""
    aws.ports.timers.put(TEN)
    first, second = another(aws), another(aws)
    assert due(first) == due(second) == TEN
    left = [lambda: second.delete(TEN[5:9]), lambda: second.delete(TEN[9:])]

    def meanwhile(**_: object) -> None:
        if left:
            left.pop(0)()

    events = aws.clients.dynamodb.meta.events
    events.register_first("before-call.dynamodb.UpdateItem", meanwhile)
    first.delete(TEN[:5])
    assert left == []
    assert rows(aws) == []


def test_timer_put_again_after_read_survives_delete(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    poller = another(aws)
    due(poller)
    aws.ports.timers.put(TEN[:2])
    aws.ports.timers.put(TEN[2:3])
    poller.delete(TEN)
    assert due(another(aws)) == TEN[:3]


def test_timer_in_several_rows_is_read_once_and_deleted_from_all(aws: Moto) -> None:
    for row_timers in (TEN, TEN[:2], TEN[:1], TEN[1:3]):
        another(aws).put(row_timers)
    assert len(rows(aws)) == 4
    poller = another(aws)
    assert due(poller) == TEN
    poller.delete(TEN[:2])
    assert due(another(aws)) == TEN[2:]
    assert len(rows(aws)) == 2


@pytest.mark.parametrize("known", [TimerRowCache(), TimerRowCache(1)])
def test_uncached_rows_are_read_again_before_delete(aws: Moto, known: TimerRowCache) -> None:
    """The process was restarted, or its cache was too small."""
    aws.ports.timers.put(TEN)
    aws.ports.timers.put([a_timer(after(1), an_id(77))])
    poller = another(aws, known)
    due(poller)
    aws.ports.timers.put(MANY[100:160])
    due(poller)
    spent = aws.spend(lambda: another(aws, known).delete(TEN[:4]))
    assert spent["UpdateItem"] == 1
    another(aws).delete([*TEN[4:], a_timer(after(1), an_id(77))])
    assert due(another(aws)) == MANY[100:160]


def test_delete_larger_than_cache_works_in_parts(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reconciler may find hours of unhandled timers."""
    monkeypatch.setattr(timers, "MAX_TIMERS_PER_DELETE", 20)
    aws.ports.timers.put(MANY[:200])
    another(aws, TimerRowCache(60)).delete(MANY[:200])
    assert rows(aws) == []


def test_row_cache_keeps_two_generations() -> None:
    known = TimerRowCache(3)
    marks = [keys.RowKey("p", f"{n}#a#b#c") for n in range(9)]
    for number, key in enumerate(marks):
        known.add([TimerRow(key, TEN[number : number + 1])])
    assert known.plan_delete(TEN[:3]).unknown == TEN[:3]
    assert known.plan_delete(TEN[3:9]).whole_rows == marks[3:]


def test_check_for_existing_timer_costs_one_query(aws: Moto) -> None:
    """Five hundred timers of one midnight, put in batches."""
    for start in range(0, 500, 100):
        aws.ports.timers.put(MANY[start : start + 100])
    reader = another(aws)
    asked = [timer._replace(version=0) for timer in MANY]
    assert aws.spend(lambda: reader.find_existing(asked[::10])) == {"Query": 50}
    assert reader.find_existing(asked) == frozenset(asked)
    assert 4 * max(item_bytes(row) for row in rows(aws)) <= 4_096


def scattered(aws: Moto) -> list[Timer]:
    """Put a shared row and many single rows. Return four existing and three missing timers."""
    shared = MANY[::100]
    aws.ports.timers.put(shared)
    for timer in MANY[1:100]:
        aws.ports.timers.put([timer])
    return [*shared[1:], *(a_timer(after(1), an_id(1_000 + n)) for n in range(3))]


def test_missing_timers_share_one_query_of_their_time(aws: Moto) -> None:
    asked = scattered(aws)
    spent = aws.spend(lambda: another(aws).find_existing(asked))
    assert another(aws).find_existing(asked) == frozenset(asked[:4])
    assert spent == {"Query": len(asked) + 1}


def test_large_time_is_read_further_for_each_timer_first(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "NEAR_READ_ROWS", 1)
    monkeypatch.setattr(timers, "FAR_READ_ROWS", 2)
    asked = scattered(aws)
    spent = aws.spend(lambda: another(aws).find_existing(asked))
    assert another(aws).find_existing(asked) == frozenset(asked[:4])
    assert spent == {"Query": len(asked) + 1 + len(asked) + 1}
    spent = aws.spend(lambda: another(aws).find_existing(asked[-1:]))
    assert spent == {"Query": 3}, "the wider read serves a single timer, too"


def test_cache_holds_two_pages_and_as_many_puts(aws: Moto) -> None:
    """A poller's window holds two pages, and its evaluations put as many timers."""
    page = 20
    first = [a_timer(after(1 + n / 1_000), an_id(n)) for n in range(2 * page)]
    aws.ports.timers.put(first)
    poller = another(aws).with_cache_size(CACHED_TIMER_PAGES * page)
    read, cursor, _ = poller.due(NOON, 0, FOREVER, None, page)
    assert [*read, *poller.due(NOON, 0, FOREVER, cursor, page).timers] == first
    poller.put([timer._replace(at=after(30 + n / 1_000)) for n, timer in enumerate(first)])
    assert "Query" not in aws.spend(lambda: poller.delete(first))
    assert len(rows(aws)) == 2 * page


def test_page_reads_no_more_rows_than_needed(aws: Moto) -> None:
    """The number of timers in a row is estimated from the first rows."""
    aws.ports.timers.put(MANY)
    for timer in MANY[:70]:
        aws.ports.timers.put([timer._replace(at=after(2))])
    reader = another(aws)
    page, cursor, _ = reader.due(NOON, 0, FOREVER, None, 200)
    assert (len(page), cursor is None) == (200, False)
    assert aws.spend(lambda: reader.due(NOON, 0, FOREVER, cursor, 15_000)) == {"Query": 2}
    page, cursor, _ = reader.due(NOON, 0, FOREVER, None, 15_000)
    assert (len(page), cursor) == (570, None)
