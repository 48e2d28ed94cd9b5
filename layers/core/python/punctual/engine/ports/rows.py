"""Rows that are written once and read by people's questions, and pages of heads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from punctual.domain.job_state import JobState
from punctual.domain.run import Run

TEXT = "text/plain; charset=utf-8"
NOTE = 64  # bytes: a head with one stays under a kilobyte


class Key(NamedTuple):
    tenant: str
    job_id: str


class DefinitionRow(Struct, frozen=True, omit_defaults=True):
    """A definition as the client sent it, by version; never changed once written."""

    tenant: str
    job_id: str
    ref: str  # unique: the edition and the writer's mark
    edition: int
    created_at: datetime
    name: str
    document: dict[str, Any]  # only the fields that were sent
    created_by: str = ""
    tags: dict[str, str] = {}
    payload: Any = None
    payload_blob: str = ""  # where a large payload stands
    previous: str = ""  # the ref of the definition before this one
    payload_size: int = 0  # of a large payload, in bytes, and what tells it from others
    payload_print: str = ""


class Detail(Struct, frozen=True, omit_defaults=True):
    """What an attempt left behind besides its status."""

    error: str = ""
    exit_code: int | None = None
    http_status: int | None = None
    http_headers: tuple[tuple[str, str], ...] = ()
    output: bytes | None = None  # an id, such as an event's: it needs no object of its own
    output_blob: str = ""
    output_size: int = 0
    output_type: str = ""
    output_truncated: bool = False
    log_blob: str = ""
    log_size: int = 0
    log_truncated: bool = False
    discarded: bool = False  # the job's `output` is `discard`

    @property
    def plain(self) -> bool:
        """Whether the run itself tells all of this, perhaps except an id."""
        return not (self.error or self.output_blob or self.log_blob or self.http_status) and (
            self.exit_code is None
        )

    @property
    def note(self) -> str:
        """The id that the run itself carries: of a published event or a sent message."""
        if self.output is None or not self.plain or self.output_type != TEXT:
            return ""
        try:
            return self.output.decode() if len(self.output) <= NOTE else ""
        except UnicodeDecodeError:
            return ""


class AttemptRow(Struct, frozen=True, omit_defaults=True):
    """One attempt that ended, written before the swap that ends it, under its own token."""

    tenant: str
    job_id: str
    run_id: str
    number: int
    token: int
    status: str
    started_at: datetime
    ended_at: datetime
    executor_id: str
    lost: bool = False  # written by who found the holder gone, beside what the holder wrote
    detail: Detail = Detail()
    expires_at: datetime | None = None
    nonce: str = ""  # of the claim, where this is the run's end


class RunRow(Struct, frozen=True, omit_defaults=True):
    """One line of a job's history: a run that ended, or occurrences that did not run."""

    tenant: str
    job_id: str
    run: Run
    expires_at: datetime
    tzdata: str = ""
    detail: Detail = Detail()


class RunKey(NamedTuple):
    tenant: str
    job_id: str
    run_id: str


class Receipt(Struct, frozen=True, omit_defaults=True):
    """What a request with an Idempotency-Key stands for."""

    fingerprint: str  # of the body as parsed
    made_id: str
    created_at: datetime
    expires_at: datetime


class HeadPage(NamedTuple):
    """Some heads, newest first, each with its present body; `before` goes on from there."""

    items: Sequence[tuple[JobState, DefinitionRow]]
    before: str | None
    bare: Sequence[JobState] = ()  # whose body was not found: it went meanwhile, or is missing

    @classmethod
    def of(
        cls,
        heads: Sequence[JobState],
        wanted: Sequence[tuple[Key, str]],
        bodies: Mapping[tuple[Key, str], DefinitionRow],
        more: bool,
    ) -> "HeadPage":
        """`wanted` says which body is whose."""
        pairs = list(zip(heads, wanted, strict=True))
        items = [(head, bodies[ref]) for head, ref in pairs if ref in bodies]
        bare = [head for head, ref in pairs if ref not in bodies]
        return cls(items, heads[-1].job_id if more else None, bare)


class Coming(NamedTuple):
    """Heads that tell what comes, whole up to the place `until` (time, job); None: to the end."""

    heads: Sequence[JobState]
    until: tuple[datetime, str] | None


class Walk(NamedTuple):
    """Some heads of all tenants, in any order; `cursor` goes on from there.

    `unread`: jobs whose head nobody can read, each with why.
    """

    heads: Sequence[JobState]
    cursor: str | None
    unread: Sequence[tuple[Key, str]] = ()
