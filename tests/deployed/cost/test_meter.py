"""The meter counts units as AWS bills them."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from bench.cost.meter import Meter, Unit
from bench.cost.prices import prices
from punctual.aws.dynamodb.keys import JOBS_TABLE
from tests.support.deployed.deployed import REGION


class Metered:
    def __init__(self) -> None:
        session: Any = boto3.Session(
            region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.meter = Meter(session.client("dynamodb"))
        self.dynamodb: Any = session.client("dynamodb")
        self.s3: Any = session.client("s3")
        self.dynamodb.create_table(
            TableName=JOBS_TABLE.name, BillingMode="PAY_PER_REQUEST", **JOBS_TABLE.schema()
        )
        for client in (self.dynamodb, self.s3):
            self.meter.watch(client)

    def units(self, work: Callable[[], Any]) -> dict[Unit, float]:
        self.meter.calls.clear()
        work()
        units: dict[Unit, float] = {}
        for call in self.meter.calls:
            for (unit, _), amount in call.units.items():
                units[unit] = units.get(unit, 0) + amount
        return units

    def put(self, sk: str, size: int, **arguments: Any) -> None:
        item = {"pk": {"S": "p"}, "sk": {"S": sk}, "x": {"S": "x" * (size - 6 - len(sk))}}
        self.dynamodb.put_item(TableName=JOBS_TABLE.name, Item=item, **arguments)


@pytest.fixture
def metered() -> Iterator[Metered]:
    with mock_aws():
        yield Metered()


def test_write_costs_kilobytes_of_larger_image(metered: Metered) -> None:
    assert metered.units(lambda: metered.put("a", 1024)) == {Unit.WRITE: 1}
    assert metered.units(lambda: metered.put("a", 1025)) == {Unit.WRITE: 2}
    assert metered.units(lambda: metered.put("a", 100)) == {Unit.WRITE: 2}
    assert metered.units(lambda: metered.put("a", 100)) == {Unit.WRITE: 1}


def test_failed_condition_costs_size_of_existing_row(metered: Metered) -> None:
    metered.put("a", 2500)

    def refused() -> None:
        with pytest.raises(ClientError):
            metered.put("a", 100, ConditionExpression="attribute_not_exists(pk)")

    assert metered.units(refused) == {Unit.WRITE: 3}
    (call,) = metered.meter.calls
    assert (call.error, list(call.writes)) == ("ConditionalCheckFailedException", [])


def test_batch_write_costs_each_row(metered: Metered) -> None:
    metered.put("old", 1500)
    requests: list[Any] = [
        {"PutRequest": {"Item": {"pk": {"S": "p"}, "sk": {"S": f"{n}"}}}} for n in range(3)
    ]
    requests.append({"DeleteRequest": {"Key": {"pk": {"S": "p"}, "sk": {"S": "old"}}}})
    requests.append({"DeleteRequest": {"Key": {"pk": {"S": "p"}, "sk": {"S": "none"}}}})
    spent = metered.units(
        lambda: metered.dynamodb.batch_write_item(RequestItems={JOBS_TABLE.name: requests})
    )
    assert spent == {Unit.WRITE: 3 + 2 + 1}
    (call,) = metered.meter.calls
    assert [write.key.sk for write in call.writes] == ["0", "1", "2", "old"]


def test_key_reads_are_rounded_each_and_queries_once(metered: Metered) -> None:
    for sk in "abc":
        metered.put(sk, 3000)
    wanted = [{"pk": {"S": "p"}, "sk": {"S": sk}} for sk in "abcd"]
    asked: dict[str, Any] = {"Keys": wanted, "ConsistentRead": True}
    assert metered.units(
        lambda: metered.dynamodb.batch_get_item(RequestItems={JOBS_TABLE.name: asked})
    ) == {Unit.READ: 4}
    condition: dict[str, Any] = {
        "TableName": JOBS_TABLE.name,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": "p"}},
    }
    assert metered.units(lambda: metered.dynamodb.query(**condition)) == {Unit.READ: 1.5}
    strong = {**condition, "ConsistentRead": True}
    assert metered.units(lambda: metered.dynamodb.query(**strong)) == {Unit.READ: 3}


def test_filter_does_not_reduce_cost_and_empty_query_costs_one(metered: Metered) -> None:
    for sk in "abc":
        metered.put(sk, 3000)
    query: dict[str, Any] = {
        "TableName": JOBS_TABLE.name,
        "KeyConditionExpression": "#pk = :pk",
        "FilterExpression": "#y = :pk",
        "ExpressionAttributeNames": {"#pk": "pk", "#y": "y"},
        "ExpressionAttributeValues": {":pk": {"S": "p"}},
        "ConsistentRead": True,
    }
    assert metered.units(lambda: metered.dynamodb.query(**query)) == {Unit.READ: 3}
    query["ExpressionAttributeValues"] = {":pk": {"S": "none"}}
    assert metered.units(lambda: metered.dynamodb.query(**query)) == {Unit.READ: 1}


def test_transaction_costs_double(metered: Metered) -> None:
    items: list[Any] = [
        {"Put": {"TableName": JOBS_TABLE.name, "Item": {"pk": {"S": "p"}, "sk": {"S": str(n)}}}}
        for n in range(2)
    ]
    spent = metered.units(lambda: metered.dynamodb.transact_write_items(TransactItems=items))
    assert spent == {Unit.WRITE: 4}


def test_s3_put_and_get_cost_and_delete_is_free(metered: Metered) -> None:
    metered.s3.create_bucket(Bucket="bucket")
    place = {"Bucket": "bucket", "Key": "outputs/a"}
    assert metered.units(lambda: metered.s3.put_object(**place, Body=b"x")) == {Unit.PUT: 1}
    assert metered.units(lambda: metered.s3.get_object(**place)) == {Unit.GET: 1}
    assert metered.units(lambda: metered.s3.delete_object(**place)) == {}
    link = metered.units(lambda: metered.s3.generate_presigned_url("get_object", Params=place))
    assert link == {}
    assert [call.operation for call in metered.meter.calls] == ["GetObject"]


def test_every_unit_has_a_price_and_its_page() -> None:
    known = prices()
    assert set(known.units) == set(Unit)
    assert all(known.pages[name] for name in (*known.units, *known.monthly))
