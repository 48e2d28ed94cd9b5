"""Outcomes of a batch on AWS: one small row that expires, separate for each tenant."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.engine.changes.run_results import UNREADABLE_RUN_DETAIL
from punctual.engine.ports.rows import AttemptRow, Detail, RunKey
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import refused
from tests.support.builders import JOB, NOON, RUN, a_run, an_attempt, an_id
from tests.support.item_size import item_size

NONCE = "0123456789ab"
DAYS = timedelta(days=7)
JSON = "application/json"


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def an_end(n: int = 0, **fields: Any) -> AttemptRow:
    values = {"run_id": an_id(n), "nonce": f"{NONCE}.{n}", "expires_at": NOON + DAYS, **fields}
    return an_attempt(1, 2, **values)


def stored_detail(aws: Moto, row: AttemptRow) -> Detail | None:
    run = a_run(row.run_id, token=row.token, nonce=row.nonce)
    return aws.ports.history.find_result(RunKey(row.tenant, row.job_id, row.run_id), run, NOON)


def rewrite(aws: Moto, row: Item) -> None:
    aws.clients.dynamodb.batch_write_item(RequestItems={"runs": [{"PutRequest": {"Item": row}}]})


def batch(count: int, **detail: Any) -> list[AttemptRow]:
    return [an_end(n, job_id=an_id(500 + n), detail=Detail(**detail)) for n in range(count)]


def test_batch_outcomes_are_one_row_under_a_kilobyte(aws: Moto) -> None:
    blob = f"outputs/acme/{an_id(1)}/{an_id(2)}/1"
    rows = batch(10, output_blob=blob, output_size=27, output_type=JSON, http_status=200)
    assert aws.spend(lambda: aws.ports.history.put_results(rows)) == {"BatchWriteItem": 1}
    (row,) = aws.rows("runs")
    print(f"ten ends: {item_size(row)} bytes")
    assert item_size(row) < 1_024
    assert int(row[keys.TTL]["N"]) == keys.to_ttl(NOON + DAYS)
    assert [stored_detail(aws, row) for row in rows] == [row.detail for row in rows]


def test_batch_outcomes_are_separate_for_each_tenant(aws: Moto) -> None:
    """Both runs have the same ids and the same nonce."""
    mine, theirs = an_end(detail=Detail(error="mine")), an_end(tenant="globex")
    aws.ports.history.put_results([mine])
    assert stored_detail(aws, theirs) is None
    aws.ports.history.put_results([theirs])
    assert len({row[keys.PK]["S"] for row in aws.rows("runs")}) == 2
    assert stored_detail(aws, mine) == Detail(error="mine")
    assert stored_detail(aws, theirs) == Detail()


def test_batches_with_equal_nonce_keep_their_own_outcomes(aws: Moto) -> None:
    """A nonce has 48 bits, so two of many batches can have the same one."""
    mine = an_end(3, detail=Detail(error="mine"))
    other = an_end(4, nonce=mine.nonce, detail=Detail(error="another batch's"))
    aws.ports.history.put_results([mine])
    aws.ports.history.put_results([other])
    assert [stored_detail(aws, row) for row in (mine, other)] == [mine.detail, other.detail]


def test_expired_batch_outcome_is_not_found(aws: Moto) -> None:
    gone = an_end(expires_at=NOON)
    aws.ports.history.put_results([gone])
    assert len(aws.rows("runs")) == 1
    assert stored_detail(aws, gone) is None


@pytest.mark.parametrize("spoilt", [b"", b"no pack", None])
def test_unreadable_batch_outcomes_yield_a_marked_detail(aws: Moto, spoilt: bytes | None) -> None:
    row = an_end(detail=Detail(output=b"lost"))
    aws.ports.history.put_results([row])
    (stored,) = aws.rows("runs")
    del stored[keys.DATA_ATTR]
    if spoilt is not None:
        stored[keys.DATA_ATTR] = to_attribute(spoilt)
    rewrite(aws, stored)
    assert stored_detail(aws, row) == UNREADABLE_RUN_DETAIL
    other = an_end(1, detail=Detail(output=b"kept"))
    aws.ports.history.put_results([other])
    assert stored_detail(aws, other) == other.detail, "other outcomes stay readable"


def test_batch_outcomes_of_newer_format_raise_later_version(aws: Moto) -> None:
    row = an_end()
    aws.ports.history.put_results([row])
    (stored,) = aws.rows("runs")
    stored[keys.LAYOUT_ATTR] = to_attribute(keys.BATCH_OUTCOMES_LAYOUT + 1)
    rewrite(aws, stored)
    with pytest.raises(LaterVersion):
        stored_detail(aws, row)


def test_batch_outcomes_are_neither_runs_nor_attempts(aws: Moto) -> None:
    history = aws.ports.history
    row = an_end(run_id=RUN)
    history.put_results([row])
    key = RunKey("acme", JOB, RUN)
    assert list(history.attempts(key, NOON)) == []
    assert history.recorded_keys([key]) == frozenset()
    assert history.get([key], NOON) == {}


def test_long_throttling_is_unavailable(aws: Moto) -> None:
    row = an_end()
    with (
        refused(aws.clients.dynamodb, "BatchWriteItem", 99, "ThrottlingException"),
        pytest.raises(Unavailable),
    ):
        aws.ports.history.put_results([row])
    assert stored_detail(aws, row) is None
    with refused(aws.clients.dynamodb, "BatchWriteItem", 2, "ThrottlingException"):
        aws.ports.history.put_results([row])
    assert stored_detail(aws, row) == Detail()
