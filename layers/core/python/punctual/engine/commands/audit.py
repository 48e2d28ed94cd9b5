"""Audit entries: the note written with each change of a client, and the port that reads them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.durations import RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState
from punctual.domain.run import Trigger

JOB_CREATE, JOB_UPDATE, JOB_CANCEL = "job.create", "job.update", "job.cancel"
JOB_PAUSE, JOB_RESUME, JOB_BACKFILL = "job.pause", "job.resume", "job.backfill"
RUN_ORDER, RUN_CANCEL, RUN_RETRY = "run.order", "run.cancel", "run.retry"
TOKEN_CREATE, TOKEN_REVOKE = "token.create", "token.revoke"
LIMITS_CHANGE = "limits.change"
WEBHOOK_SECRET_READ = "webhook_secret.read"
ACTIONS = (
    JOB_CREATE,
    JOB_UPDATE,
    JOB_CANCEL,
    JOB_PAUSE,
    JOB_RESUME,
    RUN_ORDER,
    RUN_CANCEL,
    RUN_RETRY,
    JOB_BACKFILL,
    TOKEN_CREATE,
    TOKEN_REVOKE,
    LIMITS_CHANGE,
    WEBHOOK_SECRET_READ,
)
DEFINED = frozenset({JOB_CREATE, JOB_UPDATE})  # actions that give a job a definition


class Actor(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The caller of a request, its token and address, and the request id."""

    caller: str
    token_id: str = ""
    address: str = ""
    request_id: str = ""


class Note(Struct, frozen=True, array_like=True, omit_defaults=True):
    """Describes a change and is written with it. All jobs of a batch share one note."""

    actor: Actor
    action: str
    at: datetime
    run_id: str = ""
    subject_token_id: str = ""
    former: str = ""  # ref of the definition that an update replaced
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    count: int = 1


class Subject(NamedTuple):
    """The job of a note, its version after the change, and the ref of its new definition."""

    job_id: str = ""
    version: int = 0
    ref: str = ""


class Noted(NamedTuple):
    """A note and all jobs it is about."""

    note: Note
    subjects: list[Subject]


class Entry(NamedTuple):
    """One audit entry. Its id derives from its content, so a repeated write adds no entry."""

    tenant: str
    note: Note
    subject: Subject

    @property
    def audit_id(self) -> str:
        note, about = self.note, self.subject
        asked = (note.action, about.job_id, str(about.version), note.run_id, note.subject_token_id)
        said = "\0".join((self.tenant, *asked, note.actor.request_id))
        digest = blake2b(said.encode(), digest_size=8).digest()
        # Order by microseconds. One millisecond may hold several changes.
        return sortable_id(note.at, (note.at.microsecond % 1_000).to_bytes(2, "big") + digest)


class AuditFilters(NamedTuple):
    job_id: str = ""
    caller: str = ""
    action: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def kept(self, now: datetime) -> "AuditFilters":
        """Return these filters, limited to entries within the retention time."""
        since = now - RETENTION
        return self if self.start is not None and self.start > since else self._replace(start=since)

    def admit(self, note: Note) -> bool:
        """Return whether the note passes every filter except `job_id`."""
        return (
            (not self.caller or note.actor.caller == self.caller)
            and (not self.action or note.action == self.action)
            and (self.start is None or note.at >= self.start)
            and (self.end is None or note.at < self.end)
        )


class AuditPage(NamedTuple):
    """Entries, newest first. `after` is the cursor of the next page, None on the last page."""

    entries: Sequence[Entry]
    after: tuple[str, ...] | None


class AuditLog(Protocol):
    """Stores notes. An entry never changes, and expires after the same time as a run."""

    def note(self, tenant: str, note: Note) -> None:
        """Store a note that belongs to no job.

        It is durable on return, or with the surrounding transaction.
        """

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """Return up to `limit` entries.

        A page may be short if the filters pass few of the entries read.
        """


def moment_text(at: datetime) -> str:
    """Return a time in the format of the API."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def subject_of(note: Note, head: JobState) -> Subject:
    ref = head.current.body if note.action in DEFINED else ""
    return Subject(head.job_id, head.version, ref)


def newest_first(tenant: str, noted: Sequence[Noted], filters: AuditFilters) -> list[Entry]:
    """Return the entries of one row that pass the filters, each once."""
    found = {entry.audit_id: entry for entry in _admitted(tenant, noted, filters)}
    return [found[audit_id] for audit_id in sorted(found, reverse=True)]


def _admitted(tenant: str, noted: Sequence[Noted], filters: AuditFilters) -> Iterator[Entry]:
    for note, subjects in noted:
        if filters.admit(note):
            for subject in subjects:
                if not filters.job_id or subject.job_id == filters.job_id:
                    yield Entry(tenant, note, subject)


def of_change(note: Note, old: JobState | None, new: JobState) -> Note | None:
    """Return the note to write with this swap, or None if the swap did not make the change.

    A swap may only complete an earlier swap of the same request, which has written the note.
    """
    if old is None or old.blank or note.action == JOB_CREATE:
        return note if note.action == JOB_CREATE and not new.blank else None
    if note.action in (RUN_ORDER, RUN_RETRY):
        return note if note.run_id in _runs(new) - _runs(old) else None
    if note.action == RUN_CANCEL:
        return note if _goes_on(old, note.run_id) and not _goes_on(new, note.run_id) else None
    if note.action == JOB_BACKFILL:
        made = len(_made_up_for(new) - _made_up_for(old))
        return replace(note, count=made) if made else None
    if new.edition == old.edition:
        return None
    former = old.current.body if note.action == JOB_UPDATE else ""
    before, after = {"status": old.state.value}, {"status": new.state.value}
    if old.state is new.state:
        before, after = {}, {}
    return replace(note, former=former, before=before, after={**(note.after or {}), **after})


def _runs(head: JobState) -> set[str]:
    runs = {run.run_id for run in (*head.runs, *head.ended)}
    return runs | {waiting.run_id for waiting in head.line}


def _made_up_for(head: JobState) -> set[str]:
    """Return the ids of backfill runs, without runs that the schedule fired in the same swap."""
    runs = {run.run_id for run in (*head.runs, *head.ended) if run.trigger is Trigger.BACKFILL}
    return runs | {one.run_id for one in head.line if one.trigger is Trigger.BACKFILL}


def _goes_on(head: JobState, run_id: str) -> bool:
    """Return whether the run is alive without a cancel request."""
    alive = any(run.run_id == run_id and not run.cancel for run in head.runs)
    return alive or any(waiting.run_id == run_id for waiting in head.line)
