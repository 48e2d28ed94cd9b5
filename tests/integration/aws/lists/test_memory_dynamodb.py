"""DynamoDB in memory answers as moto does, for the calls of the adapters of lists."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from punctual.aws.dynamodb.attributes import to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange
from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.retries import ConditionFailed
from tests.support.aws.memory_dynamodb import MemoryDynamoDB
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, ManualClock

PARTITIONS, SORT_KEYS = ("acme#jobs#00", "acme#runs#00"), tuple("abcdef")
CALLS = 120
CONDITIONS = (
    "attribute_not_exists(#pk)",
    "attribute_exists(#pk)",
    "attribute_exists(#pk) AND (attribute_not_exists(#mark) OR #mark < :number)",
    "(attribute_not_exists(#version) OR #version < :number OR #mark <= :low) "
    "AND attribute_exists(#pk)",
    "#version = :number AND #pk <> :text",
    "#version >= :low AND #mark > :low",
)
NAMES = {"#pk": "pk", "#version": "version", "#mark": "mark"}


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(ManualClock(NOON)) as aws:
        yield aws


def _used(names: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        mark: value for mark, value in names.items() if f"{mark} " in f"{text} ".replace(")", " ")
    }


def _condition(chance: random.Random, updates: bool) -> Condition:
    expression = chance.choice(CONDITIONS)
    update = chance.choice(("SET #version = :number", "SET #version = :number REMOVE #mark"))
    update = chance.choice((update, "SET #mark = :low, #version = :number")) if updates else ""
    values = {
        ":number": to_attribute(chance.randint(0, 4)),
        ":low": to_attribute(chance.randint(0, 3)),
        ":text": to_attribute("x"),
    }
    text = f"{expression} {update}".replace(",", " ")
    return Condition(expression, update, _used(NAMES, text), _used(values, text))


def _call(dynamo: DynamoClient, table: str, chance: random.Random) -> Any:
    """Make a random call, and return its answer."""
    key = RowKey(chance.choice(PARTITIONS), chance.choice(SORT_KEYS))
    item = {**key.item(), "version": to_attribute(chance.randint(0, 4))}
    if chance.random() < 0.5:
        item["mark"] = to_attribute(chance.randint(0, 4))
    match chance.choice(("put", "delete", "put_if", "update_if", "read", "query", "page", "scan")):
        case "put":
            return dynamo.put(table, [item])
        case "delete":
            return dynamo.delete(table, [key])
        case "put_if":
            return dynamo.put_if(table, item, _condition(chance, updates=False))
        case "update_if":
            return dynamo.update_if(table, key, _condition(chance, updates=True), returns_row=True)
        case "read":
            return dynamo.read(table, [key, RowKey(PARTITIONS[0], "a")])
        case "query":
            low, high = sorted(chance.sample(SORT_KEYS, 2))
            key_range = KeyRange(key.pk, chance.choice((None, low)), high)
            return list(dynamo.query(table, key_range, chance.randint(1, 4)))
        case "page":
            key_range = KeyRange(key.pk, high=key.sk, excludes_high=True, newest_first=True)
            # As on AWS, a page that ends at its limit may be followed by an empty one. Not in moto.
            return dynamo.query_page(table, key_range, chance.choice((None, 2)))[0]
        case _:
            filters = {
                "FilterExpression": "attribute_exists(#mark)",
                "ExpressionAttributeNames": {"#mark": "mark"},
            }
            items, _ = dynamo.scan(table, None, 1_000, filters)
            return sorted(map(str, items))


@pytest.mark.parametrize("seed", range(4))
def test_memory_answers_as_moto(aws: Moto, seed: int) -> None:
    table, database = aws.settings.lists_table, MemoryDynamoDB()
    real, memory = aws.ports.job_states._dynamo, database.dynamo()
    refusals = 0
    for number in range(CALLS):
        expected = _call(real, table, random.Random(f"{seed} {number}"))
        answer = _call(memory, table, random.Random(f"{seed} {number}"))
        assert answer == expected, (number, answer, expected)
        refusals += isinstance(answer, ConditionFailed)
    assert database.rows(table) == sorted(
        aws.rows("lists"), key=lambda row: (row["pk"]["S"], row["sk"]["S"])
    )
    assert refusals > 5
