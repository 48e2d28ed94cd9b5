"""The holder's side of a run: claim it, keep the claim alive, say how it ended.

It handles batches that it is given and never pulls from a queue itself.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.durations import HOLD, LEASE
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobState
from punctual.domain.run import Reason, Run, RunStatus
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.plan import load, stood
from punctual.engine.changes.write_ids import marks
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.bundle import Ports
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.job_states import LeaseRenewal
from punctual.engine.ports.rows import DefinitionRow, Detail, Key
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer

AGAIN = timedelta(seconds=1)  # a message whose claim met too many others


class Assignment(NamedTuple):
    """A run that is ours until its lease ends: what to do, and under which token."""

    key: Key
    run: Run
    body: DefinitionRow
    payload: Any
    timeout_seconds: int
    head: JobState  # as the claim wrote it


class Unread(NamedTuple):
    """A run that is ours, but nobody could read what it is to do."""

    message: Message
    nonce: str
    run: Run
    error: Unavailable


class ClaimResult(NamedTuple):
    """What became of each message: ours to run, to come again, or done with.

    `unread` are to be claimed once more under their nonces, or given back unbegun. `later` are a
    later version's to run.
    """

    granted: Sequence[Assignment]
    again: Sequence[tuple[Message, datetime]]
    settled: Sequence[Message]
    unread: Sequence[Unread] = ()
    later: Sequence[Message] = ()


class Finished(NamedTuple):
    key: Key
    run_id: str
    token: int
    status: RunStatus
    retryable: bool
    detail: Detail


class RenewalResult(NamedTuple):
    """What a beat found: whether the claim still holds, and whether it should end."""

    held: bool
    cancel: Reason


class Executor:
    def __init__(self, ports: Ports, steps: ChangeApplier, new_id: NewId, executor_id: str) -> None:
        self._ports = ports
        self._steps = steps
        self._new_id = new_id
        self._documents = Definitions(ports)
        self.executor_id = executor_id

    def claim(
        self,
        messages: Sequence[Message],
        nonces: Sequence[str] = (),
        known: Mapping[Key, JobState] | None = None,
    ) -> ClaimResult:
        """Claim what may run. A message whose run may not is a look at its whole job.

        `nonces`, one a message, tell a redelivery to the same holder from another claim.
        `known`: heads as messages told them; only one that has moved on is read.
        """
        drawn = nonces or marks(self._new_id, len(messages))
        changes = [
            Change(
                Key(message.tenant, message.job_id),
                events.Claim(message.run_id, self.executor_id, nonce),
                nonce,
                spared=True,
            )
            for message, nonce in zip(messages, drawn, strict=True)
        ]
        results = self._steps.apply(changes, known=stood(known))
        won: list[tuple[Message, str, Result]] = []
        refused: list[tuple[Message, Result]] = []
        later: list[Message] = []
        for message, change, result in zip(messages, changes, results, strict=True):
            if result.later:
                later.append(message)
            elif result.verdict is Verdict.OK and not result.contended:
                won.append((message, change.writer, result))
            else:
                refused.append((message, result))
        again, settled = self.look_at(refused)
        granted, unread = self._assign(won)
        return ClaimResult(granted, again, settled, unread, later)

    def _assign(
        self, won: Sequence[tuple[Message, str, Result]]
    ) -> tuple[list[Assignment], list[Unread]]:
        """What one run lacks keeps no other of its batch from being run."""
        found: list[tuple[Key, JobState, Run]] = []
        for message, _, result in won:
            decision = result.decision
            assert decision is not None
            assert decision.run is not None
            found.append((Key(message.tenant, message.job_id), decision.head, decision.run))
        bodies = self._bodies(found)
        granted: list[Assignment] = []
        unread: list[Unread] = []
        over = self._steps.clocks.countdown(HOLD)
        for (message, nonce, _), run in zip(won, found, strict=True):
            try:
                if unread and over():  # the others' claims would not outlive it
                    raise Unavailable("The store of payloads does not answer.")
                granted.append(self._assignment(*run, bodies))
            except Unavailable as error:
                unread.append(Unread(message, nonce, run[2], error))
        return granted, unread

    def assign(self, runs: Sequence[tuple[Key, JobState, Run]]) -> list[Assignment | None]:
        """Each run with what it is to do; None where that is missing or cannot be read."""
        bodies = self._bodies(runs)
        return [self._assigned(*run, bodies) for run in runs]

    def _assigned(
        self, key: Key, head: JobState, run: Run, bodies: Mapping[tuple[Key, str], DefinitionRow]
    ) -> Assignment | None:
        try:
            return self._assignment(key, head, run, bodies)
        except Unavailable as error:
            self._steps.tell(
                "run_unreadable", **key._asdict(), run_id=run.run_id, error=error.message
            )
            return None

    def _bodies(
        self, runs: Sequence[tuple[Key, JobState, Run]]
    ) -> Mapping[tuple[Key, str], DefinitionRow]:
        return self._ports.heads.bodies([_body_of(*run) for run in runs])

    def _assignment(
        self, key: Key, head: JobState, run: Run, bodies: Mapping[tuple[Key, str], DefinitionRow]
    ) -> Assignment:
        body = bodies.get(_body_of(key, head, run))
        if body is None:
            raise Unavailable("A job's definition cannot be read from the store.")
        payload = (
            self._documents.own_payload(key, run.run_id)
            if run.own_payload
            else self._documents.payload(body)
        )
        timeout = head.rules[run.definition].timeout_seconds
        return Assignment(key, run, body, payload, timeout, head)

    def look_at(
        self, refused: Sequence[tuple[Message, Result]]
    ) -> tuple[list[tuple[Message, datetime]], list[Message]]:
        """An old message may be the only thing left that points at its job."""
        now = self._steps.clocks.read().wall
        again: list[tuple[Message, datetime]] = []
        settled: list[Message] = []
        looks: list[Message] = []
        for message, result in refused:
            if result.verdict is Verdict.EARLY and result.decision is not None:
                again.append((message, result.decision.again_at or message.due_at))
            elif result.contended:
                again.append((message, now + AGAIN))
            else:
                looks.append(message)
        if not looks:
            return again, settled
        keys = [Key(message.tenant, message.job_id) for message in looks]
        seen = self._steps.apply(
            [Change(key, events.Evaluate(), self._new_id(), spared=True) for key in keys]
        )
        held = [_held(result, message) for message, result in zip(looks, seen, strict=True)]
        wanted = [key for key, run in zip(keys, held, strict=True) if run is not None]
        stored = load(self._ports.heads, list(dict.fromkeys(wanted)))[0] if wanted else {}
        for message, key, result, run in zip(looks, keys, seen, held, strict=True):
            if run is not None:
                found = stored.get(key)
                lease = None if found is None else found.leases.get(run.run_id)
                again.append((message, lease.until if lease else now + LEASE))
            elif not result.effects_done:
                again.append((message, now + LEASE))
            else:
                settled.append(message)
        return again, settled

    def finish(
        self,
        finished: Sequence[Finished],
        spared: bool = False,
        known: Mapping[Key, JobState] | None = None,
    ) -> list[Result]:
        """Write how attempts ended; who lost the claim meanwhile is FENCED and changes nothing.

        `spared`: a head that cannot be read any more fails its own end only.
        `known`: heads as the caller last wrote them; only one that has moved on is read.
        """
        return self._steps.apply(
            [
                Change(
                    one.key,
                    _finish(one),
                    writer,
                    detail=one.detail,
                    spared=spared,
                )
                for one, writer in zip(finished, marks(self._new_id, len(finished)), strict=True)
            ],
            known=stood(known),
        )

    def release(
        self,
        key: Key,
        run_id: str,
        token: int,
        begun: bool,
        waits: bool = False,
        unstarted: bool = False,
    ) -> Result:
        """Give a run back, so that another executor takes it, or none for a while."""
        release = events.ReturnClaim(run_id, token, begun, waits, unstarted)
        change = Change(key, release, self._new_id(), safety=True, spared=True)
        return self._steps.apply([change])[0]

    def beat(
        self, held: Sequence[tuple[Key, str, int]], first: bool = False
    ) -> list[RenewalResult]:
        """Renew claims; a first beat puts the timer that watches the lease from then on."""
        begun = self._steps.clocks.read()
        now, until = begun.wall, begun.wall + LEASE
        if first:
            watches: list[Timer] = [
                self._steps.placing.watch(key, token, until, now) for key, _, token in held
            ]
            self._ports.wake.nudge(self._steps.timers.put(watches, begun))
        heads = self._ports.heads.beat(
            [LeaseRenewal(key, run_id, token, until) for key, run_id, token in held]
        )
        found = []
        for (_, run_id, _), head in zip(held, heads, strict=True):
            runs = () if head is None else head.runs
            run = next((run for run in runs if run.run_id == run_id), None)
            found.append(
                RenewalResult(head is not None, Reason.NONE if run is None else run.cancel)
            )
        return found

    def look_later(self, messages: Sequence[Message], at: datetime) -> None:
        """Their runs stay queued, and a look then sends them anew: the messages may go."""
        placing, begun = self._steps.placing, self._steps.clocks.read()
        keys = {Key(one.tenant, one.job_id): one.version for one in messages}
        timers = [placing.timer(key, at, version, begun.wall) for key, version in keys.items()]
        self._ports.wake.nudge(self._steps.timers.put(timers, begun))

    def poison(self, messages: Sequence[Message]) -> list[Result]:
        """End runs whose message came back too often; the dead-letter queue's consumer."""
        return self._steps.apply(
            [
                Change(
                    Key(message.tenant, message.job_id),
                    events.DeadLetter(message.run_id, message.version),
                    self._new_id(),
                    safety=True,
                    spared=True,
                )
                for message in messages
            ]
        )


def _held(look: Result, message: Message) -> Run | None:
    """The message's run, if it was held when the look decided.

    A head read after the look may show that the run has ended since. Its holder may die before the
    effects of that end, which no look has seen to yet, and this message may be their only trigger.
    """
    runs = () if look.decision is None else look.decision.head.runs
    return next((run for run in runs if run.run_id == message.run_id and run.held), None)


def _body_of(key: Key, head: JobState, run: Run) -> tuple[Key, str]:
    return key, head.rules[run.definition].body


def _finish(one: Finished) -> events.Finish:
    note = one.detail.note if one.status is RunStatus.SUCCESS else ""
    return events.Finish(one.run_id, one.token, one.status, one.retryable, note)
