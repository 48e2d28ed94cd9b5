"""Claims runs, renews the claims and records how attempts ended, in batches."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.durations import MAX_FAILED_STARTS
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import new_write_ids
from punctual.domain.job_state import JobState
from punctual.domain.leases import RENEWAL_TIMEOUT, RUN_LEASE
from punctual.domain.run import Progress, Reason, Run, RunStatus
from punctual.domain.task_limits import LATER_STARTING_TASK_TYPES
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change, Result
from punctual.engine.clock import ClockReading
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.job_states import JobStates, LeaseRenewal
from punctual.engine.ports.rows import DefinitionRow, Detail, JobKey
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from punctual.engine.ports.wakeups import WakeUps

# Until a message is tried again after its claim lost every swap.
CONTENDED_CLAIM_RETRY_DELAY = timedelta(seconds=1)


class Assignment(NamedTuple):
    """A claimed run: its work, and the token that its lease holds."""

    key: JobKey
    run: Run
    definition: DefinitionRow
    payload: Any
    timeout_seconds: int


class UnreadableRun(NamedTuple):
    """A claimed run with an unreadable payload."""

    message: Message
    nonce: str
    run: Run
    error: Unavailable


class ClaimResult(NamedTuple):
    """The result of a claim by message: claimed, to be received again, or done.

    The caller claims `payload_unavailable` again under the same nonces, or returns them. Only a
    later version of Punctual can claim `newer_format`.
    """

    claimed: Sequence[Assignment]
    retry_later: Sequence[tuple[Message, datetime]]
    done: Sequence[Message]
    payload_unavailable: Sequence[UnreadableRun] = ()
    newer_format: Sequence[Message] = ()


class FinishedAttempt(NamedTuple):
    key: JobKey
    run_id: str
    token: int
    status: RunStatus
    retryable: bool
    detail: Detail
    runner_id: str | None = None  # None if this executor ran the task itself


class StartedAttempt(NamedTuple):
    """An attempt that an external process has begun."""

    key: JobKey
    run_id: str
    token: int
    runner_id: str


class RenewalResult(NamedTuple):
    """The result of a heartbeat: whether the claim holds, and a cancel request."""

    is_held: bool
    cancel_reason: Reason
    run: Run | None = None
    lease_until: datetime | None = None


class Executor:
    """Claims, renews, returns and finishes runs in the name of one executor."""

    def __init__(
        self,
        *,
        job_states: JobStates,
        blobs: Blobs,
        wakeups: WakeUps,
        applier: ChangeApplier,
        new_id: NewId,
        executor_id: str,
        hands_over_scripts: bool = False,
        function_memory_mb: int | None = None,
    ) -> None:
        """Set up an executor.

        With `hands_over_scripts`, detached runners take long scripts, and those that ask for more
        than `function_memory_mb`.
        """
        self._hands_over_scripts = hands_over_scripts
        self._function_memory_mb = function_memory_mb
        self._job_states = job_states
        self._wakeups = wakeups
        self._applier = applier
        self._new_id = new_id
        self._definitions = Definitions(job_states, blobs)
        self.executor_id = executor_id

    def claim(self, messages: Sequence[Message], nonces: Sequence[str] = ()) -> ClaimResult:
        """Claim the runs that may start. Evaluate the job of every other message.

        If a claim is repeated, an equal nonce shows that the earlier claim is our own. `nonces` has
        one for each message.
        """
        claim_nonces = nonces or new_write_ids(self._new_id, len(messages))
        changes = [
            Change(
                JobKey(message.tenant, message.job_id),
                events.Claim(
                    message.run_id,
                    self.executor_id,
                    nonce,
                    starts_later=message.task_type in LATER_STARTING_TASK_TYPES,
                    hands_over_scripts=self._hands_over_scripts and message.task_type == "script",
                    function_memory_mb=self._function_memory_mb,
                ),
                nonce,
                isolates_failure=True,
            )
            for message, nonce in zip(messages, claim_nonces, strict=True)
        ]
        results = self._applier.apply(changes)
        claims: list[tuple[Message, str, Result]] = []
        refused: list[tuple[Message, Result]] = []
        newer_format: list[Message] = []
        for message, change, result in zip(messages, changes, results, strict=True):
            if result.is_newer_format:
                newer_format.append(message)
            elif result.verdict is Verdict.OK and not result.is_contended:
                claims.append((message, change.write_id, result))
            else:
                refused.append((message, result))
        retry_later, done = self.evaluate_refused(refused)
        claimed, payload_unavailable = self._assign(claims)
        return ClaimResult(claimed, retry_later, done, payload_unavailable, newer_format)

    def _assign(
        self, claims: Sequence[tuple[Message, str, Result]]
    ) -> tuple[list[Assignment], list[UnreadableRun]]:
        """Load the work of claimed runs. One that cannot be read does not stop the others."""
        claimed_runs: list[tuple[JobKey, JobState, Run]] = []
        for message, _, result in claims:
            decision = result.decision
            assert decision is not None
            assert decision.run is not None
            claimed_runs.append(
                (JobKey(message.tenant, message.job_id), decision.state, decision.run)
            )
        definitions = self._load_definitions(claimed_runs)
        assignments: list[Assignment] = []
        unreadable: list[UnreadableRun] = []
        is_overdue = self._applier.clocks.countdown(RENEWAL_TIMEOUT)
        for (message, nonce, _), claimed_run in zip(claims, claimed_runs, strict=True):
            try:
                if unreadable and is_overdue():  # the other claims would expire in the meantime
                    raise Unavailable("The store of payloads does not answer.")
                assignments.append(self._assignment(*claimed_run, definitions))
            except Unavailable as error:
                unreadable.append(UnreadableRun(message, nonce, claimed_run[2], error))
        return assignments, unreadable

    def assign(self, runs: Sequence[tuple[JobKey, JobState, Run]]) -> list[Assignment | None]:
        """Return each run with its work, or None if that is missing or unreadable."""
        definitions = self._load_definitions(runs)
        return [self._assignment_or_none(*claimed_run, definitions) for claimed_run in runs]

    def _assignment_or_none(
        self,
        key: JobKey,
        state: JobState,
        run: Run,
        definitions: Mapping[tuple[JobKey, str], DefinitionRow],
    ) -> Assignment | None:
        try:
            return self._assignment(key, state, run, definitions)
        except Unavailable as error:
            self._applier.log(
                "run_unreadable", **key._asdict(), run_id=run.run_id, error=error.message
            )
            return None

    def _load_definitions(
        self, runs: Sequence[tuple[JobKey, JobState, Run]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return self._job_states.load_definitions(
            [_definition_ref(*claimed_run) for claimed_run in runs]
        )

    def _assignment(
        self,
        key: JobKey,
        state: JobState,
        run: Run,
        definitions: Mapping[tuple[JobKey, str], DefinitionRow],
    ) -> Assignment:
        definition = definitions.get(_definition_ref(key, state, run))
        if definition is None:
            raise Unavailable("A job's definition cannot be read from the store.")
        payload = (
            self._definitions.load_run_payload(key, run.run_id)
            if run.has_own_payload
            else self._definitions.load_payload(definition)
        )
        timeout_seconds = state.rules[run.definition].timeout_seconds
        return Assignment(key, run, definition, payload, timeout_seconds)

    def evaluate_refused(
        self, refused: Sequence[tuple[Message, Result]]
    ) -> tuple[list[tuple[Message, datetime]], list[Message]]:
        """Evaluate the jobs of refused messages. Return the messages to retry, and those done.

        If the run is held, its message is retried when the lease ends. It may be the only thing
        that then finds an expired lease.
        """
        now = self._applier.clocks.read().wall
        retry_later: list[tuple[Message, datetime]] = []
        done: list[Message] = []
        messages: list[Message] = []
        for message, result in refused:
            if result.verdict is Verdict.EARLY and result.decision is not None:
                retry_later.append((message, result.decision.retry_at or message.due_at))
            elif result.is_contended:
                retry_later.append((message, now + CONTENDED_CLAIM_RETRY_DELAY))
            elif result.has_failed:  # an evaluation of the same state would fail as well
                retry_later.append((message, now + RUN_LEASE))
            else:
                messages.append(message)
        if not messages:
            return retry_later, done
        results = self._applier.apply(
            [
                Change(
                    JobKey(message.tenant, message.job_id),
                    events.Evaluate(),
                    self._new_id(),
                    isolates_failure=True,
                )
                for message in messages
            ]
        )
        for message, result in zip(messages, results, strict=True):
            if _is_held(result, message):
                lease = result.leases.get(message.run_id)
                retry_later.append((message, lease.until if lease else now + RUN_LEASE))
            elif not result.effects_done:
                retry_later.append((message, now + RUN_LEASE))
            else:
                done.append(message)
        return retry_later, done

    def finish(
        self, finished: Sequence[FinishedAttempt], isolates_failures: bool = False
    ) -> list[Result]:
        """Record how attempts ended. A holder that lost its claim is FENCED and changes nothing.

        With `isolates_failures`, an unreadable job state fails only its own result.
        """
        return self._applier.apply(
            [
                Change(
                    attempt.key,
                    _finish_event(attempt),
                    write_id,
                    detail=attempt.detail,
                    isolates_failure=isolates_failures,
                )
                for attempt, write_id in zip(
                    finished, new_write_ids(self._new_id, len(finished)), strict=True
                )
            ]
        )

    def return_claim(
        self,
        key: JobKey,
        run_id: str,
        token: int,
        work_begun: bool,
        with_delay: bool = False,
        never_started: bool = False,
    ) -> Result:
        """Return a claimed run to the queue, at once or after a delay (`with_delay`)."""
        event = events.ReturnClaim(run_id, token, work_begun, with_delay, never_started)
        return self._return_claim(key, event)

    def await_resources(self, key: JobKey, run_id: str, token: int) -> Result:
        """Return a claimed run for which there is no room. It waits, with the reason RESOURCES."""
        event = events.ReturnClaim(
            run_id, token, work_begun=False, never_started=True, lacks_resources=True
        )
        return self._return_claim(key, event)

    def release_claim(self, key: JobKey, run_id: str, token: int, runner_id: str) -> Result:
        """Queue a run at once that an external process has not begun. It keeps its attempt."""
        event = events.ReturnClaim(
            run_id, token, work_begun=False, never_started=True, at_once=True, runner_id=runner_id
        )
        return self._return_claim(key, event)

    def return_failed_start(self, key: JobKey, run_id: str, token: int, error: str) -> Result:
        """Return a run that its platform did not start. The last of many ends it, as FAILED."""
        event = events.ReturnClaim(
            run_id, token, work_begun=False, never_started=True, start_failed=True
        )
        detail = Detail(error=f"The run could not be started {MAX_FAILED_STARTS} times: {error}")
        return self._return_claim(key, event, detail)

    def lose_claim(self, key: JobKey, run_id: str, token: int, error: str) -> Result:
        """Give up an attempt that its platform ended. It counts as lost, with this error."""
        return self._return_claim(key, events.ReturnClaim(run_id, token), Detail(error=error))

    def _return_claim(
        self, key: JobKey, event: events.ReturnClaim, detail: Detail | None = None
    ) -> Result:
        change = Change(
            key,
            event,
            self._new_id(),
            detail=detail,
            needs_fallback_timer=True,
            isolates_failure=True,
        )
        return self._applier.apply([change])[0]

    def start(self, started: Sequence[StartedAttempt]) -> list[Result]:
        """Bind claims to the runners that have begun their work. Other runners are FENCED.

        A timer for the end of the lease comes first, because no message covers the run now.
        """
        if not started:
            return []
        reading = self._applier.clocks.read()
        self._put_lease_timers([attempt[:3] for attempt in started], RUN_LEASE, reading)
        return self._applier.apply(
            [
                Change(
                    attempt.key,
                    events.Started(attempt.run_id, attempt.token, attempt.runner_id),
                    write_id,
                    isolates_failure=True,
                )
                for attempt, write_id in zip(
                    started, new_write_ids(self._new_id, len(started)), strict=True
                )
            ]
        )

    def renew(
        self,
        claims: Sequence[tuple[JobKey, str, int]],
        is_first: bool = False,
        lease: timedelta = RUN_LEASE,
        progress: Sequence[Progress | None] = (),
    ) -> list[RenewalResult]:
        """Renew claims. The first heartbeat also puts the timer for the end of the lease.

        A longer `lease` gives an external process the time to start. `progress` has what each
        holder reports.
        """
        reading = self._applier.clocks.read()
        until = reading.wall + lease
        if is_first:
            self._put_lease_timers(claims, lease, reading)
        states = self._job_states.renew_leases(
            [
                LeaseRenewal(key, run_id, token, until, reported)
                for (key, run_id, token), reported in zip_longest(claims, progress)
            ]
        )
        results = []
        for (_, run_id, _), state in zip(claims, states, strict=True):
            runs = () if state is None else state.runs
            run = next((run for run in runs if run.run_id == run_id), None)
            cancel_reason = Reason.NONE if run is None else run.cancel_reason
            results.append(RenewalResult(state is not None, cancel_reason, run, until))
        return results

    def _put_lease_timers(
        self, claims: Sequence[tuple[JobKey, str, int]], lease: timedelta, reading: ClockReading
    ) -> None:
        lease_timers: list[Timer] = [
            self._applier.timer_placement.lease_timer(
                key, token, reading.wall + lease, reading.wall
            )
            for key, _, token in claims
        ]
        self._wakeups.notify_new_timers(self._applier.timer_writer.put(lease_timers, reading))

    def put_resend_timers(self, messages: Sequence[Message], at: datetime) -> None:
        """Put timers that send these queued runs again, so that the messages may be deleted."""
        timer_placement, reading = self._applier.timer_placement, self._applier.clocks.read()
        keys = {JobKey(message.tenant, message.job_id): message.version for message in messages}
        timers = [
            timer_placement.timer(key, at, version, reading.wall) for key, version in keys.items()
        ]
        self._wakeups.notify_new_timers(self._applier.timer_writer.put(timers, reading))

    def dead_letter(self, messages: Sequence[Message]) -> list[Result]:
        """End the runs of messages that were received too often."""
        return self._applier.apply(
            [
                Change(
                    JobKey(message.tenant, message.job_id),
                    events.DeadLetter(message.run_id, message.version),
                    self._new_id(),
                    needs_fallback_timer=True,
                    isolates_failure=True,
                )
                for message in messages
            ]
        )


def _is_held(result: Result, message: Message) -> bool:
    """Return True if the run of the message was held when the evaluation decided.

    The run may have ended since, and its holder may crash before the effects of that end. Then this
    message is their only trigger, so the present state must not decide.
    """
    runs = () if result.decision is None else result.decision.state.runs
    return any(run.run_id == message.run_id and run.is_held for run in runs)


def _definition_ref(key: JobKey, state: JobState, run: Run) -> tuple[JobKey, str]:
    return key, state.rules[run.definition].definition_ref


def _finish_event(attempt: FinishedAttempt) -> events.Finish:
    inline_output = attempt.detail.short_output if attempt.status is RunStatus.SUCCESS else ""
    return events.Finish(
        attempt.run_id,
        attempt.token,
        attempt.status,
        attempt.retryable,
        inline_output,
        attempt.runner_id,
    )
