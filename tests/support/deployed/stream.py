"""The stream of a table: a record for each change, handed out in order, as Lambda's poller does."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from bench.meter import Written
from punctual.aws.dynamodb import keys
from tests.support.deployed.deployed import Source

SHARD = "shardId-1"  # of each stream, which has no other


@dataclass
class Reader:
    """What one of Lambda's readers has still to hand out, and how often its first batch failed."""

    records: list[dict[str, Any]] = field(default_factory=list)
    since: list[datetime] = field(default_factory=list)  # when each of them was written
    tries: int = 0
    busy: bool = False
    limit: int = 0  # records of the next batch after it was halved, 0 where it was not

    def batch(self, source: Source) -> list[dict[str, Any]]:
        """The next to be handed out; what the filter turns away is gone."""
        if source.filters:
            kept = [any(passes(one, some) for some in source.filters) for one in self.records]
            self.records = [one for one, keep in zip(self.records, kept, strict=True) if keep]
            self.since = [at for at, keep in zip(self.since, kept, strict=True) if keep]
        return self.records[: self.limit or source.batch]

    def due_at(self, source: Source) -> datetime:
        """Lambda gathers for as long as the window, unless there is enough before."""
        full = len(self.records) >= source.batch or self.tries or self.limit
        return self.since[0] + (timedelta(0) if full else source.window)

    def done(self, count: int) -> None:
        """So many of the first are handled."""
        del self.records[:count], self.since[:count]
        if count:
            self.tries, self.limit = 0, 0

    def failed(self, source: Source, size: int, handled: int) -> list[dict[str, Any]]:
        """What is given up now: a batch that failed is halved, or too often tried."""
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
    """What stands in it. Readers share a shard by the keys of its rows: each key has one reader."""

    arn: str
    kept: list[dict[str, Any]] = field(default_factory=list)  # for a day, also when it was read
    numbered: int = 0
    shards: list[list[Reader]] = field(default_factory=lambda: [[Reader()]])

    @property
    def records(self) -> list[dict[str, Any]]:
        """What no function has handled yet."""
        return [one for readers in self.shards for reader in readers for one in reader.records]

    @property
    def readers(self) -> list[Reader]:
        """Those of the oldest shard: another one is read when this one is over."""
        while len(self.shards) > 1 and not any(one.records or one.busy for one in self.shards[0]):
            del self.shards[0]
        return self.shards[0]

    def split(self, readers: int) -> None:
        """What comes from now on stands in another shard, which is read by so many."""
        self.shards.append([Reader() for _ in range(readers)])

    def append(self, one: Written, now: datetime, by_expiry: bool = False) -> None:
        self.numbered += 1
        kind = "INSERT" if one.before is None else "REMOVE" if one.after is None else "MODIFY"
        images = {
            name: plain(image)
            for name, image in (("OldImage", one.before), ("NewImage", one.after))
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
                "Keys": one.key.item(),
                **images,
                "SequenceNumber": f"{self.numbered:021d}",
                "SizeBytes": 1,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        if by_expiry:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        readers = self.shards[-1]
        reader = readers[crc32("\0".join(one.key).encode()) % len(readers)]
        reader.records.append(record)
        reader.since.append(now)
        self.kept.append(record)


def is_expired_row(item: Mapping[str, Any], now: datetime) -> bool:
    return keys.TTL in item and int(item[keys.TTL]["N"]) <= now.timestamp()


def plain(image: Any) -> Any:
    """As a function is handed it: JSON, binary as base64."""
    if isinstance(image, bytes):
        return base64.b64encode(image).decode()
    if isinstance(image, dict):
        return {name: plain(value) for name, value in image.items()}
    if isinstance(image, list):
        return [plain(value) for value in image]
    return image


def passes(record: Any, pattern: Mapping[str, Any]) -> bool:
    """Event filtering, as far as a template of ours uses it."""
    for name, wanted in pattern.items():
        if name == "$or":
            if not any(passes(record, one) for one in wanted):
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
