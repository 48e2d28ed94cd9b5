"""Rows of definitions, attempts, runs and receipts, and pages of job states."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from punctual.domain.job_state import JobState
from punctual.domain.run import Run

TEXT = "text/plain; charset=utf-8"
NOTE = 64  # bytes; a job state with a note stays under 1 KB


class Key(NamedTuple):
    tenant: str
    job_id: str


class DefinitionRow(Struct, frozen=True, omit_defaults=True):
    """A version of a definition as the client sent it. A row never changes."""

    tenant: str
    job_id: str
    ref: str  # unique: the edition and the write id
    edition: int
    created_at: datetime
    name: str
    document: dict[str, Any]  # only the fields that the client sent
    created_by: str = ""
    tags: dict[str, str] = {}
    payload: Any = None
    payload_blob: str = ""  # the key of a large payload
    previous: str = ""  # the ref of the previous definition
    payload_size: int = 0  # in bytes, of a large payload
    payload_print: str = ""  # the fingerprint of a large payload


class Detail(Struct, frozen=True, omit_defaults=True):
    """The result of an attempt besides its status."""

    error: str = ""
    exit_code: int | None = None
    http_status: int | None = None
    http_headers: tuple[tuple[str, str], ...] = ()
    output: bytes | None = None  # a short id, for example of an event, stored inline
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
        """Return True if the run itself holds all of this, except perhaps an id."""
        return not (self.error or self.output_blob or self.log_blob or self.http_status) and (
            self.exit_code is None
        )

    @property
    def note(self) -> str:
        """Return the id of a published event or sent message, which the run itself carries."""
        if self.output is None or not self.plain or self.output_type != TEXT:
            return ""
        try:
            return self.output.decode() if len(self.output) <= NOTE else ""
        except UnicodeDecodeError:
            return ""


class AttemptRow(Struct, frozen=True, omit_defaults=True):
    """An attempt that ended, written under its own token before the swap that ends it."""

    tenant: str
    job_id: str
    run_id: str
    number: int
    token: int
    status: str
    started_at: datetime
    ended_at: datetime
    executor_id: str
    lost: bool = False  # written by an evaluation, beside the holder's row
    detail: Detail = Detail()
    expires_at: datetime | None = None
    nonce: str = ""  # of the claim, if the run ended with this attempt


class RunRow(Struct, frozen=True, omit_defaults=True):
    """A history row: a run that ended, or occurrences that did not run."""

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
    """The stored answer to a request with an Idempotency-Key."""

    fingerprint: str  # of the parsed body
    made_id: str
    created_at: datetime
    expires_at: datetime


class HeadPage(NamedTuple):
    """A page of job states, newest first, with their present definition rows.

    `before` is the cursor of the next page.
    """

    items: Sequence[tuple[JobState, DefinitionRow]]
    before: str | None
    bare: Sequence[JobState] = ()  # their definition row is deleted or missing

    @classmethod
    def of(
        cls,
        heads: Sequence[JobState],
        wanted: Sequence[tuple[Key, str]],
        bodies: Mapping[tuple[Key, str], DefinitionRow],
        more: bool,
    ) -> "HeadPage":
        """Return the page. `wanted` names the definition row of each state."""
        pairs = list(zip(heads, wanted, strict=True))
        items = [(head, bodies[ref]) for head, ref in pairs if ref in bodies]
        bare = [head for head, ref in pairs if ref not in bodies]
        return cls(items, heads[-1].job_id if more else None, bare)


class Coming(NamedTuple):
    """States with their next occurrences, complete up to `until` (time, job).

    If `until` is None, the states are complete to the end.
    """

    heads: Sequence[JobState]
    until: tuple[datetime, str] | None


class Walk(NamedTuple):
    """A page of job states of all tenants, in any order. `cursor` leads to the next page.

    `unread` lists the jobs with an unreadable state, each with the reason.
    """

    heads: Sequence[JobState]
    cursor: str | None
    unread: Sequence[tuple[Key, str]] = ()
