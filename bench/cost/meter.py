"""Meter every boto3 call: its caller, its target, and its billed units.

The units follow AWS's rules and the real sizes of items (sizes.py). The consumed capacity that
local emulators report is not used, because they ignore sizes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from bench.cost.sizes import chunks, item_bytes, read_units, write_units
from punctual.aws.dynamodb import keys

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
    GB_SECOND_X86 = "lambda-gb-second-x86"
    DISK_GB_SECOND = "lambda-disk-gb-second"
    LOG_BYTE = "log-byte"
    API = "http-api-request"
    SECRET = "secret-read"
    KMS = "kms-request"
    VCPU_SECOND = "fargate-vcpu-second"
    FARGATE_GB_SECOND = "fargate-gb-second"
    ADDRESS_SECOND = "public-address-second"
    TRACE = "xray-trace"


@dataclass(frozen=True)
class WrittenRow:
    """One changed row, as a stream reports it."""

    table: str
    key: keys.RowKey
    before: Item | None
    after: Item | None

    @property
    def has_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Call:
    role: str
    service: str
    operation: str
    params: Mapping[str, Any]
    units: Mapping[tuple[Unit, str], float]  # by unit and by purpose
    writes: Sequence[WrittenRow] = ()
    error: str = ""
    by_lambda: bool = False  # Lambda's pollers make this call for the function, at no run time


@dataclass
class Meter:
    """A meter.

    `unmetered` is an unmetered DynamoDB client that reads rows before and after a write.
    """

    unmetered: Any
    role: str = "test"
    calls: list[Call] = field(default_factory=list)

    def watch(self, client: Any) -> None:
        events = client.meta.events
        events.register_first("before-parameter-build.*.*", self._before_build)
        events.register_first("before-call.*.*", self._before_call)
        events.register_first("after-call.*.*", self._after_call)

    @contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        """Attribute all calls inside the context to `role`."""
        former_role, self.role = self.role, role
        try:
            yield
        finally:
            self.role = former_role

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def add_billed_item(self, role: str, unit: Unit, purpose_name: str, amount: float = 1) -> None:
        """Add a billed item without an API call: an invocation, or bytes of a log."""
        self.add(Call(role, "billing", "-", {}, {(unit, purpose_name): amount}))

    def _before_build(self, params: Mapping[str, Any], model: Any, context: Any, **_: Any) -> None:
        service = model.service_model.service_name
        if context.get("is_presign_request"):
            self.add(Call(self.role, service, model.name, dict(params), {}))
        else:
            context["metered"] = dict(params)

    def _before_call(self, model: Any, context: Any, **_: Any) -> None:
        params = context["metered"]
        context["begun"] = True
        if model.service_model.service_name == "dynamodb":
            context["rows_before"] = self._read_rows(_written_keys(model.name, params))

    def _after_call(self, parsed: Mapping[str, Any], model: Any, context: Any, **_: Any) -> None:
        if "begun" not in context:  # the request was not sent to AWS
            return
        service, params = model.service_model.service_name, context["metered"]
        error = parsed.get("Error", {}).get("Code", "")
        writes: Sequence[WrittenRow] = ()
        if service == "dynamodb":
            writes = self._written_rows(model.name, params, context["rows_before"])
            units = self._dynamodb_units(model.name, params, parsed, writes)
        else:
            units = _other_units(service, model.name, params)
        self.add(
            Call(
                self.role,
                service,
                model.name,
                params,
                units,
                [write for write in writes if write.has_changed],
                error,
            )
        )

    def _read_rows(self, table_keys: Sequence[tuple[str, Item]]) -> list[Item | None]:
        return [
            self.unmetered.get_item(TableName=table, Key=dict(key), ConsistentRead=True).get("Item")
            for table, key in table_keys
        ]

    def _written_rows(
        self, operation: str, params: Mapping[str, Any], before: Sequence[Item | None]
    ) -> list[WrittenRow]:
        written_keys = _written_keys(operation, params)
        after = self._read_rows(written_keys)
        return [
            WrittenRow(table, keys.RowKey(key[keys.PK]["S"], key[keys.SK]["S"]), old, new)
            for (table, key), old, new in zip(written_keys, before, after, strict=True)
        ]

    def _dynamodb_units(
        self,
        operation: str,
        params: Mapping[str, Any],
        parsed: Mapping[str, Any],
        writes: Sequence[WrittenRow],
    ) -> Units:
        units: Units = defaultdict(float)
        factor = 2 if operation == "TransactWriteItems" else 1
        for write in writes:
            cost = factor * write_units(write.before, write.after)
            units[Unit.WRITE, purpose(write.table, write.key, deleted=write.after is None)] += cost
        if operation == "BatchGetItem":
            for table, batch_request in params["RequestItems"].items():
                rows = {row_key(row): row for row in parsed.get("Responses", {}).get(table, ())}
                for key in batch_request["Keys"]:
                    size = item_bytes(rows.get(row_key(key), {}))
                    read = read_units(
                        [size], batch_request.get("ConsistentRead", False), per_item=True
                    )
                    units[Unit.READ, purpose(table, row_key(key))] += read
        elif operation == "GetItem":
            size = item_bytes(parsed.get("Item", {}))
            read = read_units([size], params.get("ConsistentRead", False), per_item=True)
            units[Unit.READ, purpose(params["TableName"], row_key(params["Key"]))] += read
        elif operation in ("Query", "Scan"):
            sizes = self._range_sizes(operation, params, parsed)
            read = read_units(sizes, params.get("ConsistentRead", False), per_item=False)
            units[Unit.READ, f"{short_table_name(params['TableName'])}: {operation.lower()}"] += (
                read
            )
        return units

    def _range_sizes(
        self, operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]
    ) -> list[int]:
        """Return the sizes of the rows read.

        A filter or projection does not reduce the billed size.
        """
        if "FilterExpression" not in params and "ProjectionExpression" not in params:
            return [item_bytes(row) for row in parsed.get("Items", ())]
        plain_params = {
            name: value
            for name, value in params.items()
            if name not in ("FilterExpression", "ProjectionExpression")
        }
        condition = plain_params.get("KeyConditionExpression", "")
        for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            used_values = {
                placeholder: value
                for placeholder, value in plain_params.pop(name, {}).items()
                if placeholder in condition
            }
            if used_values:
                plain_params[name] = used_values
        answer = getattr(self.unmetered, operation.lower())(**plain_params)
        return [item_bytes(row) for row in answer["Items"]]


def purpose(table: str, key: keys.RowKey, deleted: bool = False) -> str:
    """Return the kind of a row, from its table and key.

    >>> purpose("punctual-dev-timers", keys.RowKey("2026-12-01T10:00Z#7", "x"), deleted=True)
    'timers: timer deleted'
    """
    name = short_table_name(table)
    suffix = " deleted" if deleted else ""
    match name:
        case keys.JOBS_TABLE.name:
            kind = "state" if key.sk == keys.STATE_SORT_KEY else "definition"
            kind = "names" if fnmatchcase(key.pk, keys.NAME_KEY_PATTERN) else kind
            kind = "operation" if fnmatchcase(key.pk, "*#operation*") else kind
        case keys.TIMERS_TABLE.name:
            kind = "timer"
        case keys.HISTORY_TABLE.name:
            kind = "attempt" if key.sk.startswith("try#") else "run"
            kind = "results" if key.pk.count("#") > 1 else kind
        case keys.CONTROL_TABLE.name:
            parts = key.pk.split("#")
            kind = f"#{parts[1]}" if len(parts) > 1 else parts[0]
        case keys.LISTS_TABLE.name:
            kind = key.pk.split("#")[1]
        case _:
            kind = "row"
    return f"{name}: {kind}{suffix}"


def short_table_name(table: str) -> str:
    """Return the short name of a table.

    >>> short_table_name("Punctual-dev-Data-TimersTable0C93E2D8")
    'timers'
    """
    return next(
        (known_table.name for known_table in keys.TABLES if known_table.name in table.lower()),
        table,
    )


def row_key(row: Item) -> keys.RowKey:
    return keys.RowKey(row[keys.PK]["S"], row[keys.SK]["S"])


def _written_keys(operation: str, params: Mapping[str, Any]) -> list[tuple[str, Item]]:
    """Return the tables and keys that a call writes. An item holds its key."""
    match operation:
        case "PutItem":
            return [(params["TableName"], _item_key(params["Item"]))]
        case "UpdateItem" | "DeleteItem":
            return [(params["TableName"], params["Key"])]
        case "BatchWriteItem":
            return [
                (
                    table,
                    _item_key(request["PutRequest"]["Item"])
                    if "PutRequest" in request
                    else _deleted_key(request),
                )
                for table, requests in params["RequestItems"].items()
                for request in requests
            ]
        case "TransactWriteItems":
            return [
                (write["TableName"], _item_key(write["Item"]) if "Item" in write else write["Key"])
                for action in params["TransactItems"]
                for write in action.values()
            ]
    return []


def _deleted_key(request: Mapping[str, Any]) -> Item:
    key: Item = request["DeleteRequest"]["Key"]
    return key


def _item_key(item: Item) -> Item:
    return {keys.PK: item[keys.PK], keys.SK: item[keys.SK]}


_PUT_OPERATIONS = frozenset({"PutObject", "CopyObject", "ListObjectsV2", "CreateMultipartUpload"})
_DECRYPTING_OPERATIONS = frozenset({"GetParameter", "GetParameters", "PutParameter"})
SECRETS_FOLDER = "/secrets/"  # of SSM. The keys of a stage are read once in an environment
_FREE_OPERATIONS = frozenset({"DeleteObject", "DeleteObjects"})


def _other_units(service: str, operation: str, params: Mapping[str, Any]) -> Units:
    units: Units = defaultdict(float)
    match service:
        case "sqs":
            unit, name = queue_unit_and_name(params["QueueUrl"])
            entries = params.get("Entries", [params])
            size = sum(len(message.get("MessageBody", "").encode()) for message in entries)
            units[unit, f"{name}: {operation}"] += chunks(size)
        case "s3" if operation not in _FREE_OPERATIONS:
            unit = Unit.PUT if operation in _PUT_OPERATIONS else Unit.GET
            prefix = str(params.get("Key", params.get("Prefix", ""))).split("/")[0]
            units[unit, f"{prefix}: {operation}"] += 1
        case "events" if operation == "PutEvents":
            for entry in params["Entries"]:
                size = sum(len(entry[part].encode()) for part in ("Source", "DetailType", "Detail"))
                units[Unit.EVENT, entry["DetailType"]] += chunks(size)
        case "secretsmanager":
            units[Unit.SECRET, operation] += 1
        case "ssm" if operation in _DECRYPTING_OPERATIONS:
            if SECRETS_FOLDER in str(params.get("Name", params.get("Names", ""))):
                units[Unit.KMS, operation] += 1
    return units


def queue_unit_and_name(url: str) -> tuple[Unit, str]:
    """Return the unit and the name of the queue behind a URL.

    >>> queue_unit_and_name("https://sqs.invalid/1/punctual-dev-quick.fifo")
    (<Unit.FIFO: 'sqs-fifo'>, 'punctual-dev-quick.fifo')
    """
    name = url.rsplit("/", 1)[-1]
    return (Unit.FIFO if name.endswith(".fifo") else Unit.SQS), name
