"""Runs that are made ready before their time: decided in memory, written once, with their end.

A run whose work is part of the very write that ends it need not stand QUEUED in the store first.
Until it is done, nothing of it is written, and the timers that brought it stand: a crash, or
another's swap of the head, and the next look decides anew.
"""

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.decide import Decision
from punctual.domain.events import Evaluate
from punctual.domain.run import Run
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.plan import PlannedChange
from punctual.engine.ports.job_states import StoredState


class Held(NamedTuple):
    """A run that was fired in memory, on the head as it was read."""

    change: Change
    stored: StoredState
    decision: Decision
    run: Run


class Ending(NamedTuple):
    """The change that will end it, worked out before its time."""

    held: Held
    change: Change


class Inline(Protocol):
    """Who does such runs, when they are due."""

    def hold(self, held: Sequence[Held]) -> Sequence[bool]:
        """True for each that it will bring to its end or have looked at again."""


def hold(
    plans: Sequence[PlannedChange], inline: Inline, results: MutableSequence[Result | None]
) -> Sequence[PlannedChange]:
    """Give away what may be held; what is left is to be written now."""
    offered: list[tuple[PlannedChange, Held]] = []
    left: list[PlannedChange] = []
    for plan in plans:
        held = _holdable(plan)
        if held is None:
            left.append(plan)
        else:
            offered.append((plan, held))
    answers = inline.hold([held for _, held in offered]) if offered else ()
    for (plan, _), taken in zip(offered, answers, strict=True):
        if taken:
            results[plan.number] = Result(plan.decision, held=True)
        else:
            left.append(plan)
    return left


def _holdable(plan: PlannedChange) -> Held | None:
    """A look that fires one run and asks for nothing else but its next timer."""
    decision, stored, change = plan.decision, plan.stored, plan.change
    if stored is None or not change.brought or not isinstance(change.event, Evaluate):
        return None
    if len(decision.sends) != 1 or decision.head.version != stored.head.version + 1:
        return None
    if decision.records or decision.attempts or decision.kills or decision.leases:
        return None
    if len(plan.timers) > (decision.timer_at is not None):
        return None
    return Held(change, stored, decision, decision.sends[0])
