"""The effects of a swap: attempt rows before it, history rows and messages after it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain import run as past
from punctual.domain.decide import Decision, Verdict
from punctual.domain.durations import RETENTION
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.domain.events import Finish
from punctual.domain.job_state import JobState
from punctual.domain.run import PAST, Run
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.changes.change import Change
from punctual.engine.changes.plan import PlannedChange
from punctual.engine.changes.run_results import GONE, Results, told_by
from punctual.engine.execution.notifications import notices_of
from punctual.engine.ports.history import History
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Notification, Notifications
from punctual.engine.ports.rows import AttemptRow, Detail, Key, RunKey, RunRow
from punctual.engine.ports.run_queue import Message, Messages
from punctual.engine.ports.wakeups import WakeUps

ENDS_KEPT = timedelta(days=7)  # for results of ended runs; their run rows follow in seconds
_NOTHING = Detail()


class Effects:
    """Carries out the effects of decisions.

    `together`: history commits with the state, so ended runs need not be kept in it.
    """

    def __init__(
        self,
        *,
        history: History,
        messages: Messages,
        notices: Notifications,
        wake: WakeUps,
        log: Log,
        together: bool,
    ) -> None:
        self._history = history
        self._messages = messages
        self._notices = notices
        self._wake = wake
        self._log = log
        self._together = together
        self._results = Results(history)

    def write_attempts(self, plans: Sequence[PlannedChange], now: datetime) -> None:
        """Write attempt rows under their tokens before the swap, so that no result is lost."""
        rows, ends = [], []
        for plan in plans:
            change, decision = plan.change, plan.decision
            for run, letter in decision.attempts:
                lost = letter == past.LOST
                detail = GONE if lost else change.detail or _NOTHING
                rows.append(_attempt(change.key, run, PAST[letter], now, detail, lost))
            if self._together or change.detail is None:
                continue
            if not _is_kept(change, change.detail):
                run_ended = _ended_by(change, decision)
                if run_ended is not None:
                    status = run_ended.status.value
                    end = _attempt(change.key, run_ended, status, now, change.detail, False)
                    ends.append(replace(end, nonce=run_ended.nonce, expires_at=now + ENDS_KEPT))
        if rows:
            self._history.put_attempts(rows)
        if ends:
            self._history.put_ends(ends)

    def follow(self, plans: Sequence[PlannedChange]) -> tuple[list[bool], list[bool]]:
        """Carry out the effects of won swaps. Return which are recorded, and which are sent.

        A run without its history row or notification stays in the job state. It delays no message.
        """
        recorded, sent = self._record(plans), [True] * len(plans)
        owners: list[int] = []
        messages: list[Message] = []
        for index, plan in enumerate(plans):
            decision = plan.decision
            for run in decision.sends:
                owners.append(index)
                messages.append(message_of(plan.change.key, run, decision.head))
            if decision.kills:
                self._wake.kill(plan.change.key, decision.kills)
        if messages:
            for owner, taken in zip(owners, self._messages.send(messages), strict=True):
                sent[owner] = sent[owner] and taken
        return recorded, sent

    def _record(self, plans: Sequence[PlannedChange]) -> list[bool]:
        rows: list[RunRow] = []
        done = self._notify(plans)
        down: Unavailable | None = None
        at = expires_at = None
        for index, plan in enumerate(plans):
            if not done[index]:
                continue
            try:
                for run in plan.decision.records:
                    ended = run.ended_at or run.changed_at
                    if expires_at is None or ended is not at:  # runs of one batch share the time
                        at, expires_at = ended, ended + RETENTION
                    tenant, job_id = plan.change.key
                    detail = self._detail(plan.change, run, plan.decision, down)
                    rows.append(RunRow(tenant, job_id, run, expires_at, TZDATA_VERSION, detail))
            except Unavailable as error:
                if self._together:
                    raise
                done[index] = False
                down = down if isinstance(error, LaterVersion) else error
                self._log("row_pending", job_id=plan.change.key.job_id, error=error.message)
        try:
            if rows:
                self._history.put(rows)
        except Unavailable as error:
            if self._together:
                raise
            self._log("rows_pending", error=error.message, rows=len(rows))
            done = [not plan.decision.records for plan in plans]
        return done

    def _notify(self, plans: Sequence[PlannedChange]) -> list[bool]:
        """Put the notifications. Return False for each change with one that was not accepted.

        The history rows of that change must wait. A recorded run leaves the job state, and its
        notifications can then not be derived again.
        """
        done = [True] * len(plans)
        owners: list[int] = []
        notices: list[Notification] = []
        for index, plan in enumerate(plans):
            if plan.decision.records and plan.decision.head.notify:
                before = None if plan.stored is None else plan.stored.head
                found = list(notices_of(plan.decision, before))
                owners += [index] * len(found)
                notices += found
        if notices:
            for owner, taken in zip(owners, self._put(notices), strict=True):
                done[owner] = done[owner] and taken
        return done

    def _put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        try:
            return self._notices.put(notices)
        except Unavailable as error:
            if self._together:
                raise
            self._log("notices_pending", error=error.message, notices=len(notices))
            return [False] * len(notices)

    def _detail(
        self, change: Change, run: Run, decision: Decision, down: Unavailable | None
    ) -> Detail:
        """Return the detail of this change, or the result stored before an earlier swap.

        If the store is `down`, it is not asked again for each run. Each call may time out.
        """
        if change.detail is not None and _ended_by(change, decision) is run:
            return change.detail
        if down is not None and told_by(run) is None:
            raise down
        now = run.ended_at or run.changed_at
        return self._results.left_by(RunKey(*change.key, run.run_id), run, now)


def _is_kept(change: Change, detail: Detail) -> bool:
    """Return True if a later evaluation can restore the detail without a stored row."""
    if not detail.plain:
        return False
    noted = isinstance(change.event, Finish) and change.event.note != ""
    return detail.output is None or noted


def _ended_by(change: Change, decision: Decision) -> Run | None:
    """Return the run that this change ended by ending its attempt."""
    run, event = decision.run, change.event
    if run is None or run.ended_at is None or decision.verdict is not Verdict.OK:
        return None
    return run if isinstance(event, Finish) and run.token == event.token else None


def _attempt(
    key: Key, run: Run, status: str, now: datetime, detail: Detail, lost: bool
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
        executor_id=run.claimer,
        lost=lost,
        detail=detail,
        expires_at=now + RETENTION,
    )


def message_of(key: Key, run: Run, head: JobState) -> Message:
    """Return the message that announces a queued run."""
    rules = head.rules[run.definition]
    return Message(
        tenant=key.tenant,
        job_id=key.job_id,
        run_id=run.run_id,
        due_at=run.due_at,
        priority=rules.priority,
        lane=rules.lane,
        version=head.version,
        task_type=rules.task_type,
    )
