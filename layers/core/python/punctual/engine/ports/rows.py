"""Rows of definitions, attempts, runs and receipts, and pages of lists."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from punctual.domain.job_state import DEFAULT_TASK_TYPE, JobState
from punctual.domain.run import Run
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE

MAX_SHORT_OUTPUT_BYTES = 64  # bytes; a job state with a note stays under 1 KB


class Page(NamedTuple):
    """One page of a list. `next_cursor` is None on the last page."""

    items: Sequence[Any]
    next_cursor: tuple[str, ...] | None


class JobKey(NamedTuple):
    tenant: str
    job_id: str


class DefinitionRow(
    Struct,
    frozen=True,
    omit_defaults=True,
    rename={"previous_ref": "previous", "payload_fingerprint": "payload_print"},
):
    """A version of a definition as the client sent it. A row never changes."""

    tenant: str
    job_id: str
    ref: str  # unique: the edition and the write id
    edition: int
    created_at: datetime
    name: str
    document: dict[str, Any]  # only the fields that the client sent
    created_by: str = ""  # the caller that created the job
    tags: dict[str, str] = {}
    payload: Any = None
    payload_blob: str = ""  # the key of a large payload
    previous_ref: str = ""  # the ref of the previous definition
    payload_size: int = 0  # in bytes, of a large payload
    payload_fingerprint: str = ""  # the fingerprint of a large payload
    changed_by: str = ""  # the caller that made this version, not the first one


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
    def is_plain(self) -> bool:
        """Return True if the run itself holds all of this, except perhaps an id."""
        return not (self.error or self.output_blob or self.log_blob or self.http_status) and (
            self.exit_code is None
        )

    @property
    def short_output(self) -> str:
        """Return the id of a published event or sent message, which the run itself carries."""
        if self.output is None or not self.is_plain or self.output_type != TEXT_CONTENT_TYPE:
            return ""
        try:
            return self.output.decode() if len(self.output) <= MAX_SHORT_OUTPUT_BYTES else ""
        except UnicodeDecodeError:
            return ""


NO_DETAIL = Detail()


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


class JobLabel(Struct, frozen=True, omit_defaults=True, array_like=True):
    """What lists of runs show and filter of a job."""

    name: str
    tags: dict[str, str] = {}


class RunRow(Struct, frozen=True, omit_defaults=True, rename={"task_type": "task"}):
    """A history row: a run that ended, or occurrences that did not run."""

    tenant: str
    job_id: str
    run: Run
    expires_at: datetime
    tzdata: str = ""
    detail: Detail = Detail()
    task_type: str = DEFAULT_TASK_TYPE
    label: JobLabel | None = None  # in rows of a list; history rows do without


class RunKey(NamedTuple):
    tenant: str
    job_id: str
    run_id: str


class Receipt(Struct, frozen=True, omit_defaults=True, rename={"created_id": "made_id"}):
    """The stored answer to a request with an Idempotency-Key."""

    fingerprint: str  # of the parsed body
    created_id: str
    created_at: datetime
    expires_at: datetime


class JobStatePage(NamedTuple):
    """A page of job states, newest first, with their present definition rows.

    `before` is the cursor of the next page.
    """

    items: Sequence[tuple[JobState, DefinitionRow]]
    before: str | None
    without_definition: Sequence[JobState] = ()  # their definition row is deleted or missing

    @classmethod
    def from_rows(
        cls,
        states: Sequence[JobState],
        refs: Sequence[tuple[JobKey, str]],
        definitions: Mapping[tuple[JobKey, str], DefinitionRow],
        has_more: bool,
    ) -> "JobStatePage":
        """Return the page. `refs` names the definition row of each state."""
        pairs = list(zip(states, refs, strict=True))
        items = [(state, definitions[ref]) for state, ref in pairs if ref in definitions]
        without_definition = [state for state, ref in pairs if ref not in definitions]
        return cls(items, states[-1].job_id if has_more else None, without_definition)


class UpcomingStates(NamedTuple):
    """States with their next occurrences, complete up to `complete_until` (time, job).

    If `complete_until` is None, the states are complete to the end.
    """

    states: Sequence[JobState]
    complete_until: tuple[datetime, str] | None
