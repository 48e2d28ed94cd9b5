"""The write operations of the API: submit and change jobs, start and cancel runs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import (
    FieldError,
    Invalid,
    PreconditionFailed,
    PunctualError,
    Unavailable,
)
from punctual.domain.events import Event
from punctual.domain.identifiers import new_write_id
from punctual.domain.job_state import JobState, JobStatus, MisfirePolicy
from punctual.domain.schedules.schedule import Schedule
from punctual.engine.changes.apply import MAX_SWAP_ATTEMPTS, ChangeApplier
from punctual.engine.commands import audit
from punctual.engine.commands.artifacts import Artifacts, wanted_artifact
from punctual.engine.commands.backfill import Backfiller
from punctual.engine.commands.definition import changed_schedule, compile_definition
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys, Submission
from punctual.engine.commands.job_names import JobNames, NameClaim, held_name
from punctual.engine.commands.runs import RunCommands, job_conflict
from punctual.engine.commands.submit import JobSubmission
from punctual.engine.ports.audit_log import Actor
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.lists.job_names import NameRow
from punctual.engine.ports.quotas import Quotas
from punctual.engine.ports.receipts import Receipts
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.ports.wakeups import WakeUps
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import (
    NoQuotas,
    check_run_quota,
    starts_run_at_once,
    too_many_jobs,
)

__all__ = ["Jobs", "Submission"]


class _Revision(NamedTuple):
    definition: DefinitionRow
    blob: Blob | None
    event: events.Update


class _ChangedNames(NamedTuple):
    has_new_name: bool
    former_row: NameRow | None  # of the name that the job gives up


class Jobs(RunCommands):
    """Carries out commands. On return a command is durable, and nothing it forbids starts later."""

    def __init__(
        self,
        *,
        job_states: JobStates,
        history: History,
        blobs: Blobs,
        receipts: Receipts,
        wakeups: WakeUps,
        applier: ChangeApplier,
        queries: JobQueries,
        clock: Clock,
        new_id: NewId,
        names: JobNames,
        quotas: Quotas | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._names = names
        definitions, quotas = Definitions(job_states, blobs), quotas or NoQuotas()
        idempotency_keys = IdempotencyKeys(receipts)
        super().__init__(
            applier=applier,
            queries=queries,
            definitions=definitions,
            idempotency_keys=idempotency_keys,
            backfiller=Backfiller(history, definitions),
            clock=clock,
            new_id=new_id,
            quotas=quotas,
        )
        self._submission = JobSubmission(
            job_states=job_states,
            wakeups=wakeups,
            applier=applier,
            definitions=definitions,
            idempotency_keys=idempotency_keys,
            clock=clock,
            new_id=new_id,
            quotas=quotas,
            names=names,
            artifacts=artifacts,
        )

    def submit(
        self,
        tenant: str,
        caller: str,
        submissions: Sequence[Submission],
        actor: Actor | None = None,
    ) -> list[JobView | PunctualError]:
        """Accept each job on its own. An answered job is durable."""
        return self._submission.submit(tenant, caller, submissions, actor)

    def find_repeated(self, tenant: str, idempotency_key: str, fingerprint: str) -> JobView | None:
        """Return the job that an earlier request with this key and body created, or None."""
        return self._submission.find_repeated(tenant, idempotency_key, fingerprint)

    def change(
        self,
        tenant: str,
        job_id: str,
        revise: Callable[[dict[str, Any]], dict[str, Any]],
        if_match: int | None = None,
        actor: Actor | None = None,
    ) -> JobView:
        """Put a new definition in force. `revise` makes it from the present one.

        If `revise` returns the present definition, the job and its version stay unchanged.
        """
        asked_at = self._clock()
        key, write_id, admitted = JobKey(tenant, job_id), new_write_id(self._new_id), False
        for _ in range(MAX_SWAP_ATTEMPTS):
            stored, definition = self._load(key)
            _check_version(stored.state, if_match)
            current = self._definitions.full_document(definition)
            document = revise(current)
            if document is current or _is_same_document(document, current):
                _check_not_cancelled(stored.state)
                return self._queries.to_view(stored.state, definition)
            revision = self._revise(key, stored, definition, document, write_id, asked_at, actor)
            if not admitted:
                admitted = self._check_quotas(
                    tenant, stored.state, revision.event.schedule, asked_at
                )
            self._use_artifact(key, current, document)
            names = self._names_of_change(key, stored.state, definition, revision, asked_at)
            self._definitions.put([(revision.definition, revision.blob)])
            change = self._build_change(
                key, revision.event, write_id, actor, audit.JOB_UPDATE, asked_at
            )
            # The name was taken for this version: see `JobNames`.
            version = stored.state.version if names.has_new_name else None
            (result,) = self._applier.apply(
                [change._replace(edition=stored.state.edition, version=version)]
            )
            if result.verdict is not Verdict.STALE:  # a stale version means a concurrent change
                self._raise_refusal(result)
                if names.former_row is not None:
                    self._names.give_up([names.former_row])
                return self._queries.job(tenant, job_id)
        raise Unavailable("Too many changes of this job at the same time: try again.")

    def _names_of_change(
        self,
        key: JobKey,
        state: JobState,
        definition: DefinitionRow,
        revision: _Revision,
        now: datetime,
    ) -> _ChangedNames:
        """Take the name that a recurring job gets, and return the row that it gives up after."""
        old_name = held_name(state.kind, state.status, definition.name)
        new_name = held_name(revision.event.kind, state.status, revision.definition.name)
        if old_name == new_name:
            return _ChangedNames(has_new_name=False, former_row=None)
        former_row = None if old_name is None else self._names.find(key, old_name)
        if new_name is not None:
            (error,) = self._names.take([NameClaim(key, new_name)], now)
            if error is not None:
                raise error
        return _ChangedNames(new_name is not None, former_row)

    def _revise(
        self,
        key: JobKey,
        stored: StoredState,
        definition: DefinitionRow,
        document: dict[str, Any],
        write_id: str,
        now: datetime,
        actor: Actor | None,
    ) -> _Revision:
        state = stored.state
        ref = f"{state.edition + 1}-{write_id}"
        row, blob = self._definitions.build_row(
            key, document, ref, state.edition + 1, now, definition.created_by
        )
        compiled = compile_definition(document, key.job_id, ref, now)
        return _Revision(
            replace(
                row,
                previous_ref=definition.ref,
                changed_by="" if actor is None else actor.caller,
            ),
            blob,
            events.Update(
                kind=compiled.kind,
                rules=compiled.rules,
                limits=compiled.limits,
                schedule=None
                if compiled.kind is state.kind and state.kind == "IMMEDIATE"
                else changed_schedule(compiled.schedule, state.schedule),
                requested_at=now,
                notify=compiled.notify,
            ),
        )

    def _use_artifact(self, key: JobKey, old: dict[str, Any], new: dict[str, Any]) -> None:
        """Note the use of another artifact, before the new definition is in force."""
        new_use = wanted_artifact(key.job_id, new)
        if self._artifacts is None or new_use is None:
            return
        if new_use == wanted_artifact(key.job_id, old):
            return
        problem = self._artifacts.use(key.tenant, [new_use]).get(key.job_id)
        if problem is not None:
            raise Invalid.of(FieldError("task.artifact_id", problem))

    def _check_quotas(
        self, tenant: str, state: JobState, schedule: Schedule | None, asked_at: datetime
    ) -> bool:
        """Check the quotas of a new job if the change sets a schedule. Return whether it does.

        A completed job does not count as a job until it gets a new time.
        """
        if schedule is None:
            return False
        if state.status is JobStatus.COMPLETED and not self._quotas.available_jobs(tenant, 1):
            raise too_many_jobs()
        if starts_run_at_once(schedule, asked_at):
            check_run_quota(self._quotas, tenant)
        return True

    def pause(
        self,
        tenant: str,
        job_id: str,
        if_match: int | None = None,
        actor: Actor | None = None,
        until: datetime | None = None,
        note: str = "",
        operation_id: str = "",
    ) -> JobView:
        """Pause the job, up to `until` if it is given. A paused job takes `until` and `note`."""
        by = "" if actor is None else actor.caller
        event = events.Pause(until, note, operation_id, by)
        after = audit.pause_fields(until, note)
        return self._command(tenant, job_id, event, if_match, actor, audit.JOB_PAUSE, after)

    def resume(
        self,
        tenant: str,
        job_id: str,
        missed: MisfirePolicy | None = None,
        if_match: int | None = None,
        actor: Actor | None = None,
    ) -> JobView:
        after = None if missed is None else {"missed": missed.value}
        event = events.Resume(missed)
        return self._command(tenant, job_id, event, if_match, actor, audit.JOB_RESUME, after)

    def cancel(
        self, tenant: str, job_id: str, if_match: int | None = None, actor: Actor | None = None
    ) -> JobView:
        view = self._command(tenant, job_id, events.Cancel(), if_match, actor, audit.JOB_CANCEL)
        self._names.give_up_cancelled([(view.state, view.definition)])
        return view

    def _command(
        self,
        tenant: str,
        job_id: str,
        event: Event,
        if_match: int | None,
        actor: Actor | None,
        action: str,
        after: dict[str, Any] | None = None,
    ) -> JobView:
        key = JobKey(tenant, job_id)
        asked_at = self._clock()
        change = self._build_change(
            key, event, self._new_id(), actor, action, asked_at, after=after
        )
        (result,) = self._applier.apply([change._replace(edition=if_match)])
        self._raise_refusal(result)
        if result.verdict is Verdict.STALE:
            raise PreconditionFailed("The job has another version by now: read it again.")
        return self._queries.job(tenant, job_id)


def _is_same_document(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Compare two documents as JSON. Python treats `True` and 1 as equal."""
    return first == second and msgspec.json.encode(first) == msgspec.json.encode(second)


def _check_version(state: JobState, if_match: int | None) -> None:
    if if_match is not None and state.edition != if_match:
        raise PreconditionFailed("The job has another version by now: read it again.")


def _check_not_cancelled(state: JobState) -> None:
    if state.status is JobStatus.CANCELLED:
        raise job_conflict(state)
