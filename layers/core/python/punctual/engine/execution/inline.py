"""Runs whose work is part of the very write that ends them: claimed and ended by one swap."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.job_state import JobState
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.plan import load
from punctual.engine.changes.write_ids import marks
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.execution.deferred import Ending, Held
from punctual.engine.execution.executor import Assignment, Executor, Finished
from punctual.engine.ports.bundle import Ports
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import Key
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer

Work = Callable[[Assignment], Finished]
Done = Sequence[tuple[Finished, Run]]
Prepared = tuple[Ending, Finished]


class Performed(NamedTuple):
    """What was done, each with its run as it stands now, and what became of the other messages."""

    done: Done
    again: Sequence[tuple[Message, datetime]]
    settled: Sequence[Message]


class Completed(NamedTuple):
    """What was done of the runs that were held, and what came of the timers that brought them."""

    done: Done
    looked: Sequence[tuple[Sequence[Timer], Result]]


class Performing:
    """`work` says how a run would end and does nothing yet; what of it is to be done, the caller
    does in the same unit, for those that are answered as done."""

    def __init__(
        self, ports: Ports, steps: ChangeApplier, executor: Executor, new_id: NewId
    ) -> None:
        self._ports = ports
        self._steps = steps
        self._executor = executor
        self._looker = Evaluator(steps, new_id)
        self._new_id = new_id

    def prepare(self, held: Sequence[Held], work: Work) -> list[Prepared | None]:
        """How each will end, worked out before its time; None where that cannot be known."""
        assigned = self._executor.assign([(h.change.key, h.decision.head, h.run) for h in held])
        prepared: list[Prepared | None] = []
        for one, assignment, mark in zip(
            held, assigned, marks(self._new_id, len(held)), strict=True
        ):
            if assignment is None:
                prepared.append(None)
                continue
            finished = work(assignment)
            change = self._ending(finished, mark, one.change.brought)
            prepared.append((Ending(one, change), finished))
        return prepared

    def complete(self, prepared: Sequence[Prepared]) -> Completed:
        """End what was held. Where the head is another now, look at it as if nothing had been."""
        results = self._steps.complete([ending for ending, _ in prepared])
        done: list[tuple[Finished, Run]] = []
        looked: list[tuple[Sequence[Timer], Result]] = []
        missed: list[Timer] = []
        for (ending, finished), result in zip(prepared, results, strict=True):
            if result is None or result.decision is None or result.decision.run is None:
                missed.extend(ending.change.brought)
            else:
                done.append((finished, result.decision.run))
                looked.append((ending.change.brought, result))
        if missed:
            looked.extend(self._looker.look(missed))
        return Completed(done, looked)

    def perform(self, messages: Sequence[Message], work: Work) -> Performed:
        """Claim and end what stands queued."""
        keys = [Key(message.tenant, message.job_id) for message in messages]
        stored, _ = load(self._ports.heads, keys)
        planned = [work(one) for one in self._queued(messages, stored)]
        drawn = marks(self._new_id, len(planned))
        changes = [self._ending(one, mark) for one, mark in zip(planned, drawn, strict=True)]
        applied = self._steps.apply(changes)
        results = {one.run_id: result for one, result in zip(planned, applied, strict=True)}
        done: list[tuple[Finished, Run]] = []
        for one in planned:
            decision = results[one.run_id].decision
            if decision is not None and decision.verdict is Verdict.OK and decision.run:
                done.append((one, decision.run))
        ended = {one.run_id for one, _ in done}
        refused = [
            (message, results.get(message.run_id, Result(None)))
            for message in messages
            if message.run_id not in ended
        ]
        return Performed(done, *self._executor.look_at(refused))

    def _ending(self, one: Finished, mark: str, brought: tuple[Timer, ...] = ()) -> Change:
        executor_id = self._executor.executor_id
        event = events.ClaimAndFinish(one.run_id, executor_id, mark, one.status, one.retryable)
        return Change(one.key, event, mark, brought, one.detail)

    def _queued(
        self, messages: Sequence[Message], stored: Mapping[Key, StoredState]
    ) -> list[Assignment]:
        """What the heads still show as queued of these."""
        found: list[tuple[Key, JobState, Run]] = []
        for message in messages:
            key = Key(message.tenant, message.job_id)
            head = stored[key].head if key in stored else None
            for run in head.runs if head is not None else ():
                if head and run.run_id == message.run_id and run.status is RunStatus.QUEUED:
                    found.append((key, head, run))
        return [one for one in self._executor.assign(found) if one is not None]
