"""The effects of a swap: attempt rows before it, history rows and messages after it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.decide import Verdict
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.domain.events import Finish, ReturnClaim
from punctual.domain.job_state import JobState, task_type_of
from punctual.domain.run import ATTEMPT_STATUS_BY_LETTER, LOST_LETTER, Run
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.changes.change import Change
from punctual.engine.changes.plan import PlannedChange
from punctual.engine.changes.run_results import LOST_RUN_DETAIL, RunResults, result_in_run
from punctual.engine.execution.notifications import derive_notifications
from punctual.engine.ports.history import History
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Notification, Notifications
from punctual.engine.ports.rows import NO_DETAIL, AttemptRow, Detail, JobKey, RunKey, RunRow
from punctual.engine.ports.run_queue import Message, RunQueue
from punctual.engine.ports.wakeups import WakeUps

# How long a result that was stored before its swap is kept. The history row normally copies it
# within seconds.
ATTEMPT_RESULT_RETENTION = timedelta(days=7)


class Effects:
    """Carries out the effects of decisions.

    With `transactional`, history commits with the state, which then need not keep ended runs.
    """

    def __init__(
        self,
        *,
        history: History,
        run_queue: RunQueue,
        notifications: Notifications,
        wakeups: WakeUps,
        log: Log,
        transactional: bool,
    ) -> None:
        self._history = history
        self._run_queue = run_queue
        self._notifications = notifications
        self._wakeups = wakeups
        self._log = log
        self._transactional = transactional
        self._results = RunResults(history)

    def write_attempts(self, plans: Sequence[PlannedChange], now: datetime) -> None:
        """Write attempt rows before the swap. A crash after the swap then loses no result.

        The token in the key keeps the rows of two claims apart.
        """
        rows, result_rows = [], []
        for plan in plans:
            change, decision = plan.change, plan.decision
            for run, letter in decision.ended_attempts:
                is_lost = letter == LOST_LETTER
                detail = change.detail or NO_DETAIL
                if is_lost and not (change.detail and isinstance(change.event, ReturnClaim)):
                    detail = LOST_RUN_DETAIL
                rows.append(
                    _attempt_row(
                        change.key, run, ATTEMPT_STATUS_BY_LETTER[letter], now, detail, is_lost
                    )
                )
            if self._transactional or change.detail is None:
                continue
            if not _is_restorable(change, change.detail):
                ended_run = _run_ended_by(plan)
                if ended_run is not None:
                    status = ended_run.status.value
                    result_row = _attempt_row(
                        change.key, ended_run, status, now, change.detail, False
                    )
                    result_rows.append(
                        replace(
                            result_row,
                            nonce=ended_run.nonce,
                            expires_at=now + ATTEMPT_RESULT_RETENTION,
                        )
                    )
        if rows:
            self._history.put_attempts(rows)
        if result_rows:
            self._history.put_results(result_rows)

    def run(self, plans: Sequence[PlannedChange]) -> tuple[list[bool], list[bool]]:
        """Carry out the effects of won swaps. Return which are recorded, and which are sent.

        A run without its history row or notification stays in the job state. It delays no message.
        """
        recorded, sent = self._record(plans), [True] * len(plans)
        plan_indexes: list[int] = []
        messages: list[Message] = []
        for index, plan in enumerate(plans):
            decision = plan.decision
            for run in decision.runs_to_send:
                plan_indexes.append(index)
                messages.append(message_of(plan.change.key, run, decision.state))
            if decision.run_ids_to_stop:
                self._wakeups.request_stop(plan.change.key, decision.run_ids_to_stop)
        if messages:
            for plan_index, accepted in zip(
                plan_indexes, self._run_queue.send(messages), strict=True
            ):
                sent[plan_index] = sent[plan_index] and accepted
        return recorded, sent

    def _record(self, plans: Sequence[PlannedChange]) -> list[bool]:
        rows: list[RunRow] = []
        done = self._notify(plans)
        store_error: Unavailable | None = None
        last_ended_at = expires_at = None
        for index, plan in enumerate(plans):
            if not done[index]:
                continue
            try:
                for run in plan.decision.runs_to_record:
                    ended_at = run.ended_at or run.changed_at
                    # Runs of one batch share the time.
                    if expires_at is None or ended_at is not last_ended_at:
                        last_ended_at, expires_at = ended_at, ended_at + HISTORY_RETENTION
                    tenant, job_id = plan.change.key
                    detail = self._detail(plan, run, store_error)
                    stored_state = None if plan.stored is None else plan.stored.state
                    task_type = task_type_of(run, plan.decision.state, stored_state)
                    rows.append(
                        RunRow(tenant, job_id, run, expires_at, TZDATA_VERSION, detail, task_type)
                    )
            except Unavailable as error:
                if self._transactional:
                    raise
                done[index] = False
                store_error = store_error if isinstance(error, LaterVersion) else error
                self._log("row_pending", job_id=plan.change.key.job_id, error=error.message)
        try:
            if rows:
                self._history.put_runs(rows)
        except Unavailable as error:
            if self._transactional:
                raise
            self._log("rows_pending", error=error.message, rows=len(rows))
            done = [not plan.decision.runs_to_record for plan in plans]
        return done

    def _notify(self, plans: Sequence[PlannedChange]) -> list[bool]:
        """Put the notifications. Return False for each change with one that was not accepted.

        The history rows of that change must wait. A recorded run leaves the job state, and its
        notifications can then not be derived again.
        """
        done = [True] * len(plans)
        plan_indexes: list[int] = []
        notifications: list[Notification] = []
        for index, plan in enumerate(plans):
            if plan.decision.runs_to_record and plan.decision.state.notify:
                previous_state = None if plan.stored is None else plan.stored.state
                plan_notifications = list(derive_notifications(plan.decision, previous_state))
                plan_indexes += [index] * len(plan_notifications)
                notifications += plan_notifications
        if notifications:
            for plan_index, accepted in zip(
                plan_indexes, self._put_notifications(notifications), strict=True
            ):
                done[plan_index] = done[plan_index] and accepted
        return done

    def _put_notifications(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        try:
            return self._notifications.put(notifications)
        except Unavailable as error:
            if self._transactional:
                raise
            self._log("notices_pending", error=error.message, notices=len(notifications))
            return [False] * len(notifications)

    def _detail(self, plan: PlannedChange, run: Run, store_error: Unavailable | None) -> Detail:
        """Return the detail of this change, or the result stored before an earlier swap.

        After a `store_error` the store is not asked again for each run. Each call may time out.
        """
        change = plan.change
        if change.detail is not None and _run_ended_by(plan) is run:
            return change.detail
        if store_error is not None and result_in_run(run) is None:
            raise store_error
        now = run.ended_at or run.changed_at
        return self._results.stored_result(RunKey(*change.key, run.run_id), run, now)


def _is_restorable(change: Change, detail: Detail) -> bool:
    """Return True if a later evaluation can restore the detail without a stored row."""
    if not detail.is_plain:
        return False
    has_inline_output = isinstance(change.event, Finish) and change.event.inline_output != ""
    return detail.output is None or has_inline_output


def _run_ended_by(plan: PlannedChange) -> Run | None:
    """Return the run that this change ended by ending its attempt.

    A second report of a run that has ended is answered OK, and its detail is not used.
    """
    run, event = plan.decision.run, plan.change.event
    if run is None or run.ended_at is None or plan.decision.verdict is not Verdict.OK:
        return None
    if not isinstance(event, Finish | ReturnClaim) or run.token != event.token:
        return None
    ended_before = () if plan.stored is None else plan.stored.state.unrecorded
    return None if any(ended.run_id == run.run_id for ended in ended_before) else run


def _attempt_row(
    key: JobKey, run: Run, status: str, now: datetime, detail: Detail, is_lost: bool
) -> AttemptRow:
    return AttemptRow(
        tenant=key.tenant,
        job_id=key.job_id,
        run_id=run.run_id,
        number=run.attempt,
        token=run.token,
        status=status,
        started_at=run.attempt_at or run.changed_at,
        ended_at=now,
        executor_id=run.executor_id,
        lost=is_lost,
        detail=detail,
        expires_at=now + HISTORY_RETENTION,
    )


def message_of(key: JobKey, run: Run, state: JobState) -> Message:
    """Return the message that announces a queued run."""
    rules = state.rules[run.definition]
    return Message(
        tenant=key.tenant,
        job_id=key.job_id,
        run_id=run.run_id,
        due_at=run.due_at,
        priority=rules.priority,
        lane=rules.lane,
        version=state.version,
        task_type=rules.task_type,
    )
