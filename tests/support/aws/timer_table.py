"""An in-memory timer table with the interface of a DynamoDB client, for speed.

It supports only the calls that timers make. Tests plan a fault for each coming call, and changes by
other processes before it.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from bench.cost.sizes import item_bytes
from punctual.aws.dynamodb.client import DynamoClient, key_of
from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR
from punctual.aws.dynamodb.timers.rows import TimerRowCache
from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.retries import CONDITION_FAILED_CODE, RetryPolicy
from punctual.aws.thread_pool import ThreadPool

Row = dict[str, Any]


class Fault(StrEnum):
    LOST = "lost"  # takes effect, but the answer is lost
    UNREACHED = "unreached"
    IN_PART = "in part"  # only the first row of a batch takes effect


class TimerTable:
    def __init__(self) -> None:
        self.rows: dict[RowKey, Row] = {}
        self.faults: list[Fault] = []
        self.meanwhile: list[Callable[[], None] | None] = []
        self._marks = 0

    def process(self, known: TimerRowCache | None = None) -> DynamoTimers:
        patience = RetryPolicy(lambda _: None, seed="model", tries=4)
        return DynamoTimers(
            DynamoClient(lambda: self, ThreadPool(1), patience), "timers", self._new_mark, known
        )

    def _new_mark(self) -> str:
        self._marks += 1
        return f"{self._marks:012x}"

    def _fault(self) -> Fault | None:
        if self.meanwhile and (others := self.meanwhile.pop(0)) is not None:
            others()
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.UNREACHED:
            raise _no_answer()
        return fault

    def batch_write_item(self, RequestItems: dict[str, list[Row]]) -> Row:
        fault = self._fault()
        ((table, requests),) = RequestItems.items()
        assert 1 <= len(requests) <= 25
        done = requests[:1] if fault is Fault.IN_PART else requests
        for request in done:
            if "PutRequest" in request:
                item = request["PutRequest"]["Item"]
                assert item_bytes(item) <= 1_024
                self.rows[key_of(item)] = dict(item)
            else:
                self.rows.pop(key_of(request["DeleteRequest"]["Key"]), None)
        if fault is Fault.LOST:
            raise _no_answer()
        return {"UnprocessedItems": {table: requests[len(done) :]} if done != requests else {}}

    def query(self, **asked: Any) -> Row:
        if self._fault() is Fault.LOST:
            raise _no_answer()
        assert asked["ConsistentRead"]
        values = {name: value["S"] for name, value in asked["ExpressionAttributeValues"].items()}
        low, high = values.get(":low", ""), values[":high"]
        rows = sorted(
            (
                (key.sk.encode(), row)
                for key, row in self.rows.items()
                if key.pk == values[":pk"] and low.encode() <= key.sk.encode() <= high.encode()
            ),
            key=lambda pair: pair[0],
            reverse=not asked["ScanIndexForward"],
        )
        assert "ExclusiveStartKey" not in asked, "no moment here is larger than a page"
        items = [dict(row) for _, row in rows[: asked["Limit"]]]
        more = {"LastEvaluatedKey": key_of(items[-1]).item()} if len(rows) > len(items) else {}
        return {"Items": items, **more}

    def update_item(self, **asked: Any) -> Row:
        fault = self._fault()
        key, values = key_of(asked["Key"]), asked["ExpressionAttributeValues"]
        row = self.rows.get(key, {})
        members = set(row.get(MEMBERS_ATTR, {"SS": ()})["SS"])
        gone = set(values[":these"]["SS"])
        if len(members) <= int(values[":many"]["N"]):
            answer = (
                {"Error": {"Code": CONDITION_FAILED_CODE}, "Item": row} if row else {"Error": {}}
            )
            raise ClientError({**answer, "Error": {"Code": CONDITION_FAILED_CODE}}, "UpdateItem")  # type: ignore[typeddict-item]
        self.rows[key] = {**row, MEMBERS_ATTR: {"SS": sorted(members - gone)}}
        if fault is Fault.LOST:
            raise _no_answer()
        return {}


def _no_answer() -> ReadTimeoutError:
    return ReadTimeoutError(endpoint_url="https://aws.invalid")
