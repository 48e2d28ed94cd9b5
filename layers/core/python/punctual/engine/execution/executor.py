"""Claims runs, renews the claims and records how attempts ended, in batches."""

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
from punctual.engine.changes.write_ids import marks
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.job_states import JobStates, LeaseRenewal
from punctual.engine.ports.rows import DefinitionRow, Detail, Key
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from punctual.engine.ports.wakeups import WakeUps

AGAIN = timedelta(seconds=1)  # until a message is tried again after its claim lost every swap


class Assignment(NamedTuple):
    """A claimed run: its work, and the token that its lease holds."""

    key: Key
    run: Run
    body: DefinitionRow
    payload: Any
    timeout_seconds: int


class Unread(NamedTuple):
    """A claimed run with an unreadable payload."""

    message: Message
    nonce: str
    run: Run
    error: Unavailable


class ClaimResult(NamedTuple):
    """The result of a claim by message: claimed, to be received again, or done.

    The caller claims `unread` again under the same nonces, or returns them. Only a later version
    of Punctual can claim those in `later`.
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
    """The result of a heartbeat: whether the claim holds, and a cancel request."""

    held: bool
    cancel: Reason


class Executor:
    def __init__(
        self,
        *,
        heads: JobStates,
        blobs: Blobs,
        wake: WakeUps,
        steps: ChangeApplier,
        new_id: NewId,
        executor_id: str,
    ) -> None:
        self._heads = heads
        self._wake = wake
        self._steps = steps
        self._new_id = new_id
        self._documents = Definitions(heads, blobs)
        self.executor_id = executor_id

    def claim(self, messages: Sequence[Message], nonces: Sequence[str] = ()) -> ClaimResult:
        """Claim the runs that may start. Evaluate the job of every other message.

        `nonces` has one entry a message. A nonce tells a redelivery from the claim of another.
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
        results = self._steps.apply(changes)
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
        """Load the work of claimed runs. One that cannot be read does not stop the others."""
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
                if unread and over():  # the other claims would expire in the meantime
                    raise Unavailable("The store of payloads does not answer.")
                granted.append(self._assignment(*run, bodies))
            except Unavailable as error:
                unread.append(Unread(message, nonce, run[2], error))
        return granted, unread

    def assign(self, runs: Sequence[tuple[Key, JobState, Run]]) -> list[Assignment | None]:
        """Return each run with its work, or None if that is missing or unreadable."""
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
        return self._heads.bodies([_body_of(*run) for run in runs])

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
        return Assignment(key, run, body, payload, timeout)

    def look_at(
        self, refused: Sequence[tuple[Message, Result]]
    ) -> tuple[list[tuple[Message, datetime]], list[Message]]:
        """Evaluate the jobs of refused messages. Return the messages to retry, and those done.

        If the run is held, its message comes back when the lease ends, as perhaps the only trigger.
        """
        now = self._steps.clocks.read().wall
        again: list[tuple[Message, datetime]] = []
        settled: list[Message] = []
        looks: list[Message] = []
        for message, result in refused:
            if result.verdict is Verdict.EARLY and result.decision is not None:
                again.append((message, result.decision.again_at or message.due_at))
            elif result.contended:
                again.append((message, now + AGAIN))
            elif result.failed:  # an evaluation of the same state would fail as well
                again.append((message, now + LEASE))
            else:
                looks.append(message)
        if not looks:
            return again, settled
        seen = self._steps.apply(
            [
                Change(
                    Key(message.tenant, message.job_id),
                    events.Evaluate(),
                    self._new_id(),
                    spared=True,
                )
                for message in looks
            ]
        )
        for message, result in zip(looks, seen, strict=True):
            if _is_held(result, message):
                lease = result.leases.get(message.run_id)
                again.append((message, lease.until if lease else now + LEASE))
            elif not result.effects_done:
                again.append((message, now + LEASE))
            else:
                settled.append(message)
        return again, settled

    def finish(self, finished: Sequence[Finished], spared: bool = False) -> list[Result]:
        """Record how attempts ended. A holder that lost its claim is FENCED and changes nothing.

        `spared`: an unreadable job state fails only its own result.
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
            ]
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
        """Return a claimed run to the queue, at once or after a delay (`waits`)."""
        release = events.ReturnClaim(run_id, token, begun, waits, unstarted)
        change = Change(key, release, self._new_id(), safety=True, spared=True)
        return self._steps.apply([change])[0]

    def beat(
        self, held: Sequence[tuple[Key, str, int]], first: bool = False
    ) -> list[RenewalResult]:
        """Renew claims. The first heartbeat also puts the timer for the end of the lease."""
        begun = self._steps.clocks.read()
        now, until = begun.wall, begun.wall + LEASE
        if first:
            watches: list[Timer] = [
                self._steps.placing.watch(key, token, until, now) for key, _, token in held
            ]
            self._wake.nudge(self._steps.timers.put(watches, begun))
        heads = self._heads.beat(
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
        """Put timers that send these queued runs again, so that the messages may be deleted."""
        placing, begun = self._steps.placing, self._steps.clocks.read()
        keys = {Key(one.tenant, one.job_id): one.version for one in messages}
        timers = [placing.timer(key, at, version, begun.wall) for key, version in keys.items()]
        self._wake.nudge(self._steps.timers.put(timers, begun))

    def poison(self, messages: Sequence[Message]) -> list[Result]:
        """End the runs of messages that were received too often."""
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


def _is_held(look: Result, message: Message) -> bool:
    """Return True if the run of the message was held when the evaluation decided.

    The run may have ended since, and its holder may crash before the effects of that end. Then this
    message is their only trigger, so the present state must not decide.
    """
    runs = () if look.decision is None else look.decision.head.runs
    return any(run.run_id == message.run_id and run.held for run in runs)


def _body_of(key: Key, head: JobState, run: Run) -> tuple[Key, str]:
    return key, head.rules[run.definition].body


def _finish(one: Finished) -> events.Finish:
    note = one.detail.note if one.status is RunStatus.SUCCESS else ""
    return events.Finish(one.run_id, one.token, one.status, one.retryable, note)
