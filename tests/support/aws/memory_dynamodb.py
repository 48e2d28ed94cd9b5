"""A client of DynamoDB over dicts, hundreds of times faster than moto, with faults at each call.

It knows the operations and the expressions that the adapters of lists send. Anything else is an
error. `tests/integration/aws/lists/test_memory_dynamodb.py` compares it with moto.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.retries import CONDITION_FAILED_CODE, RetryPolicy
from punctual.aws.thread_pool import ThreadPool

Item = dict[str, Any]
Effect = Callable[[], Any]
Faults = Callable[[str, Effect], Any]
"""Makes a call take effect. Called with the operation and its effect, it returns the answer."""

MAX_BYTES_OF_A_PAGE = 1_048_576
_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),]|[#:]?\w+)")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def no_faults(_operation: str, effect: Effect) -> Any:
    return effect()


def no_answer() -> ReadTimeoutError:
    """Return what botocore raises where a call has no answer. It may have taken effect."""
    return ReadTimeoutError(endpoint_url="https://aws.invalid")


class MemoryDynamoDB:
    """Stands in for the client of boto3. `faults` makes each call take effect, or not."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, dict[str, Item]]] = {}
        self.faults: Faults = no_faults
        self.calls: list[str] = []

    def dynamo(self, tries: int = 3) -> DynamoClient:
        """Return the client of the adapters. Its calls run one after the other."""
        return DynamoClient(
            lambda: self, ThreadPool(1), RetryPolicy(lambda _: None, seed="memory", tries=tries)
        )

    def rows(self, table: str) -> list[Item]:
        partitions = self.tables.get(table, {})
        return [partitions[pk][sk] for pk in sorted(partitions) for sk in sorted(partitions[pk])]

    def put_item(self, **request: Any) -> Any:
        return self._call("PutItem", lambda: self._put(request))

    def update_item(self, **request: Any) -> Any:
        return self._call("UpdateItem", lambda: self._update(request))

    def delete_item(self, **request: Any) -> Any:
        return self._call("DeleteItem", lambda: self._delete(request))

    def batch_write_item(self, **request: Any) -> Any:
        return self._call("BatchWriteItem", lambda: self._batch_write(request))

    def batch_get_item(self, **request: Any) -> Any:
        return self._call("BatchGetItem", lambda: self._batch_get(request))

    def query(self, **request: Any) -> Any:
        return self._call("Query", lambda: self._query(request))

    def scan(self, **request: Any) -> Any:
        return self._call("Scan", lambda: self._scan(request))

    def transact_write_items(self, **request: Any) -> Any:
        return self._call("TransactWriteItems", lambda: self._transact(request["TransactItems"]))

    def _call(self, operation: str, effect: Effect) -> Any:
        self.calls.append(operation)
        return self.faults(operation, effect)

    def _transact(self, entries: Sequence[Item]) -> Item:
        """Put and update rows if all conditions hold."""
        assert 1 <= len(entries) <= 100
        requests = [next(iter(entry.items())) for entry in entries]
        reasons = []
        for kind, request in requests:
            try:
                self._check(request, _keys_of(request["Item"]) if kind == "Put" else request["Key"])
                reasons.append({"Code": "None"})
            except ClientError:
                reasons.append({"Code": "ConditionalCheckFailed"})
        if any(reason["Code"] != "None" for reason in reasons):
            error = {"Code": "TransactionCanceledException", "Message": "cancelled"}
            response: Item = {"Error": error, "CancellationReasons": reasons}
            raise ClientError(response, "a transaction")  # type: ignore[arg-type]
        for kind, request in requests:
            assert kind in ("Put", "Update")
            self._put(request) if kind == "Put" else self._update(request)
        return {}

    def _put(self, request: Item) -> Item:
        item = request["Item"]
        self._check(request, _keys_of(item))
        self._store(request["TableName"], item)
        return {}

    def _update(self, request: Item) -> Item:
        key = request["Key"]
        stored = self._check(request, key)
        item = _updated({**(stored or key)}, request)
        self._store(request["TableName"], item)
        return {"Attributes": item} if request.get("ReturnValues") == "ALL_NEW" else {}

    def _delete(self, request: Item) -> Item:
        key = request["Key"]
        self._check(request, key)
        self._remove(request["TableName"], key)
        return {}

    def _batch_write(self, request: Item) -> Item:
        for table, entries in request["RequestItems"].items():
            assert 1 <= len(entries) <= 25
            for entry in entries:
                ((kind, arguments),) = entry.items()
                if kind == "PutRequest":
                    self._store(table, arguments["Item"])
                else:
                    self._remove(table, arguments["Key"])
        return {}

    def _batch_get(self, request: Item) -> Item:
        found: dict[str, list[Item]] = {}
        for table, arguments in request["RequestItems"].items():
            assert 1 <= len(arguments["Keys"]) <= 100
            rows = (self._find(table, key) for key in arguments["Keys"])
            found[table] = [row for row in rows if row is not None]
        return {"Responses": found}

    def _query(self, request: Item) -> Item:
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        assert names["#pk"] == "pk"
        partition = self.tables.get(request["TableName"], {}).get(values[":pk"]["S"], {})
        sort_keys = sorted(partition)
        expression = request["KeyConditionExpression"]
        low, high = (values.get(mark, {}).get("S") for mark in (":low", ":high"))
        start = 0 if low is None else bisect_left(sort_keys, low)
        cut = bisect_left if "#sk < :high" in expression else bisect_right
        sort_keys = sort_keys[start : len(sort_keys) if high is None else cut(sort_keys, high)]
        if not request.get("ScanIndexForward", True):
            sort_keys.reverse()
        after = request.get("ExclusiveStartKey", {}).get("sk", {}).get("S")
        if after is not None:
            sort_keys = sort_keys[sort_keys.index(after) + 1 :]
        return _page([partition[sk] for sk in sort_keys], request)

    def _scan(self, request: Item) -> Item:
        assert request.get("TotalSegments", 1) == 1
        rows = self.rows(request["TableName"])
        if "ExclusiveStartKey" in request:
            after = _place(request["ExclusiveStartKey"])
            rows = [row for row in rows if _place(row) > after]
        return _page(rows, request)

    def _check(self, request: Item, key: Item) -> Item | None:
        """Return the stored row. Raise AWS's error if it fails the condition."""
        stored = self._find(request["TableName"], key)
        expression = request.get("ConditionExpression")
        if expression is None or _Expression(expression, request, stored or {}).is_true():
            return stored
        response: Item = {
            "Error": {"Code": CONDITION_FAILED_CODE, "Message": "The conditional request failed"},
            "ResponseMetadata": {"HTTPStatusCode": 400, "RetryAttempts": 0},
        }
        if stored is not None and "ReturnValuesOnConditionCheckFailure" in request:
            response["Item"] = stored
        raise ClientError(response, "a conditional write")  # type: ignore[arg-type]

    def _find(self, table: str, key: Item) -> Item | None:
        return self.tables.get(table, {}).get(key["pk"]["S"], {}).get(key["sk"]["S"])

    def _store(self, table: str, item: Item) -> None:
        partition = self.tables.setdefault(table, {}).setdefault(item["pk"]["S"], {})
        partition[item["sk"]["S"]] = dict(item)

    def _remove(self, table: str, key: Item) -> None:
        self.tables.get(table, {}).get(key["pk"]["S"], {}).pop(key["sk"]["S"], None)


