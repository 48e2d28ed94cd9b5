"""Shared timer rows with lost answers, partial batches and newer formats."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from punctual.aws.dynamodb.client import chunked
from punctual.aws.dynamodb.keys import time_key
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import in_part, lost_answers, refused, unreached
from tests.support.aws.timer_processes import FOREVER, another, due
from tests.support.builders import NOON, a_timer, after, an_id

TEN = [a_timer(after(1), an_id(n)) for n in range(10)]
FORTY = [a_timer(after(1 + n // 10), an_id(n)) for n in range(40)]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def rows(aws: Moto) -> list[dict[str, Any]]:
    return aws.rows(keys.TIMERS_TABLE.name)


def test_put_with_lost_answer_makes_one_row(aws: Moto) -> None:
    with lost_answers(aws.clients.dynamodb, "BatchWriteItem", 2):
        aws.ports.timers.put(TEN)
    assert len(rows(aws)) == 1
    assert due(another(aws)) == TEN


def test_repeated_unanswered_put_makes_only_duplicate_rows(aws: Moto) -> None:
    with lost_answers(aws.clients.dynamodb, "BatchWriteItem", 99), pytest.raises(Unavailable):
        aws.ports.timers.put(TEN)
    aws.ports.timers.put(TEN)
    assert len(rows(aws)) == 2
    poller = another(aws)
    assert due(poller) == TEN
    poller.delete(TEN)
    assert rows(aws) == []


def test_unprocessed_rows_are_put_and_deleted(aws: Moto) -> None:
    with in_part(aws.clients.dynamodb, "BatchWriteItem", 2, done=1) as sent:
        aws.ports.timers.put(FORTY)
    assert sent == [4, 3, 2]
    assert due(aws.ports.timers) == FORTY
    with in_part(aws.clients.dynamodb, "BatchWriteItem", 2, done=1) as sent:
        aws.ports.timers.delete(FORTY)
    assert sent == [4, 3, 2]
    assert rows(aws) == []


@pytest.mark.parametrize("times", [1, 3])
def test_partial_delete_with_lost_answer_takes_effect(aws: Moto, times: int) -> None:
    aws.ports.timers.put(TEN)
    with lost_answers(aws.clients.dynamodb, "UpdateItem", times):
        aws.ports.timers.delete(TEN[:7])
    assert due(another(aws)) == TEN[7:]


@pytest.mark.parametrize("reached", [True, False])
def test_failed_delete_is_repeated_from_cache(aws: Moto, reached: bool) -> None:
    aws.ports.timers.put(TEN)
    client = aws.clients.dynamodb
    faults = (
        refused(client, "UpdateItem", 99, "ThrottlingException")
        if reached
        else unreached(client, "UpdateItem", 99)
    )
    with faults, pytest.raises(Unavailable, match="did not answer while writing timers"):
        aws.ports.timers.delete(TEN[:7])
    assert due(another(aws)) == TEN
    assert aws.spend(lambda: aws.ports.timers.delete(TEN[:7])) == {"UpdateItem": 1}
    assert due(another(aws)) == TEN[7:]


def test_throttled_row_does_not_stop_other_deletes(aws: Moto) -> None:
    aws.ports.timers.put(FORTY)
    wanted = [*FORTY[:20], *FORTY[25:30]]
    with refused(aws.clients.dynamodb, "UpdateItem", 2, "ThrottlingException"):
        aws.ports.timers.delete(wanted)
    assert due(another(aws)) == [*FORTY[20:25], *FORTY[30:]]


def put_row_without_members(aws: Moto) -> None:
    """Remove all members of a row. No code of the product leaves such a row."""
    aws.ports.timers.put(TEN)
    (row,) = rows(aws)
    aws.clients.dynamodb.update_item(
        TableName=keys.TIMERS_TABLE.name,
        Key={name: row[name] for name in (keys.PK, keys.SK)},
        UpdateExpression="REMOVE #members",
        ConditionExpression="attribute_exists(#members)",
        ExpressionAttributeNames={"#members": MEMBERS_ATTR},
    )


def test_row_without_members_yields_no_timers(aws: Moto) -> None:
    poller = another(aws)
    put_row_without_members(aws)
    assert poller.due(NOON, 0, FOREVER, None, 1)[:2] == ([], None)
    assert poller.find_existing(TEN) == frozenset()
    aws.ports.timers.delete(TEN[:3])
    kept = a_timer(after(1), an_id(50))
    aws.ports.timers.put([kept])
    assert poller.due(NOON, 0, FOREVER, None, 1)[:2] == ([kept], None)


def test_row_without_members_does_not_hold_back_watermark(aws: Moto) -> None:
    buckets = aws.ports.partitions
    buckets.advance_watermark(None, NOON)
    buckets.raise_shard_count(1)
    put_row_without_members(aws)
    planner = PeekingPlanner(aws.ports.timers, buckets, buckets)
    seen = planner.tick(NOON + 2 * MINUTE, 1, 30)
    assert seen.wakeups == []
    assert seen.watermark == NOON + MINUTE


def test_row_of_newer_format_is_skipped_and_unchanged(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    later = set_newer_format(aws)
    others = [timer._replace(version=2) for timer in TEN]
    aws.ports.timers.put(others)
    poller = another(aws)
    assert due(poller) == others
    assert poller.due(NOON, 0, FOREVER, None, 100).newer_format_count == 1
    assert poller.find_existing(TEN) == frozenset(TEN), "the readable rows have these timers"
    poller.delete([*TEN, *others])
    assert rows(aws) == [later]
    assert poller.due(NOON, 0, FOREVER, None, 100) == ([], None, 1)
    assert poller.find_existing(TEN) == frozenset(), "so the reconciler puts readable timers"


def test_page_continues_after_rows_of_newer_format(aws: Moto) -> None:
    """Rows of a newer format are only counted."""
    later = [
        {**timer_keys.timer_key(*timer).item(), "sk": to_attribute(f"{time_key(timer.at)}#{n:03}?")}
        for n, timer in enumerate([TEN[0]] * 60)
    ]
    for chunk in chunked(later, 25):
        puts = [
            {"PutRequest": {"Item": {**row, keys.LAYOUT_ATTR: to_attribute(99)}}} for row in chunk
        ]
        aws.clients.dynamodb.batch_write_item(RequestItems={keys.TIMERS_TABLE.name: puts})
    behind = [timer._replace(at=timer.at + timedelta(seconds=1)) for timer in TEN]
    aws.ports.timers.put(behind)
    poller = another(aws)
    assert poller.due(NOON, 0, FOREVER, None, 10) == (behind, None, 60)


def test_row_changed_to_newer_format_is_not_deleted(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    poller = another(aws)
    assert due(poller) == TEN
    aws.ports.timers.delete(TEN[:6])
    later = set_newer_format(aws)
    with pytest.raises(LaterVersion):
        poller.delete(TEN[:5])
    assert rows(aws) == [later]


def set_newer_format(aws: Moto) -> dict[str, Any]:
    (row,) = rows(aws)
    later = {**row, keys.LAYOUT_ATTR: to_attribute(keys.SHARED_TIMERS_LAYOUT + 1)}
    aws.clients.dynamodb.batch_write_item(
        RequestItems={keys.TIMERS_TABLE.name: [{"PutRequest": {"Item": later}}]}
    )
    return later


def test_partial_delete_of_missing_row_makes_no_row(aws: Moto) -> None:
    aws.ports.timers.put(TEN)
    poller = another(aws)
    assert due(poller) == TEN
    aws.ports.timers.delete(TEN)
    poller.delete(TEN[:5])
    assert rows(aws) == [], "an update must not create a row"


def test_row_put_again_late_yields_only_duplicate_timers(aws: Moto) -> None:
    """A repeated put restores timers that were already deleted."""
    aws.ports.timers.put(TEN)
    (before,) = rows(aws)
    poller = another(aws)
    assert due(poller) == TEN
    poller.delete(TEN[:5])
    aws.clients.dynamodb.batch_write_item(
        RequestItems={keys.TIMERS_TABLE.name: [{"PutRequest": {"Item": before}}]}
    )
    assert due(another(aws)) == TEN
    poller.delete(TEN[5:])
    assert rows(aws) == []


def test_job_bounds_include_keys_of_shared_rows() -> None:
    first = timer_keys.shared_row_key(timer_keys.timer_key(*TEN[0]), "ff")
    low, high = timer_keys.job_bounds(TEN[0].at, TEN[0].tenant, TEN[0].job_id)
    assert low < first.sk < high
    assert timer_keys.next_sort_key(timer_keys.timer_key(*TEN[0]).sk) <= first.sk
