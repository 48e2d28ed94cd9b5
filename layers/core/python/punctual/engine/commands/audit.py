"""The note written with each change of a client, and the entries that a stored row holds."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from punctual.domain.job_state import JobState
from punctual.domain.run import Trigger
from punctual.engine.ports.audit_log import AuditFilters, Entry, Note, Noted, Subject

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
