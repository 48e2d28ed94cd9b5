"""The note written with each change of a client, and the entries that a stored row holds."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from punctual.domain.job_state import JobState
from punctual.domain.run import Trigger
from punctual.domain.timestamps import format_optional_time
from punctual.engine.ports.audit_log import (
    AuditEntry,
    AuditFilters,
    Note,
    NoteWithSubjects,
    Subject,
)

JOB_CREATE, JOB_UPDATE, JOB_CANCEL = "job.create", "job.update", "job.cancel"
JOB_PAUSE, JOB_RESUME, JOB_BACKFILL = "job.pause", "job.resume", "job.backfill"
RUN_ORDER, RUN_CANCEL, RUN_RETRY = "run.order", "run.cancel", "run.retry"
TOKEN_CREATE, TOKEN_REVOKE = "token.create", "token.revoke"
LIMITS_CHANGE = "limits.change"
WEBHOOK_SECRET_READ = "webhook_secret.read"
SECRET_SET, SECRET_DELETE = "secret.set", "secret.delete"
ARTIFACT_CREATE, ARTIFACT_DELETE = "artifact.create", "artifact.delete"
OPERATION_BEGIN, OPERATION_CANCEL = "operation.begin", "operation.cancel"
FAILURE_ACKNOWLEDGE = "failure.acknowledge"
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
    SECRET_SET,
    SECRET_DELETE,
    ARTIFACT_CREATE,
    ARTIFACT_DELETE,
    OPERATION_BEGIN,
    OPERATION_CANCEL,
    FAILURE_ACKNOWLEDGE,
)
DEFINING_ACTIONS = frozenset({JOB_CREATE, JOB_UPDATE})  # actions that give a job a definition


def pause_fields(until: datetime | None, note: str) -> dict[str, Any]:
    """Return what the audit shows of a pause, without what the caller left out."""
    fields = {"until": format_optional_time(until), "note": note or None}
    return {name: value for name, value in fields.items() if value is not None}


def subject_of(note: Note, state: JobState) -> Subject:
    ref = state.current_rules.definition_ref if note.action in DEFINING_ACTIONS else ""
    return Subject(state.job_id, state.version, ref)


def newest_first(
    tenant: str, rows: Sequence[NoteWithSubjects], filters: AuditFilters
) -> list[AuditEntry]:
    """Return the entries of one row that pass the filters, each once."""
    entries = {entry.audit_id: entry for entry in _matching_entries(tenant, rows, filters)}
    return [entries[audit_id] for audit_id in sorted(entries, reverse=True)]


def _matching_entries(
    tenant: str, rows: Sequence[NoteWithSubjects], filters: AuditFilters
) -> Iterator[AuditEntry]:
    for note, subjects in rows:
        if filters.matches(note):
            for subject in subjects:
                if not filters.job_id or subject.job_id == filters.job_id:
                    yield AuditEntry(tenant, note, subject)


def note_for_swap(note: Note, old: JobState | None, new: JobState) -> Note | None:
    """Return the note to write with this swap, or None if the swap did not make the change.

    A swap may only complete an earlier swap of the same request, which has written the note.
    """
    if old is None or old.is_blank or note.action == JOB_CREATE:
        return note if note.action == JOB_CREATE and not new.is_blank else None
    if note.action in (RUN_ORDER, RUN_RETRY):
        return note if note.run_id in _run_ids(new) - _run_ids(old) else None
    if note.action == RUN_CANCEL:
        return note if _is_active(old, note.run_id) and not _is_active(new, note.run_id) else None
    if note.action == JOB_BACKFILL:
        run_count = len(_backfill_run_ids(new) - _backfill_run_ids(old))
        return replace(note, count=run_count) if run_count else None
    if new.edition == old.edition:
        return None
    replaced_ref = old.current_rules.definition_ref if note.action == JOB_UPDATE else ""
    before: dict[str, Any] = {}
    after = note.after or {}
    if note.action in (JOB_PAUSE, JOB_RESUME) and old.pause is not None:
        before = pause_fields(old.pause.until, old.pause.note)
    if old.status is not new.status:
        before = {**before, "status": old.status.value}
        after = {**after, "status": new.status.value}
    return replace(note, replaced_ref=replaced_ref, before=before, after=after)


def _run_ids(state: JobState) -> set[str]:
    run_ids = {run.run_id for run in (*state.runs, *state.unrecorded)}
    return run_ids | {waiting.run_id for waiting in state.wait_queue}


def _backfill_run_ids(state: JobState) -> set[str]:
    """Return the ids of backfill runs, without runs that the schedule fired in the same swap."""
    run_ids = {
        run.run_id for run in (*state.runs, *state.unrecorded) if run.trigger is Trigger.BACKFILL
    }
    return run_ids | {
        waiting.run_id for waiting in state.wait_queue if waiting.trigger is Trigger.BACKFILL
    }


def _is_active(state: JobState, run_id: str) -> bool:
    """Return whether the run is alive without a cancel request."""
    is_live = any(run.run_id == run_id and not run.cancel_reason for run in state.runs)
    return is_live or any(waiting.run_id == run_id for waiting in state.wait_queue)
