"""What the engine asks of the world. Few, batch-shaped, each implemented once per adapter.

A port raises `Unavailable` when its store does not answer; a lost race is a value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.head import Head, Lane, Priority
from punctual.domain.run import Lease
from punctual.engine.audit import AuditLog, Note
from punctual.engine.records import (
    AttemptRow,
    Body,
    Coming,
    Detail,
    HeadPage,
    Key,
    Receipt,
    RunKey,
    RunRow,
    Walk,
)

# Rows that ports take and give are asked for here as well.
__all__ = [
    "AttemptRow",
    "Body",
    "Coming",
    "Detail",
    "HeadPage",
    "Key",
    "Receipt",
    "RunKey",
    "RunRow",
    "Walk",
]

Clock = Callable[[], datetime]
NewId = Callable[[], str]


class Stored(NamedTuple):
    """A head as it was read, consistently, with the leases of its holders."""

    head: Head
    leases: Mapping[str, Lease]


class Swap(Struct, frozen=True):
    """Write `head` if the stored version is still `expect` (0: no such head yet).

    With it, atomically: set or drop (None) leases, and note for the audit whose change it is;
    hold only if `required` leases are as they were read. `head.writers[-1]` marks the swap as its
    caller's own: one whose answer was lost has won if that mark stands in what is stored.
    """

    head: Head
    expect: int
    leases: Mapping[str, Lease | None] = {}
    required: Mapping[str, Lease] = {}
    note: Note | None = None

    @property
    def key(self) -> Key:
        return Key(self.head.tenant, self.head.job_id)


class Beat(NamedTuple):
    """Renew a lease if `token` still holds it."""

    key: Key
    run_id: str
    token: int
    until: datetime


class Heads(Protocol):
    def load(self, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """Those that exist and are not expired, read consistently; blank heads included."""

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        """True for each that was written, by this call or an earlier one with the same mark."""

    def beat(self, beats: Sequence[Beat]) -> Sequence[Head | None]:
        """The head after each renewal, None where the lease is not the token's any more."""

    def put_bodies(self, bodies: Sequence[Body]) -> None: ...

    def bodies(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], Body]:
        """Bodies by job and ref."""

    def page(self, tenant: str, before: str | None, limit: int) -> HeadPage:
        """Heads of a tenant with `job_id < before`, newest first, blank ones left out."""

    def coming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, most: int
    ) -> Coming | None:
        """The `limit` heads that come first behind `after` (time, job) and before `end`.

        With them those that came before that place and come again. None where these are more than
        `most`, or where the adapter would have to read more than that to know the order.
        """

    def busy(self, tenant: str) -> Sequence[Head]:
        """Heads with runs alive, in line, or ended and perhaps not recorded yet."""

    def walk(self, cursor: str | None, limit: int) -> Walk:
        """Every head there is, some at a time, for the reconciler."""


class Timer(NamedTuple):
    """Look at this job at that moment. `bucket` is the minute it is filed under."""

    bucket: datetime
    shard: int
    at: datetime
    tenant: str
    job_id: str
    version: int

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.job_id)

    @property
    def order(self) -> tuple[datetime, str, str, int]:
        return (self.at, self.tenant, self.job_id, self.version)


class Timers(Protocol):
    def put(self, timers: Sequence[Timer]) -> None: ...  # idempotent

    def delete(self, timers: Sequence[Timer]) -> None:
        """Exactly these; one that is not there is no error."""

    def due(
        self, bucket: datetime, shard: int, until: datetime, after: Timer | None, limit: int
    ) -> Sequence[Timer]:
        """Those of one bucket and shard with `at <= until`, in `order`, behind `after`."""


class Message(NamedTuple):
    """Run R of job J is queued, not before `due_at`."""

    tenant: str
    job_id: str
    run_id: str
    due_at: datetime
    priority: Priority
    lane: Lane
    version: int  # of the head whose swap sends it: part of the deduplication id
    task_type: str = ""  # lets an executor see what it can take


class Messages(Protocol):
    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """True for each that the queue has taken; what it has not is sent by a later look."""


class History(Protocol):
    """Rows whose `expires_at` has passed are never returned, whenever they are removed."""

    def put(self, rows: Sequence[RunRow]) -> None:
        """Idempotent, by (tenant, job, run id)."""

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        """Idempotent, by (tenant, job, run id, number, token, lost)."""

    def present(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        """Which of these have a row, read consistently."""

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]: ...

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        """Of one run, by number and token."""

    def page(
        self, key: Key, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Of one job, newest first, `after < run_id < before` (each may be None)."""

    def page_all(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Over all jobs of a tenant, newest (run_id, job_id) first, behind `before`."""


class Blobs(Protocol):
    def put(self, name: str, data: bytes, content_type: str) -> None:
        """Whole or not at all."""

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None: ...

    def delete(self, names: Sequence[str]) -> None: ...

    def link(self, name: str, content_type: str) -> str | None:
        """A URL that gives the blob to whoever has it for some minutes, where there is such."""


class BucketLease(NamedTuple):
    """One poller's right to one (bucket, shard); `look` counts the nudges it must have seen."""

    bucket: datetime
    shard: int
    owner: str
    token: int
    look: int
    until: datetime


class Buckets(Protocol):
    """Who looks after which minute. Control rows; conditions make each step a race to win."""

    def watermark(self) -> datetime | None:
        """All buckets before this are done (last_pull_time)."""

    def advance(self, old: datetime | None, new: datetime) -> bool: ...

    def shards(self) -> int:
        """The largest shard count in force."""

    def grow(self, shards: int) -> None:
        """Never lowers it."""

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        """None while another's lease lives, or when it is done."""

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        """None if the lease is another's, or a nudge came: read again, then renew with its look."""

    def give_back(self, lease: BucketLease) -> bool:
        """False if a nudge came since `lease.look`: there is more to read."""

    def done(self, lease: BucketLease) -> bool:
        """The bucket was found empty after its time: nobody need look again."""

    def is_done(self, bucket: datetime, shard: int) -> bool: ...

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        """Raise the look number of a live lease; None where nobody holds one."""


class Wake(Protocol):
    def nudge(self, timers: Sequence[Timer]) -> None:
        """New timers stand in windows that may be handed out already."""

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        """Holders of these should stop now; they also learn it with their next beat."""


class Receipts(Protocol):
    def claim(
        self, tenant: str, wanted: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        """The receipt that stands for each key: the given one, or the earlier one still valid."""

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]: ...


class Feed(Protocol):
    """Events that tasks publish."""

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """The id of each."""


@dataclass(frozen=True)
class Ports:
    """All of them, as an adapter wires them."""

    heads: Heads
    timers: Timers
    messages: Messages
    history: History
    blobs: Blobs
    buckets: Buckets
    wake: Wake
    receipts: Receipts
    feed: Feed
    audit: AuditLog
