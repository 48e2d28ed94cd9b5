"""The smaller ports over dicts: blobs, partitions, receipts, events, wake-ups."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.identifiers import EPOCH
from punctual.engine.ports.blobs import Blob
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.partitions import BucketLease, TimerPartition
from punctual.engine.ports.rows import Key, Receipt
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

    def put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        for notice in notices:
            self.notices.setdefault((notice.tenant, notice.id), notice)
        return [True] * len(notices)


class MemoryBuckets:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watermark: datetime | None = None
        self._shards = 1
        self._leases: dict[tuple[datetime, int], BucketLease] = {}
        self.closed: set[tuple[datetime, int]] = set()

    def watermark(self) -> datetime | None:
        return self._watermark

    def advance(self, old: datetime | None, new: datetime) -> bool:
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
            self._leases[place] = self._leases[place]._replace(owner="", until=EPOCH)
        if self._watermark is not None:
            self._watermark = min(self._watermark, since)
        return True

    def shards(self) -> int:
        return self._shards

    def grow(self, shards: int) -> None:
        self._shards = max(self._shards, shards)

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        place = (bucket, shard)
        held = self._leases.get(place)
        if place in self.closed or (held and held.until > now and held.owner != owner):
            return None
        token, look = (held.token + 1, held.look) if held else (1, 0)
        self._leases[place] = BucketLease(bucket, shard, owner, token, look, until)
        return self._leases[place]

    def _is_mine(self, lease: BucketLease) -> bool:
        place = (lease.bucket, lease.shard)
        held = self._leases.get(place)
        mine = held is not None and (held.token, held.look) == (lease.token, lease.look)
        return mine and place not in self.closed

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        if not self._is_mine(lease):
            return None
        renewed = lease._replace(until=until)
        self._leases[lease.bucket, lease.shard] = renewed
        return renewed

    def give_back(self, lease: BucketLease) -> bool:
        if not self._is_mine(lease):
            return False
        self._leases[lease.bucket, lease.shard] = lease._replace(owner="", until=EPOCH)
        return True

    def done(self, lease: BucketLease) -> bool:
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

    def held(self, places: Sequence[TimerPartition]) -> Mapping[TimerPartition, BucketLease]:
        found = {place: self._leases.get(place) for place in places if place not in self.closed}
        now = self._clock()
        return {place: lease for place, lease in found.items() if lease and lease.until > now}

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        held = self._leases.get((bucket, shard))
        if held is None or held.until <= self._clock() or (bucket, shard) in self.closed:
            return None
        self._leases[bucket, shard] = held._replace(look=held.look + 1)
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
        self.kills: list[tuple[Key, str]] = []

    def nudge(self, timers: Sequence[Timer]) -> None:
        self.nudges.extend(timers)

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        self.kills.extend((key, run_id) for run_id in run_ids)