def _keys_of(item: Item) -> Item:
    return {name: item[name] for name in ("pk", "sk")}


def _place(item: Item) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _page(rows: Sequence[Item], request: Item) -> Item:
    """Return a page. A filter drops rows of the page, and never makes it longer."""
    page = list(rows[: request.get("Limit") or len(rows)])
    size = 0
    for number, row in enumerate(page):
        size += sum(len(name) + len(str(value)) for name, value in row.items())
        if size > MAX_BYTES_OF_A_PAGE:
            page = page[: number + 1]
            break
    answer: Item = {}
    if len(page) < len(rows) or (page and len(page) == request.get("Limit")):
        answer["LastEvaluatedKey"] = _keys_of(page[-1])
    expression = request.get("FilterExpression")
    if expression is not None:
        page = [row for row in page if _Expression(expression, request, row).is_true()]
    return {"Items": page, "Count": len(page), **answer}


def _value(attribute: Item) -> Any:
    ((kind, value),) = attribute.items()
    return kind, float(value) if kind == "N" else value


class _Expression:
    """A condition on a row: comparisons, existence, AND, OR and brackets."""

    def __init__(self, text: str, request: Item, row: Item) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        assert "".join(self._tokens) == re.sub(r"\s", "", text), text
        self._names = request.get("ExpressionAttributeNames", {})
        self._values = request.get("ExpressionAttributeValues", {})
        self._row = row
        self._next = 0

    def is_true(self) -> bool:
        answer = self._any()
        assert self._next == len(self._tokens), self._tokens[self._next :]
        return answer

    def _any(self) -> bool:
        parts = [self._all()]
        while self._accept("OR"):
            parts.append(self._all())
        return any(parts)

    def _all(self) -> bool:
        parts = [self._one()]
        while self._accept("AND"):
            parts.append(self._one())
        return all(parts)

    def _one(self) -> bool:
        if self._accept("("):
            answer = self._any()
            assert self._accept(")")
            return answer
        token = self._take()
        if token == "NOT":
            return not self._one()
        if token == "contains":
            assert self._accept("(")
            members = self._row.get(self._names[self._take()], {"SS": []})["SS"]
            assert self._accept(",")
            is_member = self._values[self._take()]["S"] in members
            assert self._accept(")")
            return is_member
        if token in ("attribute_exists", "attribute_not_exists"):
            assert self._accept("(")
            exists = self._names[self._take()] in self._row
            assert self._accept(")")
            return exists is (token == "attribute_exists")
        left, comparison, right = self._operand(token), self._take(), self._operand(self._take())
        if left is None or right is None or left[0] != right[0]:
            return comparison == "<>"
        return _COMPARISONS[comparison](left[1], right[1])

    def _operand(self, token: str) -> Any:
        if token.startswith(":"):
            return _value(self._values[token])
        name = self._names[token]
        return _value(self._row[name]) if name in self._row else None

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, token: str) -> bool:
        if self._tokens[self._next : self._next + 1] != [token]:
            return False
        self._next += 1
        return True


