"""Commands on runs (start, retry, cancel, backfill) and the parts that all commands share."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import Conflict, LimitExceeded, NotFound, Unavailable
from punctual.domain.events import Event
from punctual.domain.identifiers import derived_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Trigger
from punctual.domain.transitions.wait_queue import LINE_MOST
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.commands import audit
from punctual.engine.commands.backfill import Backfiller
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.ports.audit_log import Actor, Note
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.quotas import Quotas
from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView
from punctual.engine.quotas.limits import check_backfill, check_order


class RunCommands:
    def __init__(
        self,
        *,
        steps: ChangeApplier,
        search: JobQueries,
        documents: Definitions,
        receipts: IdempotencyKeys,
        backfilling: Backfiller,
        clock: Clock,
        new_id: NewId,
        quotas: Quotas,
    ) -> None:
        self._steps = steps
        self._search = search
        self._clock = clock
        self._new_id = new_id
        self._documents = documents
        self._receipts = receipts
        self._backfilling = backfilling
        self._quotas = quotas

    def run_now(
        self,
        tenant: str,
        job_id: str,
        payload: Any = UNSET,
        key: str | None = None,
        fingerprint: str = "",
        by: Actor | None = None,
    ) -> RunView:
        job, asked_at = Key(tenant, job_id), self._clock()
        fresh = self._new_run_id(job_id, asked_at)
        run_id = self._receipts.one(tenant, key, fingerprint, fresh, asked_at)
        made = None if run_id == fresh else self._made(job, run_id)
        if made is not None:
            return made
        check_order(self._quotas, tenant)
        if payload is not UNSET:
            self._load(job)  # without a job no cleanup would ever remove the payload
            self._documents.put_payload(job, run_id, payload)
        given = payload is not UNSET
        event = events.StartRun(run_id, own_payload=given, keyed=key is not None)
        return self._order(job, event, by, asked_at, audit.RUN_ORDER, {"payload_given": given})

    def retry(
        self,
        tenant: str,
        job_id: str,
        run_id: str,
        key: str | None = None,
        fingerprint: str = "",
        by: Actor | None = None,
    ) -> Sliced[RunView]:
        """Start a new run by the present definition with the payload of the former run."""
        job, asked_at = Key(tenant, job_id), self._clock()
        stored, body = self._load(job)
        former = self._search.run_of(stored.head, run_id)
        if former.run.ended_at is None:
            raise Conflict("Only a run that has ended can be retried: this one is alive.")
        fresh = self._new_run_id(job_id, asked_at)
        new_id = self._receipts.one(tenant, key, fingerprint, fresh, asked_at)
        made = None if new_id == fresh else self._made(job, new_id)
        if made is not None:
            return made
        payload = yield from self._documents.payload_of(job, former.run, body)
        check_order(self._quotas, tenant)
        if payload is not UNSET:
            self._documents.put_payload(job, new_id, payload)
        order = events.StartRun(
            new_id,
            trigger=Trigger.RETRY,
            own_payload=payload is not UNSET,
            retried_from=run_id,
            scheduled_at=former.run.scheduled_at,
            keyed=key is not None,
        )
        return self._order(job, order, by, asked_at, audit.RUN_RETRY, {"retried_from": run_id})

    def _made(self, key: Key, run_id: str) -> RunView | None:
        """Return the run of an earlier request with the same key, or None."""
        try:
            return self._search.run(*key, run_id)
        except NotFound:
            return None

    def _new_run_id(self, job_id: str, now: datetime) -> str:
        return derived_id(now, job_id, self._new_id())

    def _order(
        self,
        key: Key,
        order: events.StartRun,
        by: Actor | None,
        asked_at: datetime,
        action: str,
        after: dict[str, Any],
    ) -> RunView:
        writer, run_id = self._new_id(), order.run_id
        change = self._change(key, order, writer, by, action, asked_at, run_id, after)
        (result,) = self._steps.apply([change])
        self._refuse(result)
        return self._search.run(*key, order.run_id)

    def cancel_run(self, tenant: str, job_id: str, run_id: str, by: Actor | None = None) -> RunView:
        event, writer = events.CancelRun(run_id), self._new_id()
        key, now = Key(tenant, job_id), self._clock()
        change = self._change(key, event, writer, by, audit.RUN_CANCEL, now, run_id)
        (result,) = self._steps.apply([change])
        if result.decision is None or result.contended:
            self._refuse(result)
        view = self._search.run(tenant, job_id, run_id)
        if result.verdict is not Verdict.OK:
            raise Conflict(f"The run has ended already: it is {view.run.status}.")
        return view

    def backfill(
        self,
        tenant: str,
        job_id: str,
        start: datetime,
        end: datetime,
        dry_run: bool,
        by: Actor | None = None,
    ) -> Sliced[Sequence[datetime]]:
        """Start the runs missing in [start, end). Return their nominal times."""
        key, now = Key(tenant, job_id), self._clock()
        stored, body = self._load(key)
        if stored.head.state is JobStatus.CANCELLED:  # fails even if no run is missing
            raise conflict(stored.head)
        asked = yield from self._backfilling.missing(key, stored.head, body, start, end, now)
        times = [at for _, at in asked]
        if dry_run or not times:
            return times
        check_backfill(self._quotas, tenant, len(times))
        event, writer = events.Backfill(tuple(asked)), self._new_id()
        after = {"from": audit.moment_text(start), "to": audit.moment_text(end)}
        change = self._change(key, event, writer, by, audit.JOB_BACKFILL, now, after=after)
        (result,) = self._steps.apply([change])
        self._refuse(result)
        return times

    def _change(
        self,
        key: Key,
        event: Event,
        writer: str,
        by: Actor | None,
        action: str,
        at: datetime,
        run_id: str = "",
        after: dict[str, Any] | None = None,
    ) -> Change:
        """Return a change. With `by`, its audit note is written only if the change happens."""
        note = None
        if by is not None:
            note = Note(by, action, at, run_id, after=after)
        return Change(key, event, writer, safety=True, note=note)

    def _load(self, key: Key) -> tuple[StoredState, DefinitionRow]:
        return self._search.load(key)

    def _refuse(self, result: Result) -> None:
        if result.contended:
            raise Unavailable("Too many changes of this job at the same time: try again.")
        if result.decision is None or result.decision.head.blank:
            raise NotFound("There is no such job.")
        if result.verdict is Verdict.FULL:
            raise LimitExceeded(
                f"The job's line holds {LINE_MOST} runs at most: order again when some have ended."
            )
        if result.verdict is Verdict.CONFLICT:
            raise conflict(result.decision.head)


def conflict(head: JobState) -> Conflict:
    return Conflict(f"The job is {head.state}: this cannot be done to it any more.")
