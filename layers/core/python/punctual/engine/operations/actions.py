"""Acts on the items of an operation: one change for each job, or a new run for each run."""

from collections.abc import Sequence
from hashlib import blake2b
from math import isinf
from typing import Any, NamedTuple

import msgspec

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import (
    Conflict,
    Invalid,
    LimitExceeded,
    NotFound,
    PunctualError,
    Unavailable,
    Unreadable,
    WaitQueueFull,
)
from punctual.domain.events import Event
from punctual.domain.identifiers import derived_id, write_id_of
from punctual.domain.job_state import MisfirePolicy
from punctual.domain.operations.memory import MAX_REMEMBERED_OPERATIONS, MEMORY_HOURS
from punctual.domain.operations.operation import (
    ItemResults,
    Operation,
    OperationAction,
    OperationError,
    OperationItem,
)
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.commands import audit
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.job_names import RECURRING_KINDS, JobNames
from punctual.engine.commands.runs import RetryOrder, RunCommands
from punctual.engine.ports.audit_log import Actor, Note
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.operations import OperationRequest
from punctual.engine.ports.quotas import Quotas
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.engine.queries.slices import finish

_AUDIT_ACTIONS = {
    OperationAction.PAUSE: audit.JOB_PAUSE,
    OperationAction.RESUME: audit.JOB_RESUME,
    OperationAction.CANCEL: audit.JOB_CANCEL,
    OperationAction.RUN_NOW: audit.RUN_ORDER,
    OperationAction.RETRY: audit.RUN_RETRY,
}
_QUEUE_FULL = "The job's wait queue is full."
_MEMORY_FULL = (
    f"{MAX_REMEMBERED_OPERATIONS} operations paused or resumed the job within {MEMORY_HOURS} "
    "hours: wait, or change the job itself."
)
_FULL_OF_ACTION = {OperationAction.PAUSE: _MEMORY_FULL, OperationAction.RESUME: _MEMORY_FULL}
_decode_actor = msgspec.json.Decoder(Actor).decode
# The error of one item. Any other error stops the slice, and the item is tried again.
_ITEM_ERRORS = (Conflict, Invalid, NotFound, Unreadable, WaitQueueFull)


class ActedItems(NamedTuple):
    """The results of the first items. The next item may be tried after `wait_seconds`."""

    results: ItemResults
    wait_seconds: float = 0.0


class OperationActions:
    """Acts on items. A repeated call for the same items changes nothing more.

    The ids of runs and of swaps derive from the operation and the item.
    """

    def __init__(
        self,
        commands: RunCommands,
        applier: ChangeApplier,
        job_states: JobStates,
        definitions: Definitions,
        names: JobNames,
        quotas: Quotas,
    ) -> None:
        self._commands = commands
        self._applier = applier
        self._job_states = job_states
        self._definitions = definitions
        self._names = names
        self._quotas = quotas

    def act(
        self, operation: Operation, request: OperationRequest, items: Sequence[OperationItem]
    ) -> ActedItems:
        actor = _decode_actor(request.actor) if request.actor else None
        if operation.action is OperationAction.RETRY:
            return self._retry(operation, request, items, actor)
        wait_seconds = 0.0
        if operation.action is OperationAction.RUN_NOW:
            grant = self._quotas.take_run_requests(operation.tenant, len(items))
            if not grant.number and isinf(grant.retry_after_seconds):
                return ActedItems(ItemResults(0, tuple(_never_allowed(item) for item in items)))
            items, wait_seconds = items[: grant.number], grant.retry_after_seconds
        return ActedItems(self._change_jobs(operation, request, items, actor), wait_seconds)

    def _change_jobs(
        self,
        operation: Operation,
        request: OperationRequest,
        items: Sequence[OperationItem],
        actor: Actor | None,
    ) -> ItemResults:
        run_ids = [new_run_id(operation, item) for item in items]
        if request.has_payload and operation.action is OperationAction.RUN_NOW:
            self._put_payloads(operation.tenant, items, run_ids, request.payload)
        changes = [
            Change(
                JobKey(operation.tenant, item.job_id),
                _event(operation, run_id, request.has_payload),
                _write_id(operation, item),
                needs_fallback_timer=True,
                isolates_failure=True,
                note=_note(operation, run_id, actor, request.has_payload),
            )
            for item, run_id in zip(items, run_ids, strict=True)
        ]
        results = self._applier.apply(changes)
        if any(result.may_succeed_later or result.is_contended for result in results):
            raise Unavailable("Not all jobs of the slice could be changed.")
        if operation.action is OperationAction.CANCEL:
            self._give_up_names(results)
        errors = [
            _result_error(operation.action, item, result)
            for item, result in zip(items, results, strict=True)
        ]
        found_errors = tuple(error for error in errors if error is not None)
        return ItemResults(len(items) - len(found_errors), found_errors)

    def _give_up_names(self, results: Sequence[Result]) -> None:
        """Free the names of the recurring jobs that these changes have cancelled."""
        states = {
            (JobKey(state.tenant, state.job_id), state.current_rules.definition_ref): state
            for result in results
            if result.decision is not None
            for state in [result.decision.state]
            if state.kind in RECURRING_KINDS and not state.is_blank
        }
        rows = self._job_states.load_definitions(list(states)) if states else {}
        self._names.give_up_cancelled([(states[ref], row) for ref, row in rows.items()])

    def _put_payloads(
        self, tenant: str, items: Sequence[OperationItem], run_ids: Sequence[str], payload: Any
    ) -> None:
        """Store the payload for the runs of jobs that exist. No cleanup would remove another."""
        keys = [JobKey(tenant, item.job_id) for item in items]
        stored_states = self._job_states.load(keys)
        for key, run_id in zip(keys, run_ids, strict=True):
            if key in stored_states:
                self._definitions.put_run_payload(key, run_id, payload)

    def _retry(
        self,
        operation: Operation,
        request: OperationRequest,
        items: Sequence[OperationItem],
        actor: Actor | None,
    ) -> ActedItems:
        done = 0
        errors: list[OperationError] = []
        for item in items:
            try:
                order = RetryOrder(
                    new_run_id(operation, item),
                    request.payload if request.has_payload else msgspec.UNSET,
                    operation.created_at,
                    actor,
                    may_be_repeated=True,
                    audit_fields={"operation_id": operation.operation_id},
                )
                run_key = RunKey(operation.tenant, item.job_id, item.run_id)
                finish(self._commands.retry_as(run_key, order))
                done += 1
            except _ITEM_ERRORS as error:
                errors.append(_item_error(item, error))
            except LimitExceeded as error:
                return ActedItems(ItemResults(done, tuple(errors)), error.retry_after_seconds)
        return ActedItems(ItemResults(done, tuple(errors)))


