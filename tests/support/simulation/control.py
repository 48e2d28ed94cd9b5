"""The smaller ports over dicts: blobs, partitions, receipts, events, wake-ups."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.utc import EPOCH
from punctual.engine.ports.blobs import Blob
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.partitions import PartitionLease, TimerPartition
from punctual.engine.ports.rows import JobKey, Receipt
from punctual.engine.ports.timers import Timer


class MemoryBlobs:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, name: str, data: bytes, content_type: str) -> None:
        self.blobs[name] = data

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[None]:
        for blob in blobs:
            self.put(*blob)
        return [None] * len(blobs)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        data = self.blobs.get(name)
        return None if data is None else data[start:end]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.blobs.pop(name, None)

    def link(self, name: str, content_type: str) -> str | None:
        return None


class MemoryNotices:
    """Keeps all notices. Equal ones count once."""

    def __init__(self) -> None:
        self.notices: dict[tuple[str, str], Notification] = {}

    def put(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        for notice in notifications:
            self.notices.setdefault((notice.tenant, notice.id), notice)
        return [True] * len(notifications)


class MemoryBuckets:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watermark: datetime | None = None
        self._shards = 1
        self._leases: dict[tuple[datetime, int], PartitionLease] = {}
        self.closed: set[tuple[datetime, int]] = set()

    def watermark(self) -> datetime | None:
        return self._watermark

    def advance_watermark(self, old: datetime | None, new: datetime) -> bool:
        if self._watermark != old:
            return self._watermark == new
        self._watermark = new
        return True

    def reopen(self, current: datetime, since: datetime) -> bool:
        last = max((bucket for bucket, _ in self.closed), default=EPOCH)
        if self._watermark is not None:
            last = max(last, self._watermark - timedelta(minutes=1))
        if last < current:
            return False
        for place in [place for place in self.closed if place[0] >= since]:
            self.closed.remove(place)
            self._leases[place] = self._leases[place]._replace(owner="", expires_at=EPOCH)
        if self._watermark is not None:
            self._watermark = min(self._watermark, since)
        return True

    def shard_count(self) -> int:
        return self._shards

    def raise_shard_count(self, shards: int) -> None:
        self._shards = max(self._shards, shards)

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, expires_at: datetime
    ) -> PartitionLease | None:
        place = (bucket, shard)
        held = self._leases.get(place)
        if place in self.closed or (held and held.expires_at > now and held.owner != owner):
            return None
        token, look = (held.token + 1, held.signal_count) if held else (1, 0)
        self._leases[place] = PartitionLease(bucket, shard, owner, token, look, expires_at)
        return self._leases[place]

    def _is_mine(self, lease: PartitionLease) -> bool:
        place = (lease.bucket, lease.shard)
        held = self._leases.get(place)
        mine = held is not None and (held.token, held.signal_count) == (
            lease.token,
            lease.signal_count,
        )
        return mine and place not in self.closed

    def renew(self, lease: PartitionLease, expires_at: datetime) -> PartitionLease | None:
        if not self._is_mine(lease):
            return None
        renewed = lease._replace(expires_at=expires_at)
        self._leases[lease.bucket, lease.shard] = renewed
        return renewed

    def release(self, lease: PartitionLease) -> bool:
        if not self._is_mine(lease):
            return False
        self._leases[lease.bucket, lease.shard] = lease._replace(owner="", expires_at=EPOCH)
        return True

    def mark_done(self, lease: PartitionLease) -> bool:
        place = (lease.bucket, lease.shard)
        held = self._leases.get(place)
        if place in self.closed and held is not None and held.token == lease.token:
            return True
        if not self._is_mine(lease):
            return False
        self.closed.add(place)
        return True

    def is_done(self, bucket: datetime, shard: int) -> bool:
        passed = self._watermark is not None and bucket < self._watermark
        return passed or (bucket, shard) in self.closed

    def valid_leases(
        self, partitions: Sequence[TimerPartition]
    ) -> Mapping[TimerPartition, PartitionLease]:
        found = {place: self._leases.get(place) for place in partitions if place not in self.closed}
        now = self._clock()
        return {place: lease for place, lease in found.items() if lease and lease.expires_at > now}

    def signal_new_timers(self, bucket: datetime, shard: int) -> PartitionLease | None:
        held = self._leases.get((bucket, shard))
        if held is None or held.expires_at <= self._clock() or (bucket, shard) in self.closed:
            return None
        self._leases[bucket, shard] = held._replace(signal_count=held.signal_count + 1)
        return self._leases[bucket, shard]


class MemoryReceipts:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Receipt] = {}

    def claim(
        self, tenant: str, wanted: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        answers = []
        for name, receipt in wanted:
            standing = self._rows.get((tenant, name))
            if standing is None or standing.expires_at <= now:
                standing = self._rows[tenant, name] = receipt
            answers.append(standing)
        return answers

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]:
        rows = {name: self._rows.get((tenant, name)) for name in names}
        return {name: row for name, row in rows.items() if row and row.expires_at > now}


class MemoryFeed:
    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        first = len(self.events) + 1
        self.events.extend(events)
        return [str(first + index) for index in range(len(events))]


class MemoryWake:
    """Records wake-ups and kills. The world delivers or loses them."""

    def __init__(self) -> None:
        self.nudges: list[Timer] = []
        self.kills: list[tuple[JobKey, str]] = []

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        self.nudges.extend(timers)

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        self.kills.extend((key, run_id) for run_id in run_ids)
