"""What a swap asks for outside its head: attempts before it, history and messages after it."""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain import run as past
from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Finish, Perform
from punctual.domain.head import Head
from punctual.domain.run import PAST, Reason, Run
from punctual.domain.timing import RETENTION
from punctual.domain.zones import TZDATA_VERSION
from punctual.engine import packs
from punctual.engine.change import Change
from punctual.engine.plan import Plan
from punctual.engine.ports import (
    AttemptRow,
    Detail,
    Key,
    Message,
    Ports,
    RunKey,
    RunRow,
)
from punctual.engine.records import TEXT

GONE = Detail(error="The executor stopped answering; whether it had finished is not known.")
_NOTHING = Detail()


class Effects:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def write_attempts(self, plans: Sequence[Plan], now: datetime) -> None:
        """Before the swap, under the token: what an attempt left behind must not be lost."""
        rows = []
        for plan in plans:
            change, decision = plan.change, plan.decision
            for run, letter in decision.attempts:
                lost = letter == past.LOST
                detail = GONE if lost else change.detail or _NOTHING
                rows.append(_attempt(change.key, run, PAST[letter], now, detail, lost))
            if change.detail is not None and not _is_kept(change, change.detail):
                run_ended = _ended_by(change, decision)
                if run_ended is not None:
                    status = run_ended.status.value
                    rows.append(_attempt(change.key, run_ended, status, now, change.detail, False))
        if rows:
            self._ports.history.put_attempts(rows)

    def follow(self, plans: Sequence[Plan]) -> list[bool]:
        """After the swap; True for each whose effects are all done."""
        rows: list[RunRow] = []
        at = expires_at = None
        for plan in plans:
            for run in plan.decision.records:
                ended = run.ended_at or run.changed_at
                if expires_at is None or ended is not at:  # those of one batch share it
                    at, expires_at = ended, ended + RETENTION
                tenant, job_id = plan.change.key
                detail = self._detail(plan.change, run, plan.decision)
                rows.append(RunRow(tenant, job_id, run, expires_at, TZDATA_VERSION, detail))
        if rows:
            self._ports.history.put(rows)
        owners: list[int] = []
        messages: list[Message] = []
        for index, plan in enumerate(plans):
            decision = plan.decision
            for run in decision.sends:
                owners.append(index)
                messages.append(message_of(plan.change.key, run, decision.head))
            if decision.kills:
                self._ports.wake.kill(plan.change.key, decision.kills)
        done = [True] * len(plans)
        if messages:
            for owner, taken in zip(owners, self._ports.messages.send(messages), strict=True):
                done[owner] = done[owner] and taken
        return done

    def _detail(self, change: Change, run: Run, decision: Decision) -> Detail:
        """Its own, or what was written before the swap by whoever ended it."""
        if not run.token or not run.claimer:
            return _NOTHING
        if run.reason is Reason.LOST:
            return GONE
        if change.detail is not None and _ended_by(change, decision) is run:
            return change.detail
        now = run.ended_at or run.changed_at
        written = self._ports.history.attempts(RunKey(*change.key, run.run_id), now)
        mine = [row for row in written if row.token == run.token and not row.lost]
        if mine:
            return mine[-1].detail
        if run.note:
            return Detail(output=run.note.encode(), output_type=TEXT)
        return packs.find(self._ports.blobs, change.key, run) or _NOTHING


def _is_kept(change: Change, detail: Detail) -> bool:
    """Whether a look that has to record the run would find all of it without a row of its own."""
    event = change.event
    if detail.packed or not detail.plain:
        return detail.packed
    # What is performed stands or falls with the very write that records it.
    noted = isinstance(event, Finish) and event.note != ""
    return detail.output is None or noted or isinstance(event, Perform)


def _ended_by(change: Change, decision: Decision) -> Run | None:
    """The run that this change ended by ending its attempt."""
    run, event = decision.run, change.event
    if run is None or run.ended_at is None or decision.verdict is not Verdict.OK:
        return None
    if isinstance(event, Finish):
        return run if run.token == event.token else None
    return run if isinstance(event, Perform) else None


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


def message_of(key: Key, run: Run, head: Head) -> Message:
    """How a swap that queued a run announces it."""
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
