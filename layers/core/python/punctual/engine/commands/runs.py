"""Commands on runs (start, retry, cancel, backfill) and the parts that all commands share."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import Conflict, NotFound, Unavailable, WaitQueueFull
from punctual.domain.events import Event
from punctual.domain.identifiers import derived_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Run, Trigger
from punctual.domain.timestamps import format_time
from punctual.domain.transitions.wait_queue import MAX_WAITING_RUNS
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
from punctual.engine.ports.rows import DefinitionRow, JobKey, RunKey
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView
from punctual.engine.quotas.limits import check_backfill_quota, check_run_quota


class RetryOrder(NamedTuple):
    """A retry under a given id. Without a payload the new run takes that of the former run."""

    run_id: str
    payload: Any
    asked_at: datetime
    actor: Actor | None
    may_be_repeated: bool
    audit_fields: Mapping[str, Any] = {}


class RunCommands:
    """Carries out commands on runs."""

    def __init__(
        self,
        *,
        applier: ChangeApplier,
        queries: JobQueries,
        definitions: Definitions,
        idempotency_keys: IdempotencyKeys,
        backfiller: Backfiller,
        clock: Clock,
        new_id: NewId,
        quotas: Quotas,
    ) -> None:
        self._applier = applier
        self._queries = queries
        self._clock = clock
        self._new_id = new_id
        self._definitions = definitions
        self._idempotency_keys = idempotency_keys
        self._backfiller = backfiller
        self._quotas = quotas

    def run_now(
        self,
        tenant: str,
        job_id: str,
        payload: Any = UNSET,
        key: str | None = None,
        fingerprint: str = "",
        actor: Actor | None = None,
    ) -> RunView:
        job_key, asked_at = JobKey(tenant, job_id), self._clock()
        new_run_id = self._new_run_id(job_id, asked_at)
        run_id = self._idempotency_keys.resolve_id(tenant, key, fingerprint, new_run_id, asked_at)
        repeated_run = None if run_id == new_run_id else self._find_repeated_run(job_key, run_id)
        if repeated_run is not None:
            return repeated_run
        check_run_quota(self._quotas, tenant)
        if payload is not UNSET:
            self._load(job_key)  # without a job no cleanup would remove the payload
            self._definitions.put_run_payload(job_key, run_id, payload)
        has_payload = payload is not UNSET
        event = events.StartRun(
            run_id, has_own_payload=has_payload, has_idempotency_key=key is not None
        )
        return self._start_run(
            job_key, event, actor, asked_at, audit.RUN_ORDER, {"payload_given": has_payload}
        )

    def retry(
        self,
        tenant: str,
        job_id: str,
        run_id: str,
        payload: Any = UNSET,
        key: str | None = None,
        fingerprint: str = "",
        actor: Actor | None = None,
    ) -> Sliced[RunView]:
        """Start a new run by the present definition, with this payload or that of the former."""
        job_key, asked_at = JobKey(tenant, job_id), self._clock()
        former = self._find_ended_run(job_key, run_id)
        proposed_id = self._new_run_id(job_id, asked_at)
        new_run_id = self._idempotency_keys.resolve_id(
            tenant, key, fingerprint, proposed_id, asked_at
        )
        repeated_run = (
            None if new_run_id == proposed_id else self._find_repeated_run(job_key, new_run_id)
        )
        if repeated_run is not None:
            return repeated_run
        order = RetryOrder(new_run_id, payload, asked_at, actor, may_be_repeated=key is not None)
        return (yield from self._start_retry(job_key, *former, order))

    def retry_as(self, former_key: RunKey, order: RetryOrder) -> Sliced[RunView]:
        """Retry a run under the id of the order. A repeated call starts no second run."""
        job_key = JobKey(former_key.tenant, former_key.job_id)
        former = self._find_ended_run(job_key, former_key.run_id)
        return (yield from self._start_retry(job_key, *former, order))

    def _start_retry(
        self, job_key: JobKey, former_run: Run, definition: DefinitionRow, order: RetryOrder
    ) -> Sliced[RunView]:
        payload = order.payload
        if payload is UNSET:
            payload = yield from self._definitions.payload_of_run(job_key, former_run, definition)
        check_run_quota(self._quotas, job_key.tenant)
        if payload is not UNSET:
            self._definitions.put_run_payload(job_key, order.run_id, payload)
        event = events.StartRun(
            order.run_id,
            trigger=Trigger.RETRY,
            has_own_payload=payload is not UNSET,
            retried_from=former_run.run_id,
            scheduled_at=former_run.scheduled_at,
            has_idempotency_key=order.may_be_repeated,
        )
        after = {
            "retried_from": former_run.run_id,
            "payload_given": order.payload is not UNSET,
            **order.audit_fields,
        }
        return self._start_run(job_key, event, order.actor, order.asked_at, audit.RUN_RETRY, after)

    def _find_ended_run(self, key: JobKey, run_id: str) -> tuple[Run, DefinitionRow]:
        """Return a run that has ended, and the present definition of its job."""
        stored, definition = self._load(key)
        run = self._queries.run_of(stored.state, run_id).run
        if run.ended_at is None:
            raise Conflict("Only a run that has ended can be retried: this one has not.")
        return run, definition

    def _find_repeated_run(self, key: JobKey, run_id: str) -> RunView | None:
        """Return the run of an earlier request with the same key, or None."""
        try:
            return self._queries.run(*key, run_id)
        except NotFound:
            return None

    def _new_run_id(self, job_id: str, now: datetime) -> str:
        return derived_id(now, job_id, self._new_id())

    def _start_run(
        self,
        key: JobKey,
        event: events.StartRun,
        actor: Actor | None,
        asked_at: datetime,
        action: str,
        after: dict[str, Any],
    ) -> RunView:
        write_id, run_id = self._new_id(), event.run_id
        change = self._build_change(key, event, write_id, actor, action, asked_at, run_id, after)
        (result,) = self._applier.apply([change])
        self._raise_refusal(result)
        return self._queries.run(*key, event.run_id)

    def cancel_run(
        self, tenant: str, job_id: str, run_id: str, actor: Actor | None = None
    ) -> RunView:
        event, write_id = events.CancelRun(run_id), self._new_id()
        key, now = JobKey(tenant, job_id), self._clock()
        change = self._build_change(key, event, write_id, actor, audit.RUN_CANCEL, now, run_id)
        (result,) = self._applier.apply([change])
        if result.decision is None or result.is_contended:
            self._raise_refusal(result)
        view = self._queries.run(tenant, job_id, run_id)
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
        actor: Actor | None = None,
    ) -> Sliced[Sequence[datetime]]:
        """Start the runs missing in [start, end). Return their nominal times."""
        key, now = JobKey(tenant, job_id), self._clock()
        stored, definition = self._load(key)
        if stored.state.status is JobStatus.CANCELLED:  # fails even if no run is missing
            raise job_conflict(stored.state)
        missing = yield from self._backfiller.find_missing(
            key, stored.state, definition, start, end, now
        )
        times = [at for _, at in missing]
        if dry_run or not times:
            return times
        check_backfill_quota(self._quotas, tenant, len(times))
        event, write_id = events.Backfill(tuple(missing)), self._new_id()
        after = {"from": format_time(start), "to": format_time(end)}
        change = self._build_change(
            key, event, write_id, actor, audit.JOB_BACKFILL, now, after=after
        )
        (result,) = self._applier.apply([change])
        self._raise_refusal(result)
        return times

    def _build_change(
        self,
        key: JobKey,
        event: Event,
        write_id: str,
        actor: Actor | None,
        action: str,
        at: datetime,
        run_id: str = "",
        after: dict[str, Any] | None = None,
    ) -> Change:
        """Return a change. With `actor`, its audit note is written only if the change happens."""
        note = None
        if actor is not None:
            note = Note(actor, action, at, run_id, after=after)
        return Change(key, event, write_id, needs_fallback_timer=True, note=note)

    def _load(self, key: JobKey) -> tuple[StoredState, DefinitionRow]:
        return self._queries.load(key)

    def _raise_refusal(self, result: Result) -> None:
        if result.is_contended:
            raise Unavailable("Too many changes of this job at the same time: try again.")
        if result.decision is None or result.decision.state.is_blank:
            raise NotFound("There is no such job.")
        if result.verdict is Verdict.FULL:
            raise WaitQueueFull(
                f"The job's wait queue holds at most {MAX_WAITING_RUNS} runs: "
                "try again after some have ended."
            )
        if result.verdict is Verdict.CONFLICT:
            raise job_conflict(result.decision.state)


def job_conflict(state: JobState) -> Conflict:
    return Conflict(f"The job is {state.status}: this is no longer possible.")
