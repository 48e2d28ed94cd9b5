"""Meter every boto3 call: its caller, its target, and its billed units.

The units follow AWS's rules and the real sizes of items (sizes.py). The consumed capacity that
local emulators report is not used, because they ignore sizes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bench.sizes import chunks, index_units, item_bytes, read_units, write_units
from punctual.aws.dynamodb import keys

SPARSE = {table.name: table.sparse for table in keys.TABLES}

Item = Mapping[str, Any]
Units = defaultdict[tuple["Unit", str], float]


class Unit(StrEnum):
    """A billed unit. prices.json has a price for each."""

    WRITE = "dynamodb-write"
    READ = "dynamodb-read"
    SQS = "sqs-standard"
    FIFO = "sqs-fifo"
    PUT = "s3-put"
    GET = "s3-get"
    EVENT = "event"
    REQUEST = "lambda-request"
    GB_SECOND = "lambda-gb-second"
    LOG_BYTE = "log-byte"
    API = "http-api-request"
    SECRET = "secret-read"
    TRACE = "xray-trace"


@dataclass(frozen=True)
class Written:
    """One changed row, as a stream reports it."""

    table: str
    key: keys.RowKey
    before: Item | None
    after: Item | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Call:
    role: str
    service: str
    operation: str
    params: Mapping[str, Any]
    units: Mapping[tuple[Unit, str], float]  # by unit and by purpose
    writes: Sequence[Written] = ()
    error: str = ""
    by_lambda: bool = False  # Lambda's pollers make this call for the function, at no run time


@dataclass
class Meter:
    """A meter. `bare` is an unmetered DynamoDB client that reads rows before and after a write."""

    bare: Any
    role: str = "test"
    calls: list[Call] = field(default_factory=list)

    def watch(self, client: Any) -> None:
        events = client.meta.events
        events.register_first("before-parameter-build.*.*", self._asked)
        events.register_first("before-call.*.*", self._begun)
        events.register_first("after-call.*.*", self._answered)

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        """Attribute all calls inside the context to `role`."""
        before, self.role = self.role, role
        try:
            yield
        finally:
            self.role = before

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def spend(self, role: str, unit: Unit, what: str, amount: float = 1) -> None:
        """Add a billed item without an API call: an invocation, or bytes of a log."""
        self.add(Call(role, "billing", "-", {}, {(unit, what): amount}))

    def _asked(self, params: Mapping[str, Any], model: Any, context: Any, **_: Any) -> None:
        service = model.service_model.service_name
        if context.get("is_presign_request"):
            self.add(Call(self.role, service, model.name, dict(params), {}))
        else:
            context["metered"] = dict(params)

    def _begun(self, model: Any, context: Any, **_: Any) -> None:
        params = context["metered"]
        context["begun"] = True
        if model.service_model.service_name == "dynamodb":
            context["rows_before"] = self._rows(_written_keys(model.name, params))

    def _answered(self, parsed: Mapping[str, Any], model: Any, context: Any, **_: Any) -> None:
        if "begun" not in context:  # the request was not sent to AWS
            return
        service, params = model.service_model.service_name, context["metered"]
        error = parsed.get("Error", {}).get("Code", "")
        writes: Sequence[Written] = ()
        if service == "dynamodb":
            writes = self._writes(model.name, params, context["rows_before"])
            units = self._dynamodb(model.name, params, parsed, writes)
        else:
            units = _others(service, model.name, params)
        self.add(
            Call(
                self.role,
                service,
                model.name,
                params,
                units,
                [one for one in writes if one.changed],
                error,
            )
        )

    def _rows(self, wanted: Sequence[tuple[str, Item]]) -> list[Item | None]:
        return [
            self.bare.get_item(TableName=table, Key=dict(key), ConsistentRead=True).get("Item")
            for table, key in wanted
        ]

    def _writes(
        self, operation: str, params: Mapping[str, Any], before: Sequence[Item | None]
    ) -> list[Written]:
        places = _written_keys(operation, params)
        after = self._rows(places)
        return [
            Written(table, keys.RowKey(key[keys.PK]["S"], key[keys.SK]["S"]), old, new)
            for (table, key), old, new in zip(places, before, after, strict=True)
        ]

    def _dynamodb(
        self,
        operation: str,
        params: Mapping[str, Any],
        parsed: Mapping[str, Any],
        writes: Sequence[Written],
    ) -> Units:
        units: Units = defaultdict(float)
        twice = 2 if operation == "TransactWriteItems" else 1
        for one in writes:
            cost = twice * write_units(one.before, one.after)
            units[Unit.WRITE, purpose(one.table, one.key, deleted=one.after is None)] += cost
            index = SPARSE.get(short(one.table))
            if index and (cost := index_units(one.before, one.after, index)):
                units[Unit.WRITE, f"{short(one.table)}: index"] += cost
        if operation == "BatchGetItem":
            for table, asked in params["RequestItems"].items():
                rows = {keys_of(row): row for row in parsed.get("Responses", {}).get(table, ())}
                for key in asked["Keys"]:
                    size = item_bytes(rows.get(keys_of(key), {}))
                    read = read_units([size], asked.get("ConsistentRead", False), each=True)
                    units[Unit.READ, purpose(table, keys_of(key))] += read
        elif operation == "GetItem":
            size = item_bytes(parsed.get("Item", {}))
            read = read_units([size], params.get("ConsistentRead", False), each=True)
            units[Unit.READ, purpose(params["TableName"], keys_of(params["Key"]))] += read
        elif operation in ("Query", "Scan"):
            sizes = self._ranged(operation, params, parsed)
            read = read_units(sizes, params.get("ConsistentRead", False), each=False)
            units[Unit.READ, f"{short(params['TableName'])}: {operation.lower()}"] += read
        return units

    def _ranged(
        self, operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]
    ) -> list[int]:
        """Return the sizes of the rows read.

        A filter or projection does not reduce the billed size.
        """
        if "FilterExpression" not in params and "ProjectionExpression" not in params:
            return [item_bytes(row) for row in parsed.get("Items", ())]
        plain = {
            name: value
            for name, value in params.items()
            if name not in ("FilterExpression", "ProjectionExpression")
        }
        used = plain.get("KeyConditionExpression", "")
        for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            kept = {mark: value for mark, value in plain.pop(name, {}).items() if mark in used}
            if kept:
                plain[name] = kept
        answer = getattr(self.bare, operation.lower())(**plain)
        return [item_bytes(row) for row in answer["Items"]]


def purpose(table: str, key: keys.RowKey, deleted: bool = False) -> str:
    """Return the kind of a row, from its table and key.

    >>> purpose("punctual-dev-timers", keys.RowKey("2026-12-01T10:00Z#7", "x"), deleted=True)
    'timers: timer gone'
    """
    name = short(table)
    gone = " gone" if deleted else ""
    match name:
        case keys.JOBS.name:
            kind = "body" if key.pk.endswith("#body") else "head"
        case keys.TIMERS.name:
            kind = "timer"
        case keys.HISTORY.name:
            kind = "attempt" if key.sk.startswith("try#") else "run"
            kind = "pack" if key.pk.count("#") > 1 else kind
        case keys.CONTROL.name:
            parts = key.pk.split("#")
            kind = f"#{parts[1]}" if len(parts) > 1 else parts[0]
        case _:
            kind = "row"
    return f"{name}: {kind}{gone}"


def short(table: str) -> str:
    """Return the short name of a table.

    >>> short("Punctual-dev-Data-TimersTable0C93E2D8")
    'timers'
    """
    return next((one.name for one in keys.TABLES if one.name in table.lower()), table)


def keys_of(row: Item) -> keys.RowKey:
    return keys.RowKey(row[keys.PK]["S"], row[keys.SK]["S"])


def _written_keys(operation: str, params: Mapping[str, Any]) -> list[tuple[str, Item]]:
    """Return the tables and keys that a call writes. An item holds its key."""
    match operation:
        case "PutItem":
            return [(params["TableName"], _key(params["Item"]))]
        case "UpdateItem" | "DeleteItem":
            return [(params["TableName"], params["Key"])]
        case "BatchWriteItem":
            return [
                (table, _key(one["PutRequest"]["Item"]) if "PutRequest" in one else _deleted(one))
                for table, some in params["RequestItems"].items()
                for one in some
            ]
        case "TransactWriteItems":
            return [
                (what["TableName"], _key(what["Item"]) if "Item" in what else what["Key"])
                for action in params["TransactItems"]
                for what in action.values()
            ]
    return []


def _deleted(request: Mapping[str, Any]) -> Item:
    key: Item = request["DeleteRequest"]["Key"]
    return key


def _key(item: Item) -> Item:
    return {keys.PK: item[keys.PK], keys.SK: item[keys.SK]}


_PUTS = frozenset({"PutObject", "CopyObject", "ListObjectsV2", "CreateMultipartUpload"})
_FREE = frozenset({"DeleteObject", "DeleteObjects"})


def _others(service: str, operation: str, params: Mapping[str, Any]) -> Units:
    units: Units = defaultdict(float)
    match service:
        case "sqs":
            unit, name = queue_of(params["QueueUrl"])
            sent = params.get("Entries", [params])
            size = sum(len(one.get("MessageBody", "").encode()) for one in sent)
            units[unit, f"{name}: {operation}"] += chunks(size)
        case "s3" if operation not in _FREE:
            unit = Unit.PUT if operation in _PUTS else Unit.GET
            prefix = str(params.get("Key", params.get("Prefix", ""))).split("/")[0]
            units[unit, f"{prefix}: {operation}"] += 1
        case "events" if operation == "PutEvents":
            for entry in params["Entries"]:
                size = sum(len(entry[part].encode()) for part in ("Source", "DetailType", "Detail"))
                units[Unit.EVENT, entry["DetailType"]] += chunks(size)
        case "secretsmanager":
            units[Unit.SECRET, operation] += 1
    return units


def queue_of(url: str) -> tuple[Unit, str]:
    """Return the unit and the name of the queue behind a URL.

    >>> queue_of("https://sqs.invalid/1/punctual-dev-quick.fifo")
    (<Unit.FIFO: 'sqs-fifo'>, 'punctual-dev-quick.fifo')
    """
    name = url.rsplit("/", 1)[-1]
    return (Unit.FIFO if name.endswith(".fifo") else Unit.SQS), name
