"""Who changed what: what is noted with each change by a client, and how it is read again."""

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
DEFINED = frozenset({JOB_CREATE, JOB_UPDATE})  # what gives a job a definition


class Actor(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Who asked, from where, and in which request."""

    caller: str
    token_id: str = ""
    address: str = ""
    request_id: str = ""


class Note(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What stands beside a change and is written with it; all jobs of a batch share one."""

    actor: Actor
    action: str
    at: datetime
    run_id: str = ""
    subject_token_id: str = ""
    former: str = ""  # the ref of the definition that an update replaced
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    count: int = 1


class Subject(NamedTuple):
    """The job that a note is about: its version then, and the ref of a definition it got."""

    job_id: str = ""
    version: int = 0
    ref: str = ""


class Noted(NamedTuple):
    """A note and all that it is about."""

    note: Note
    subjects: list[Subject]


class Entry(NamedTuple):
    """A line of the audit; its id derives from what it says."""

    tenant: str
    note: Note
    subject: Subject

    @property
    def audit_id(self) -> str:
        note, about = self.note, self.subject
        asked = (note.action, about.job_id, str(about.version), note.run_id, note.subject_token_id)
        said = "\0".join((self.tenant, *asked, note.actor.request_id))
        digest = blake2b(said.encode(), digest_size=8).digest()
        # In the order of microseconds: a millisecond may see several changes.
        return sortable_id(note.at, (note.at.microsecond % 1_000).to_bytes(2, "big") + digest)


class AuditFilters(NamedTuple):
    job_id: str = ""
    caller: str = ""
    action: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def kept(self, now: datetime) -> "AuditFilters":
        """The same of what has not expired."""
        since = now - RETENTION
        return self if self.start is not None and self.start > since else self._replace(start=since)

    def admit(self, note: Note) -> bool:
        """Whether what it is about, and that alone, decides."""
        return (
            (not self.caller or note.actor.caller == self.caller)
            and (not self.action or note.action == self.action)
            and (self.start is None or note.at >= self.start)
            and (self.end is None or note.at < self.end)
        )


class AuditPage(NamedTuple):
    """Some entries, newest first; a list goes on behind `after` (None: it is at its end)."""

    entries: Sequence[Entry]
    after: tuple[str, ...] | None


class AuditLog(Protocol):
    """Nothing in it is ever changed; it expires as runs do."""

    def note(self, tenant: str, note: Note) -> None:
        """About no job. It stands when this returns, or with the transaction that it is part of."""

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """At most `limit`, and fewer where much had to be read to find them."""


def moment_text(at: datetime) -> str:
    """As the API writes it."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def subject_of(note: Note, head: JobState) -> Subject:
    ref = head.current.body if note.action in DEFINED else ""
    return Subject(head.job_id, head.version, ref)


def newest_first(tenant: str, noted: Sequence[Noted], filters: AuditFilters) -> list[Entry]:
    """Those of a row that the filters admit, each once."""
    found = {entry.audit_id: entry for entry in _admitted(tenant, noted, filters)}
    return [found[audit_id] for audit_id in sorted(found, reverse=True)]


def _admitted(tenant: str, noted: Sequence[Noted], filters: AuditFilters) -> Iterator[Entry]:
    for note, subjects in noted:
        if filters.admit(note):
            for subject in subjects:
                if not filters.job_id or subject.job_id == filters.job_id:
                    yield Entry(tenant, note, subject)


def of_change(note: Note, old: JobState | None, new: JobState) -> Note | None:
    """The note as it is to be written with this very change; None where it is not what it says.

    A swap may do no more than see to what an earlier one of the same request left.
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
    """Not what the schedule fired in the same swap."""
    runs = {run.run_id for run in (*head.runs, *head.ended) if run.trigger is Trigger.BACKFILL}
    return runs | {one.run_id for one in head.line if one.trigger is Trigger.BACKFILL}


def _goes_on(head: JobState, run_id: str) -> bool:
    """Whether the run is alive, and nobody has wished it to stop."""
    alive = any(run.run_id == run_id and not run.cancel for run in head.runs)
    return alive or any(waiting.run_id == run_id for waiting in head.line)
