"""The smaller ports over dicts: blobs, partitions, receipts, events, wake-ups, tokens."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from punctual.domain.artifacts import Artifact
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.tokens import Token
from punctual.domain.utc import EPOCH
from punctual.engine.ports.blobs import Blob, BlobVersion, Upload, VersionedPut
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.job_names import NameKey, NameRow
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.partitions import PartitionLease, TimerPartition
from punctual.engine.ports.rows import JobKey, Receipt
from punctual.engine.ports.tenants.artifact_rows import ArtifactUse, BlobPage, StoredBlob
from punctual.engine.ports.tenants.token_rows import TokenCounts
from punctual.engine.ports.timers import Timer


class MemoryUpload(NamedTuple):
    """A PUT that a link allows, and the version of the blob that it may replace."""

    name: str
    size: int
    token: int
    replaced: str


class MemoryBlobs:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.tokens: dict[str, int] = {}  # of the claim that stored the blob
        self.uploads: dict[str, MemoryUpload] = {}  # by URL
        self.stored_at: dict[str, datetime] = {}  # else a blob is from 1970

    def put(self, name: str, data: bytes, content_type: str, token: int = 0) -> None:
        if token and name in self.blobs and self.tokens.get(name, 0) > token:
            raise Unavailable("A later claim has stored this blob.")
        self._store(name, data, token)

    def _store(self, name: str, data: bytes, token: int) -> None:
        self.blobs[name] = data
        self.tokens[name] = token

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[None]:
        for blob in blobs:
            self.put(*blob)
        return [None] * len(blobs)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        data = self.blobs.get(name)
        return None if data is None else data[start:end]

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        return [self.get(name) for name in names]

    def get_versions(self, names: Sequence[str]) -> Sequence[BlobVersion | None]:
        return [
            BlobVersion(self.blobs[name], self._version(name)) if name in self.blobs else None
            for name in names
        ]

    def put_versions(self, puts: Sequence[VersionedPut]) -> Sequence[bool]:
        stored = []
        for blob, version in puts:
            stored.append(self._version(blob.name) == version)
            if stored[-1]:
                self.put(*blob)
        return stored

    def _version(self, name: str) -> str:
        return sha256(self.blobs[name]).hexdigest() if name in self.blobs else ""

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.blobs.pop(name, None)
            self.tokens.pop(name, None)

    def link(self, name: str, content_type: str) -> str | None:
        return self.links.get(name)

    def upload_link(
        self, name: str, size: int, content_type: str, sha256: str = "", token: int = 0
    ) -> Upload:
        is_earlier = name in self.blobs and self.tokens.get(name, 0) < token
        replaced = self._version(name) if is_earlier else ""
        url = f"https://blobs.test/{name}?size={size}&sha256={sha256}&token={token}&of={replaced}"
        self.uploads[url] = MemoryUpload(name, size, token, replaced)
        headers = {"Content-Length": str(size), "Content-Type": content_type}
        headers |= {"If-Match": replaced} if replaced else {"If-None-Match": "*"}
        return Upload(url, headers)

    def upload(self, url: str, data: bytes) -> bool:
        """Return whether the PUT of these bytes was accepted."""
        name, size, token, replaced = self.uploads[url]
        if len(data) != size or self._version(name) != replaced:
            return False
        self._store(name, data, token)
        return True

    def accept_upload(self, name: str, token: int) -> bool:
        return name in self.blobs and self.tokens.get(name, 0) == token

    def list_names(self, folder: str) -> Sequence[str]:
        return sorted(name for name in self.blobs if name.startswith(folder))

    def list_page(self, prefix: str, after: str | None) -> BlobPage:
        names = [name for name in self.list_names(prefix) if after is None or name > after]
        return BlobPage([StoredBlob(name, self.stored_at.get(name, EPOCH)) for name in names], None)


class MemoryNotifications:
    """Keeps all notifications. Equal ones count once."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Notification] = {}

    def put(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        for notification in notifications:
            self.rows.setdefault((notification.tenant, notification.id), notification)
        return [True] * len(notifications)


class MemoryPartitions:
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
        for partition in [partition for partition in self.closed if partition[0] >= since]:
            self.closed.remove(partition)
            self._leases[partition] = self._leases[partition]._replace(owner="", expires_at=EPOCH)
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
        partition = (bucket, shard)
        lease = self._leases.get(partition)
        if partition in self.closed or (lease and lease.expires_at > now and lease.owner != owner):
            return None
        token, signal_count = (lease.token + 1, lease.signal_count) if lease else (1, 0)
        self._leases[partition] = PartitionLease(
            bucket, shard, owner, token, signal_count, expires_at
        )
        return self._leases[partition]

    def _is_mine(self, lease: PartitionLease) -> bool:
        partition = (lease.bucket, lease.shard)
        stored_lease = self._leases.get(partition)
        is_current = stored_lease is not None and (
            stored_lease.token,
            stored_lease.signal_count,
        ) == (
            lease.token,
            lease.signal_count,
        )
        return is_current and partition not in self.closed

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
        partition = (lease.bucket, lease.shard)
        stored_lease = self._leases.get(partition)
        if (
            partition in self.closed
            and stored_lease is not None
            and stored_lease.token == lease.token
        ):
            return True
        if not self._is_mine(lease):
            return False
        self.closed.add(partition)
        return True

    def is_done(self, bucket: datetime, shard: int) -> bool:
        passed = self._watermark is not None and bucket < self._watermark
        return passed or (bucket, shard) in self.closed

    def valid_leases(
        self, partitions: Sequence[TimerPartition]
    ) -> Mapping[TimerPartition, PartitionLease]:
        leases = {
            partition: self._leases.get(partition)
            for partition in partitions
            if partition not in self.closed
        }
        now = self._clock()
        return {
            partition: lease
            for partition, lease in leases.items()
            if lease and lease.expires_at > now
        }

    def signal_new_timers(self, bucket: datetime, shard: int) -> PartitionLease | None:
        lease = self._leases.get((bucket, shard))
        if lease is None or lease.expires_at <= self._clock() or (bucket, shard) in self.closed:
            return None
        self._leases[bucket, shard] = lease._replace(signal_count=lease.signal_count + 1)
        return self._leases[bucket, shard]


class MemoryReceipts:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Receipt] = {}

    def claim(
        self, tenant: str, receipts: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        answers = []
        for name, receipt in receipts:
            stored = self._rows.get((tenant, name))
            if stored is None or stored.expires_at <= now:
                stored = self._rows[tenant, name] = receipt
            answers.append(stored)
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


class MemoryWakeUps:
    """Records new timers and stop requests. The world delivers or loses them."""

    def __init__(self) -> None:
        self.new_timers: list[Timer] = []
        self.stop_requests: list[tuple[JobKey, str]] = []

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        self.new_timers.extend(timers)

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        self.stop_requests.extend((key, run_id) for run_id in run_ids)


class MemoryArtifacts:
    """Artifact rows, and the uses of each."""

    def __init__(self, clock: Clock) -> None:
        self.rows: dict[tuple[str, str], Artifact] = {}
        self._uses: dict[tuple[str, str], dict[str, ArtifactUse]] = {}
        self._clock = clock

    def load(self, tenant: str, artifact_ids: Sequence[str]) -> Mapping[str, Artifact]:
        return {at: row for at in artifact_ids if (row := self._valid(tenant, at)) is not None}

    def page(self, tenant: str, after: str | None, limit: int) -> Sequence[Artifact]:
        ids = sorted(at for owner, at in self.rows if owner == tenant and at > (after or ""))
        return [row for at in ids if (row := self._valid(tenant, at)) is not None][:limit]

    def store(self, artifact: Artifact, expected_revision: str) -> bool:
        stored = self._valid(artifact.tenant, artifact.artifact_id)
        if (stored.revision if stored else "") != expected_revision:
            return stored is not None and stored.revision == artifact.revision
        self.rows[artifact.tenant, artifact.artifact_id] = artifact
        return True

    def remove(self, artifact: Artifact) -> None:
        stored = self.rows.get((artifact.tenant, artifact.artifact_id))
        if stored is not None and stored.revision == artifact.revision:
            del self.rows[artifact.tenant, artifact.artifact_id]

    def put_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        for use in uses:
            self._uses.setdefault((tenant, use.artifact_id), {})[use.job_id] = use

    def uses(
        self, tenant: str, artifact_id: str, after: str | None, limit: int
    ) -> Sequence[ArtifactUse]:
        uses = self._uses.get((tenant, artifact_id), {})
        return [uses[job_id] for job_id in sorted(uses) if job_id > (after or "")][:limit]

    def first_uses(
        self, tenant: str, artifact_ids: Sequence[str], limit: int
    ) -> Sequence[Sequence[ArtifactUse]]:
        return [self.uses(tenant, artifact_id, None, limit) for artifact_id in artifact_ids]

    def remove_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None:
        for use in uses:
            stored = self._uses.get((tenant, use.artifact_id), {})
            if stored.get(use.job_id) == use:
                del stored[use.job_id]

    def _valid(self, tenant: str, artifact_id: str) -> Artifact | None:
        row = self.rows.get((tenant, artifact_id))
        expires_at = None if row is None else row.expires_at
        return None if expires_at is not None and expires_at <= self._clock() else row


class MemoryTokens:
    """Token rows by id and by hash."""

    def __init__(self) -> None:
        self.rows: dict[str, Token] = {}
        self._requests: dict[tuple[str, str], str] = {}

    def put(self, token: Token, token_hash: str) -> None:
        self.rows[token_hash] = token

    def get(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        return next(
            (token for token in self._kept(tenant, now) if token.token_id == token_id), None
        )

    def page(self, tenant: str, before: str | None, limit: int, now: datetime) -> list[Token]:
        tokens = sorted(self._kept(tenant, now), key=lambda token: token.token_id, reverse=True)
        return [token for token in tokens if before is None or token.token_id < before][:limit]

    def store_revocation_request(
        self, tenant: str, token_id: str, request: str, expected: str = "", /
    ) -> str | None:
        if expected and self._requests.get((tenant, token_id)) == expected:
            self._requests[tenant, token_id] = request
        return self._requests.setdefault((tenant, token_id), request)

    def revoke(self, tenant: str, token_id: str, now: datetime) -> Token | None:
        token = self.get(tenant, token_id, now)
        if token is None or token.revoked_at is not None:
            return token
        (hashed,) = (at for at, stored in self.rows.items() if stored == token)
        self.rows[hashed] = token._replace(revoked_at=now)
        return self.rows[hashed]

    def count(self, tenant: str, now: datetime) -> TokenCounts:
        tokens = self._kept(tenant, now)
        return TokenCounts(sum(token.is_valid(now) for token in tokens), len(tokens))

    def find(self, token_hash: str) -> Token | None:
        return self.rows.get(token_hash)

    def record_use(self, token_hash: str, now: datetime) -> None:
        self.rows[token_hash] = self.rows[token_hash]._replace(last_used_at=now)

    def _kept(self, tenant: str, now: datetime) -> list[Token]:
        return [
            token
            for token in self.rows.values()
            if token.tenant == tenant and ((at := token.delete_at()) is None or at > now)
        ]


class MemoryJobNames:
    def __init__(self) -> None:
        self.rows: dict[NameKey, NameRow] = {}

    def find(self, keys: Sequence[NameKey]) -> Mapping[NameKey, NameRow]:
        return {key: self.rows[key] for key in keys if key in self.rows}

    def put(self, rows: Sequence[NameRow]) -> Sequence[NameRow | None]:
        existing_rows = [self.rows.setdefault(row.key, row) for row in rows]
        return [
            None if existing == row else existing
            for row, existing in zip(rows, existing_rows, strict=True)
        ]

    def replace(self, replacements: Sequence[tuple[NameRow, NameRow]]) -> Sequence[bool]:
        return [self._replace(old, new) for old, new in replacements]

    def remove(self, rows: Sequence[NameRow]) -> None:
        for row in rows:
            if self.rows.get(row.key) == row:
                del self.rows[row.key]

    def _replace(self, old: NameRow, new: NameRow) -> bool:
        if self.rows.get(old.key) == old:
            self.rows[new.key] = new
        return self.rows.get(old.key) == new
