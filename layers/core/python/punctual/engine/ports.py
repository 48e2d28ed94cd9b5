"""What the engine asks of the world. Few, batch-shaped, each implemented once per adapter.

A port raises `Unavailable` when its store does not answer; a lost race is a value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.head import Head, Lane, Priority
from punctual.domain.run import Lease, Run
from punctual.engine.audit import AuditLog, Note
from punctual.engine.buckets import BucketLease, Buckets
from punctual.engine.notices import Notice, Notices
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

# Some ports, and rows that ports take and give, are asked for here as well.
__all__ = [
    "AttemptRow",
    "Body",
    "BucketLease",
    "Buckets",
    "Coming",
    "Detail",
    "HeadPage",
    "Key",
    "Notice",
    "Notices",
    "Receipt",
    "RunKey",
    "RunRow",
    "Walk",
]

Clock = Callable[[], datetime]
NewId = Callable[[], str]


class Stored(NamedTuple):
    """A head as it was read, with the leases of its holders."""

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
    """Reads are consistent, but a `glance`: what it answers stood once, and may be long gone."""

    def load(self, keys: Sequence[Key], glance: bool = False) -> Mapping[Key, Stored]:
        """Those that exist and are not expired; blank heads included."""

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

    def busy(self, tenant: str) -> Iterable[Head]:
        """Heads with runs alive, in line, or ended and perhaps not in the lists yet.

        A store may read each when it is asked for.
        """

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


class TimerPage(NamedTuple):
    """Empty only where nothing is left to come; `cursor` is None where this is the last.

    `later`: rows among them that wait for a later version, for this one cannot read them.
    """

    timers: Sequence[Timer]
    cursor: str | None
    later: int = 0


class Timers(Protocol):
    def put(self, timers: Sequence[Timer]) -> None:
        """Idempotent. Those put together for one moment may share a row, and what it costs."""

    def delete(self, timers: Sequence[Timer]) -> None:
        """Exactly these, as far as they were put when they were read; none there is no error."""

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        """Those of one bucket and shard with `at <= until`, read consistently, soonest first.

        A page holds `limit` or a few more, and no earlier moment than the page before it. Within a
        moment there is no order; a timer may come on two pages, and none is left out.
        """

    def standing(self, wanted: Sequence[Timer]) -> frozenset[Timer]:
        """At whose moment, in whose bucket and shard, a timer of their job stands: any version."""


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
    head: Head | None = None  # as that swap wrote it, where a claim will likely find it so

    def __hash__(self) -> int:
        return hash((self.job_id, self.run_id, self.version))


class Messages(Protocol):
    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """True for each that the queue has taken; what it has not is sent by a later look."""


class History(Protocol):
    """Rows whose `expires_at` has passed are never returned, whenever they are removed.

    A `glance` may miss what was written just now.
    """

    def put(self, rows: Sequence[RunRow]) -> None:
        """Idempotent, by (tenant, job, run id)."""

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        """Idempotent, by (tenant, job, run id, number, token, lost)."""

    def put_ends(self, rows: Sequence[AttemptRow]) -> None:
        """What the ends of runs leave, for as long as their own rows may be missing. Idempotent."""

    def end(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """What the holder of the run's last token left with `put_ends`, read consistently."""

    def present(self, keys: Sequence[RunKey], glance: bool = False) -> frozenset[RunKey]:
        """Which of these have a row."""

    def get(
        self, keys: Sequence[RunKey], now: datetime, glance: bool = False
    ) -> Mapping[RunKey, RunRow]: ...

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


class Blob(NamedTuple):
    name: str
    data: bytes
    content_type: str


class Blobs(Protocol):
    def put(self, name: str, data: bytes, content_type: str) -> None:
        """Whole or not at all."""

    def put_many(self, blobs: Sequence[Blob]) -> None:
        """Each whole or not at all, and all of them where this returns."""

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None: ...

    def delete(self, names: Sequence[str]) -> None: ...

    def link(self, name: str, content_type: str) -> str | None:
        """A URL that gives the blob to whoever has it for some minutes, where there is such."""


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
    notices: Notices
    history: History
    blobs: Blobs
    buckets: Buckets
    wake: Wake
    receipts: Receipts
    feed: Feed
    audit: AuditLog
