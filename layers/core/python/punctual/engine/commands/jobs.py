"""The write operations of the API: submit and change jobs, start and cancel runs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import (
    PreconditionFailed,
    PunctualError,
    Unavailable,
)
from punctual.domain.events import Event
from punctual.domain.job_state import JobState, JobStatus, Misfire
from punctual.domain.schedules.schedule import Schedule
from punctual.engine.changes.apply import TRIES, ChangeApplier
from punctual.engine.changes.write_ids import mark
from punctual.engine.commands import audit
from punctual.engine.commands.backfill import Backfiller
from punctual.engine.commands.definition import compile_definition, keep_phase
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys, Submission
from punctual.engine.commands.runs import RunCommands, conflict
from punctual.engine.commands.submit import JobSubmission
from punctual.engine.ports.audit_log import Actor
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.quotas import Quotas
from punctual.engine.ports.receipts import Receipts
from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.engine.ports.wakeups import WakeUps
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import NoQuotas, check_order, is_order, too_many_jobs

__all__ = ["Jobs", "Submission"]


class _Revised(NamedTuple):
    body: DefinitionRow
    blob: Blob | None
    event: events.Update


class Jobs(RunCommands):
    """Carries out commands. On return a command is durable, and nothing it forbids starts later."""

    def __init__(
        self,
        *,
        heads: JobStates,
        history: History,
        blobs: Blobs,
        receipts: Receipts,
        wake: WakeUps,
        steps: ChangeApplier,
        search: JobQueries,
        clock: Clock,
        new_id: NewId,
        quotas: Quotas | None = None,
    ) -> None:
        documents, quotas = Definitions(heads, blobs), quotas or NoQuotas()
        keys = IdempotencyKeys(receipts)
        super().__init__(
            steps=steps,
            search=search,
            documents=documents,
            receipts=keys,
            backfilling=Backfiller(history, documents),
            clock=clock,
            new_id=new_id,
            quotas=quotas,
        )
        self._submitting = JobSubmission(
            heads=heads,
            wake=wake,
            steps=steps,
            documents=documents,
            receipts=keys,
            clock=clock,
            new_id=new_id,
            quotas=quotas,
        )

    def submit(
        self,
        tenant: str,
        caller: str,
        wanted: Sequence[Submission],
        by: Actor | None = None,
    ) -> list[JobView | PunctualError]:
        """Accept each job on its own. An answered job is durable."""
        return self._submitting.submit(tenant, caller, wanted, by)

    def repeated(self, tenant: str, idempotency_key: str, fingerprint: str) -> JobView | None:
        """Return the job that an earlier request with this key and body created, or None."""
        return self._submitting.repeated(tenant, idempotency_key, fingerprint)

    def change(
        self,
        tenant: str,
        job_id: str,
        revise: Callable[[dict[str, Any]], dict[str, Any]],
        if_match: int | None = None,
        by: Actor | None = None,
    ) -> JobView:
        """Put a new definition in force. `revise` makes it from the present one.

        If `revise` returns the present definition, the job and its version stay unchanged.
        """
        asked_at = self._clock()
        key, writer, admitted = Key(tenant, job_id), mark(self._new_id), False
        for _ in range(TRIES):
            stored, body = self._load(key)
            _check(stored.head, if_match)
            present = self._documents.whole(body)
            document = revise(present)
            if document is present or _same(document, present):
                _check_alive(stored.head)
                return self._search.view(stored.head, body)
            revised = self._revise(key, stored, body, document, writer, asked_at)
            if not admitted:
                admitted = self._admit(tenant, stored.head, revised.event.schedule, asked_at)
            self._documents.put([(revised.body, revised.blob)])
            change = self._change(key, revised.event, writer, by, audit.JOB_UPDATE, asked_at)
            (result,) = self._steps.apply([change._replace(edition=stored.head.edition)])
            if result.verdict is not Verdict.STALE:  # a stale version means a concurrent change
                self._refuse(result)
                return self._search.job(tenant, job_id)
        raise Unavailable("Too many changes of this job at the same time: try again.")

    def _revise(
        self,
        key: Key,
        stored: StoredState,
        body: DefinitionRow,
        document: dict[str, Any],
        writer: str,
        now: datetime,
    ) -> _Revised:
        head = stored.head
        ref = f"{head.edition + 1}-{writer}"
        new, blob = self._documents.body(key, document, ref, head.edition + 1, now, body.created_by)
        meaning = compile_definition(document, key.job_id, ref, now)
        return _Revised(
            replace(new, previous=body.ref),
            blob,
            events.Update(
                kind=meaning.kind,
                rules=meaning.rules,
                limits=meaning.limits,
                schedule=None
                if meaning.kind is head.kind and head.kind == "IMMEDIATE"
                else keep_phase(meaning.schedule, head.schedule),
                asked_at=now,
                notify=meaning.notify,
            ),
        )

    def _admit(
        self, tenant: str, head: JobState, schedule: Schedule | None, asked_at: datetime
    ) -> bool:
        """Check the quotas of a new job if the change sets a schedule. Return whether it does.

        A completed job does not count as a job until it gets a new time.
        """
        if schedule is None:
            return False
        if head.state is JobStatus.COMPLETED and not self._quotas.jobs(tenant, 1):
            raise too_many_jobs()
        if is_order(schedule, asked_at):
            check_order(self._quotas, tenant)
        return True

    def pause(
        self, tenant: str, job_id: str, if_match: int | None = None, by: Actor | None = None
    ) -> JobView:
        return self._command(tenant, job_id, events.Pause(), if_match, by, audit.JOB_PAUSE)

    def resume(
        self,
        tenant: str,
        job_id: str,
        missed: Misfire | None = None,
        if_match: int | None = None,
        by: Actor | None = None,
    ) -> JobView:
        after = None if missed is None else {"missed": missed.value}
        event = events.Resume(missed)
        return self._command(tenant, job_id, event, if_match, by, audit.JOB_RESUME, after)

    def cancel(
        self, tenant: str, job_id: str, if_match: int | None = None, by: Actor | None = None
    ) -> JobView:
        return self._command(tenant, job_id, events.Cancel(), if_match, by, audit.JOB_CANCEL)

    def _command(
        self,
        tenant: str,
        job_id: str,
        event: Event,
        if_match: int | None,
        by: Actor | None,
        action: str,
        after: dict[str, Any] | None = None,
    ) -> JobView:
        key = Key(tenant, job_id)
        asked_at = self._clock()
        change = self._change(key, event, self._new_id(), by, action, asked_at, after=after)
        (result,) = self._steps.apply([change._replace(edition=if_match)])
        self._refuse(result)
        if result.verdict is Verdict.STALE:
            raise PreconditionFailed("The job has another version by now: read it again.")
        return self._search.job(tenant, job_id)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare two documents as JSON. Python treats `True` and 1 as equal."""
    return one == other and msgspec.json.encode(one) == msgspec.json.encode(other)


def _check(head: JobState, if_match: int | None) -> None:
    if if_match is not None and head.edition != if_match:
        raise PreconditionFailed("The job has another version by now: read it again.")


def _check_alive(head: JobState) -> None:
    if head.state is JobStatus.CANCELLED:
        raise conflict(head)
