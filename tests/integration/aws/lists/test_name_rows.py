"""Rows of names stand in the table of job states, and only the walk and the names see them."""

from collections.abc import Iterator

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.stream_records import parse_record
from punctual.engine.ports.lists.job_names import NameRow
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import NOON, an_id
from tests.support.builders_jobs import a_job
from tests.support.deployed.stream import passes

NAMES = ("report", "a b#c$d", "line\nend", "report#names#00")


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def put_names(aws: Moto) -> list[NameRow]:
    rows = [NameRow("acme", name, an_id(number), "mark") for number, name in enumerate(NAMES)]
    aws.ports.job_names.put(rows)
    return rows


def test_row_of_a_name_passes_no_filter_of_the_stream(aws: Moto) -> None:
    put_names(aws)
    rows = aws.rows("jobs")
    assert len(rows) == len(NAMES)
    for row in rows:
        for old, new in ((None, row), (row, row), (row, None)):
            record = Stream().record(old, new)
            assert not any(passes(record, pattern) for pattern in keys.JOB_STATE_STREAM_FILTERS)
            assert parse_record(record) is None
    state = Stream().of(None, a_job())
    assert any(passes(state, pattern) for pattern in keys.JOB_STATE_STREAM_FILTERS)


def test_one_scan_meets_states_and_names(aws: Moto) -> None:
    rows = put_names(aws)
    calls = aws.spend(lambda: aws.ports.job_states.walk(None, 1_000))
    page = aws.ports.job_states.walk(None, 1_000)
    assert (sorted(page.names), page.cursor, page.states) == (sorted(rows), None, [])
    assert calls == {"Scan": 4}


def test_walk_continues_after_a_row_of_any_name(aws: Moto) -> None:
    rows = put_names(aws)
    met: list[NameRow] = []
    cursor: str | None = None
    for _ in range(20):
        page = aws.ports.job_states.walk(cursor, 1)
        met += page.names
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(met) == sorted(rows)


def test_unreadable_row_of_a_name_does_not_end_the_walk(aws: Moto) -> None:
    rows = put_names(aws)
    key = keys.name_key("acme", NAMES[0])
    aws.clients.dynamodb.update_item(
        TableName=aws.settings.jobs_table,
        Key=key.item(),
        UpdateExpression="SET #layout = :layout",
        ConditionExpression="attribute_exists(#layout)",
        ExpressionAttributeNames={"#layout": keys.LAYOUT_ATTR},
        ExpressionAttributeValues={":layout": {"N": str(keys.ROW_LAYOUT + 1)}},
    )
    page = aws.ports.job_states.walk(None, 1_000)
    assert sorted(page.names) == sorted(rows[1:])
    assert [(tuple(found), reason) for found, reason in page.unreadable] == [
        (tuple(key), "LaterVersion")
    ]
