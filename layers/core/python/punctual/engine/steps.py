"""The four steps of every change: timer, head, effects, and last what brought it.

A crash after any step leaves what brought the change, and the next look ends the same. A lost
swap is a value: read again, decide again.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.decide import Decision, Verdict, decide
from punctual.domain.draft import WRITERS
from punctual.domain.errors import Unavailable
from punctual.domain.events import Claim, Event, Finish, Look, Perform
from punctual.domain.head import Head
from punctual.domain.line import resend_at
from punctual.domain.run import Run, Status
from punctual.domain.timing import SAFETY
from punctual.engine.change import Change, Result
from punctual.engine.effects import Effects
from punctual.engine.placing import Placing, blank_head
from punctual.engine.ports import Clock, Key, Ports, RunKey, Stored, Swap, Timer

TRIES = 12
MANY_ENDED = 8  # a claim or a finish does not ask which history rows stand, up to here


class _Plan(NamedTuple):
    number: int
    change: Change
    stored: Stored | None
    decision: Decision
    timers: tuple[Timer, ...]
    safety: tuple[Timer, ...]


class Steps:
    """Applies changes to heads, a batch at a time."""

    def __init__(
        self,
        ports: Ports,
        clock: Clock,
        monotonic: Callable[[], float],
        log: Callable[..., None],
    ) -> None:
        self._ports = ports
        self._clock = clock
        self._log = log
        self.placing = Placing(ports, clock, monotonic)
        self.effects = Effects(ports)

    def apply(self, changes: Sequence[Change]) -> list[Result]:
        """Decide and write each; several of one job happen one after another."""
        results: list[Result | None] = [None] * len(changes)
        tries = [0] * len(changes)
        pending = list(range(len(changes)))
        while pending:
            first, later = _one_a_job(pending, changes)
            lost = self._round(first, changes, results)
            for index in lost:
                tries[index] += 1
                if tries[index] >= TRIES:
                    results[index] = Result(None, effects_done=False, contended=True)
            pending = [index for index in lost if results[index] is None] + later
        return [result for result in results if result is not None]

    def create(self, new: Sequence[tuple[Change, Head]]) -> list[Result]:
        """Write heads that are not there yet, fired where they are due at once.

        No decision for each that lost its place; its version is then to be read again.
        """
        begun, now = self.placing.begin(), self._clock()
        plans = []
        for number, (change, base) in enumerate(new):
            decision = decide(base, change.event, now, change.writer)
            stored = Stored(base, {})
            plans.append(self._finished(number, change, stored, decision, change.event))
        self.placing.put([timer for plan in plans for timer in (*plan.timers, *plan.safety)], begun)
        won = self._swap(plans)
        results: list[Result | None] = [None] * len(plans)
        self._follow([plan for plan in plans if won[plan.number]], results)
        return [result or Result(None) for result in results]

    def _round(
        self, indexes: Sequence[int], changes: Sequence[Change], results: list[Result | None]
    ) -> list[int]:
        begun = self.placing.begin()
        stored = self._ports.heads.load([changes[index].key for index in indexes])
        recorded = self._recorded([changes[index] for index in indexes], stored)
        plans = []
        for index in indexes:
            change = changes[index]
            plan = self._plan(index, change, stored.get(change.key), recorded)
            if plan is None:
                results[index] = Result(None)
            else:
                plans.append(plan)
        self.placing.put([timer for plan in plans for timer in (*plan.timers, *plan.safety)], begun)
        self.effects.write_attempts([(p.change, p.decision) for p in plans], self._clock())
        won = self._swap(plans)
        winners = [plan for plan in plans if won[plan.number]]
        self._follow(winners, results)
        return [plan.number for plan in plans if not won[plan.number]]

    def _recorded(
        self, changes: Sequence[Change], stored: Mapping[Key, Stored]
    ) -> Mapping[Key, frozenset[str]]:
        """Which ended runs have their history row, asked where they are to leave the head."""
        wanted: dict[RunKey, Run] = {}
        for change in changes:
            found = stored.get(change.key)
            if found is None or not found.head.ended:
                continue
            hurried = isinstance(change.event, Claim | Finish | Perform)
            if not hurried or len(found.head.ended) > MANY_ENDED:
                wanted.update((RunKey(*change.key, run.run_id), run) for run in found.head.ended)
        if not wanted:
            return {}
        by_key: dict[Key, set[str]] = {}
        for tenant, job_id, run_id in self._standing(wanted):
            by_key.setdefault(Key(tenant, job_id), set()).add(run_id)
        return {key: frozenset(ids) for key, ids in by_key.items()}

    def _standing(self, wanted: Mapping[RunKey, Run]) -> list[RunKey]:
        """Those whose row is there; an entry for many may have grown since its row was written."""
        history = self._ports.history
        single = [key for key, run in wanted.items() if run.count == 1]
        many = [key for key, run in wanted.items() if run.count > 1]
        standing = list(history.present(single)) if single else []
        rows = history.get(many, self._clock()) if many else {}
        return standing + [key for key, row in rows.items() if row.run.count == wanted[key].count]

    def _plan(
        self,
        number: int,
        change: Change,
        stored: Stored | None,
        recorded: Mapping[Key, frozenset[str]],
    ) -> _Plan | None:
        now = self._clock()
        reached = max((timer.version for timer in change.brought), default=0)
        if stored is None:
            if not reached:
                return None
            held = blank_head(change.key, reached, change.writer, now)
            return _Plan(number, change, None, Decision(head=held, changed=True), (), ())
        head = stored.head
        event = change.event
        if isinstance(event, Look):
            event = replace(
                event, leases=stored.leases, brought=tuple(timer.at for timer in change.brought)
            )
        elif change.writer and change.writer in head.writers and not isinstance(event, Claim):
            event = Look(leases=stored.leases)  # its own earlier effect: only see to what follows
        elif change.edition not in (None, head.edition):
            decision = Decision(head=head, changed=False, verdict=Verdict.STALE)
            return _Plan(number, change, stored, decision, (), ())
        decision = decide(head, event, now, change.writer, recorded.get(change.key, frozenset()))
        if reached > decision.head.version:
            decision = _reach(decision, reached, change.writer)
        return self._finished(number, change, stored, decision, event)

    def _finished(
        self, number: int, change: Change, stored: Stored, decision: Decision, event: Event
    ) -> _Plan:
        timers = self._timers(change, stored, decision)
        if isinstance(event, Look) or not (decision.changed or isinstance(event, Claim)):
            timers += self._guards(change, stored, decision)
        safety: tuple[Timer, ...] = ()
        if change.safety and (decision.sends or decision.records or decision.kills):
            now = self._clock()
            safety = (self.placing.timer(change.key, now + SAFETY, decision.head.version, now),)
        return _Plan(number, change, stored, decision, timers, safety)

    def _timers(self, change: Change, stored: Stored, decision: Decision) -> tuple[Timer, ...]:
        now = self._clock()
        timers = []
        if decision.timer_at is not None:
            version = decision.head.version
            timers.append(self.placing.timer(change.key, decision.timer_at, version, now))
        if any(timer.at <= now for timer in change.brought):
            timers.extend(self.placing.watches(change, stored, decision.head, now))
        return tuple(timers)

    def _guards(self, change: Change, stored: Stored, decision: Decision) -> tuple[Timer, ...]:
        """Look once more at what stands queued by an earlier swap: its message may not be sent.

        Whoever made that swap may have died before sending, and what brings us now is what that
        left: it goes with this look, and nothing else would ever send the run.
        """
        now = self._clock()
        if change.brought and not _handled(change, stored, decision, (), now):
            return ()
        sent = {run.run_id for run in decision.sends}
        moments = [
            resend_at(run)
            for run in decision.head.runs
            if run.status is Status.QUEUED and run.run_id not in sent
        ]
        if not moments:
            return ()
        return (self.placing.timer(change.key, min(moments), decision.head.version, now),)

    def _swap(self, plans: Sequence[_Plan]) -> dict[int, bool]:
        won = {plan.number: True for plan in plans}
        changed = [plan for plan in plans if plan.decision.changed]
        if changed:
            answers = self._ports.heads.swap([_swap_of(plan) for plan in changed])
            for plan, answer in zip(changed, answers, strict=True):
                won[plan.number] = answer
        return won

    def _follow(self, plans: Sequence[_Plan], results: list[Result | None]) -> None:
        """Steps three and four: the effects, then what brought them."""
        try:
            sent = self.effects.follow([(plan.change, plan.decision) for plan in plans])
        except Unavailable as error:
            self._log("effects_pending", error=error.message, jobs=len(plans))
            sent = [False] * len(plans)
        now = self._clock()
        gone: list[Timer] = []
        put: list[Timer] = []
        for plan, done in zip(plans, sent, strict=True):
            brought = plan.change.brought
            handled = _handled(plan.change, plan.stored, plan.decision, plan.timers, now)
            kept = tuple(timer for timer in brought if timer not in handled)
            results[plan.number] = Result(plan.decision, effects_done=done, kept=kept)
            put.extend(timer for timer in plan.timers if timer not in brought)
            if done:
                gone.extend(plan.safety)
                gone.extend(handled)
        if put:
            self._ports.wake.nudge(put)
        if gone:
            self._ports.timers.delete(gone)


def _handled(
    change: Change,
    stored: Stored | None,
    decision: Decision,
    put: Sequence[Timer],
    now: datetime,
) -> list[Timer]:
    """The timers that brought this and are done with.

    What came ahead of its time is done with only if it carried the head's next look, and that was
    taken. Others, such as those that stand in for an API call's effects, have their time to come.
    """
    carried = None if stored is None else stored.head.timer_at
    return [
        timer
        for timer in change.brought
        if timer not in put
        and timer.at != decision.head.timer_at
        and (timer.at <= now or timer.at == carried or stored is None)
    ]


def _one_a_job(pending: Sequence[int], changes: Sequence[Change]) -> tuple[list[int], list[int]]:
    seen: set[Key] = set()
    first, later = [], []
    for index in pending:
        if changes[index].key in seen:
            later.append(index)
        else:
            seen.add(changes[index].key)
            first.append(index)
    return first, later


def _reach(decision: Decision, version: int, writer: str) -> Decision:
    """Take a version that a slow writer put a timer for: it loses, and decides again."""
    head: Head = decision.head
    writers = head.writers if decision.changed else (*head.writers[1 - WRITERS :], writer)
    return replace(decision, head=replace(head, version=version, writers=writers), changed=True)


def _swap_of(plan: _Plan) -> Swap:
    decision = plan.decision
    expect = 0 if plan.stored is None else plan.stored.head.version
    return Swap(decision.head, expect, decision.leases, decision.required)