def _updated(item: Item, request: Item) -> Item:
    names, values = (
        request.get("ExpressionAttributeNames", {}),
        request.get("ExpressionAttributeValues", {}),
    )
    for action, assignments in _update_clauses(request["UpdateExpression"]):
        for assignment in assignments:
            if action == "SET":
                name, value = (part.strip() for part in assignment.split("="))
                item[names[name]] = values[value]
            elif action in ("ADD", "DELETE"):
                name, value = assignment.split()
                _add(item, names[name], values[value], action == "DELETE")
            else:
                item.pop(names[assignment], None)
    return item


def _add(item: Item, name: str, value: Item, deletes: bool) -> None:
    """Add a number, or add or delete members of a set. A set without members does not exist."""
    ((kind, added),) = value.items()
    if kind == "N":
        assert not deletes
        item[name] = {"N": str(int(item.get(name, {"N": "0"})["N"]) + int(added))}
        return
    members = set(item.get(name, {"SS": []})["SS"])
    members = members - set(added) if deletes else members | set(added)
    item.pop(name, None)
    if members:
        item[name] = {"SS": sorted(members)}


def _update_clauses(text: str) -> Iterator[tuple[str, list[str]]]:
    parts = re.split(r"\b(SET|REMOVE|ADD|DELETE)\b", text)
    assert not parts[0].strip(), text
    for action, clause in zip(parts[1::2], parts[2::2], strict=True):
        yield action, [assignment.strip() for assignment in clause.split(",")]
