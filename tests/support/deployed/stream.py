"""A table's stream, with a record for each change. Readers deliver it in order, as Lambda does."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from bench.cost.meter import WrittenRow
from punctual.aws.dynamodb import keys
from tests.support.deployed.deployed import Source

SHARD = "shardId-1"  # each stream has one


@dataclass
class Reader:
    """The undelivered records of one reader, and the failures of its first batch."""

    records: list[dict[str, Any]] = field(default_factory=list)
    since: list[datetime] = field(default_factory=list)  # the write time of each record
    tries: int = 0
    busy: bool = False
    limit: int = 0  # size of the next batch after a split, else 0

    def batch(self, source: Source) -> list[dict[str, Any]]:
        """Return the next batch, and drop records that the filter rejects."""
        if source.filters:
            kept = [
                any(passes(record, source_filter) for source_filter in source.filters)
                for record in self.records
            ]
            self.records = [record for record, keep in zip(self.records, kept, strict=True) if keep]
            self.since = [at for at, keep in zip(self.since, kept, strict=True) if keep]
        return self.records[: self.limit or source.batch]

    def due_at(self, source: Source) -> datetime:
        """Return the delivery time.

        Lambda gathers records for the window unless a batch is full.
        """
        full = len(self.records) >= source.batch or self.tries or self.limit
        return self.since[0] + (timedelta(0) if full else source.window)

    def done(self, count: int) -> None:
        """Remove the first `count` records."""
        del self.records[:count], self.since[:count]
        if count:
            self.tries, self.limit = 0, 0

    def failed(self, source: Source, size: int, handled: int) -> list[dict[str, Any]]:
        """Split or retry a failed batch. Return the records that are given up."""
        self.done(handled)
        size -= handled
        self.tries += 1
        if source.bisect and size > 1:
            self.limit = -(-size // 2)
            self.tries = 0
            return []
        if source.retries < 0 or self.tries <= source.retries:
            self.limit = size
            return []
        given_up = self.records[:size]
        self.done(size)
        return given_up


@dataclass
class Stream:
    """The contents of a stream. Within a shard, all records of a row's key have one reader."""

    arn: str
    # for a day, including records that were read
    kept: list[dict[str, Any]] = field(default_factory=list)
    numbered: int = 0
    shards: list[list[Reader]] = field(default_factory=lambda: [[Reader()]])

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the records that no function has handled."""
        return [
            record for readers in self.shards for reader in readers for record in reader.records
        ]

    @property
    def readers(self) -> list[Reader]:
        """Return the readers of the oldest open shard. Its successor is read after its end."""
        while len(self.shards) > 1 and not any(
            reader.records or reader.busy for reader in self.shards[0]
        ):
            del self.shards[0]
        return self.shards[0]

    def split(self, readers: int) -> None:
        """Put future records into a new shard with `readers` readers."""
        self.shards.append([Reader() for _ in range(readers)])

    def append(self, row: WrittenRow, now: datetime, by_expiry: bool = False) -> None:
        self.numbered += 1
        kind = "INSERT" if row.before is None else "REMOVE" if row.after is None else "MODIFY"
        images = {
            name: plain(image)
            for name, image in (("OldImage", row.before), ("NewImage", row.after))
            if image is not None
        }
        record: dict[str, Any] = {
            "eventID": f"event-{self.numbered}",
            "eventName": kind,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": self.arn.split(":")[3],
            "eventSourceARN": self.arn,
            "dynamodb": {
                "ApproximateCreationDateTime": int(now.timestamp()),
                "Keys": row.key.item(),
                **images,
                "SequenceNumber": f"{self.numbered:021d}",
                "SizeBytes": 1,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        if by_expiry:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        readers = self.shards[-1]
        reader = readers[crc32("\0".join(row.key).encode()) % len(readers)]
        reader.records.append(record)
        reader.since.append(now)
        self.kept.append(record)


def is_expired_row(item: Mapping[str, Any], now: datetime) -> bool:
    return keys.TTL in item and int(item[keys.TTL]["N"]) <= now.timestamp()


def plain(image: Any) -> Any:
    """Return an image as JSON, with bytes as base64."""
    if isinstance(image, bytes):
        return base64.b64encode(image).decode()
    if isinstance(image, dict):
        return {name: plain(value) for name, value in image.items()}
    if isinstance(image, list):
        return [plain(value) for value in image]
    return image


def passes(record: Any, pattern: Mapping[str, Any]) -> bool:
    """Return True if a record passes an event filter. It knows only the syntax of our templates."""
    for name, wanted in pattern.items():
        if name == "$or":
            if not any(passes(record, alternative) for alternative in wanted):
                return False
            continue
        value = record.get(name) if isinstance(record, dict) else None
        if isinstance(wanted, dict):
            if not passes(value, wanted):
                return False
        elif not any(_one(value, condition) for condition in wanted):
            return False
    return True


def _one(value: Any, condition: Any) -> bool:
    match condition:
        case {"exists": bool(exists)}:
            return (value is not None) == exists
        case {"prefix": str(start)}:
            return isinstance(value, str) and value.startswith(start)
        case {"suffix": str(end)}:
            return isinstance(value, str) and value.endswith(end)
        case {"anything-but": {"suffix": str(end)}}:
            return isinstance(value, str) and not value.endswith(end)
        case {"anything-but": {"prefix": str(start)}}:
            return isinstance(value, str) and not value.startswith(start)
        case {"anything-but": unwanted}:
            return value is not None and value not in _list(unwanted)
        case dict():
            raise NotImplementedError(f"a filter with {condition}")
    return bool(value == condition)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