def new_run_id(operation: Operation, item: OperationItem) -> str:
    """Return the id of the run that the operation starts for an item. It is always the same."""
    return derived_id(operation.created_at, item.job_id, operation.operation_id, item.run_id)


def _write_id(operation: Operation, item: OperationItem) -> str:
    text = f"{operation.operation_id}\0{item.job_id}"
    return write_id_of(blake2b(text.encode(), digest_size=16).hexdigest())


def _event(operation: Operation, run_id: str, has_payload: bool) -> Event:
    match operation.action:
        case OperationAction.PAUSE:
            return events.Pause(
                operation.until, operation.note, operation.operation_id, operation.created_by
            )
        case OperationAction.RESUME:
            misfire = MisfirePolicy(operation.missed) if operation.missed else None
            return events.Resume(misfire, operation.operation_id)
        case OperationAction.CANCEL:
            return events.Cancel()
        case _:
            return events.StartRun(run_id, has_own_payload=has_payload, has_idempotency_key=True)


def _note(operation: Operation, run_id: str, actor: Actor | None, has_payload: bool) -> Note | None:
    if actor is None:
        return None
    after: dict[str, Any] = {"operation_id": operation.operation_id}
    if operation.action is OperationAction.PAUSE:
        after |= audit.pause_fields(operation.until, operation.note)
    elif operation.missed:
        after["missed"] = operation.missed
    elif operation.action is OperationAction.RUN_NOW:
        after["payload_given"] = has_payload
    is_run = operation.action is OperationAction.RUN_NOW
    action = _AUDIT_ACTIONS[operation.action]
    return Note(actor, action, operation.created_at, run_id if is_run else "", after=after)


def _result_error(
    action: OperationAction, item: OperationItem, result: Result
) -> OperationError | None:
    """Return the error of a change, or None if it happened."""
    if result.has_failed:
        return _error(item, "UNAVAILABLE", "The job cannot be read from the store.")
    if result.decision is None or result.decision.state.is_blank:
        return _error(item, NotFound.code, "There is no such job.")
    if result.verdict is Verdict.FULL:
        return _error(item, LimitExceeded.code, _FULL_OF_ACTION.get(action, _QUEUE_FULL))
    if result.verdict is Verdict.CONFLICT:
        status = result.decision.state.status
        return _error(item, Conflict.code, f"The job is {status}: this is no longer possible.")
    return None


def _never_allowed(item: OperationItem) -> OperationError:
    return _error(item, LimitExceeded.code, "The tenant's limit allows no run.")


def _item_error(item: OperationItem, error: PunctualError) -> OperationError:
    return _error(item, error.code, error.message)


def _error(item: OperationItem, code: str, message: str) -> OperationError:
    return OperationError(item.job_id, code, message, item.run_id)
