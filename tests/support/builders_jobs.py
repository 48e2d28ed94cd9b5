"""Job states for tests of `decide`, and a story that leads one job through its life."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from punctual.domain.decide import Decision, decide
from punctual.domain.events import (
    Cancel,
    CancelRun,
    Claim,
    Evaluate,
    Event,
    Finish,
    Pause,
    Resume,
    ReturnClaim,
    StartRun,
    Update,
)
from punctual.domain.job_state import (
    JobLimits,
    JobState,
    JobStatus,
    MisfirePolicy,
    Rules,
    ScheduleKind,
)
from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import Lease, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule, next_after

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
JOB_ID = "01900000-0000-7000-8000-000000000001"
_LIMITS = frozenset(JobLimits.__struct_fields__)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def after(n: float) -> datetime:
    return NOON + seconds(n)


def every(n: int, **fields: Any) -> Every:
    return Every(seconds=n, anchor_at=fields.pop("anchor_at", NOON), **fields)


def kind_of(schedule: Schedule) -> ScheduleKind:
    return {Once: ScheduleKind.FUTURE, Every: ScheduleKind.INTERVAL, Cron: ScheduleKind.CRON}[
        type(schedule)
    ]


def a_job(schedule: Schedule | None = None, at: datetime = NOON, **fields: Any) -> JobState:
    """Return a job created at `at`.

    `fields` are those of `JobState`, `JobLimits` or `Rules`, by name.
    """
    schedule = schedule or every(60, anchor_at=at)
    limits = {name: fields.pop(name) for name in list(fields) if name in _LIMITS}
    state_fields = {
        name: fields.pop(name) for name in list(fields) if name in JobState.__struct_fields__
    }
    planned_until = min(at, schedule.at - seconds(1)) if isinstance(schedule, Once) else at
    built: dict[str, Any] = {
        "tenant": "t",
        "job_id": JOB_ID,
        "version": 1,
        "edition": 1,
        "definition": 1,
        "status": JobStatus.SCHEDULED,
        "kind": kind_of(schedule),
        "created_at": at,
        "updated_at": at,
        "schedule": schedule,
        "rules": {1: Rules(definition_ref="1", effective_at=at, **fields)},
        "limits": JobLimits(**limits),
        "planned_until": planned_until,
        "next_at": next_after(schedule, planned_until),
    }
    return JobState(**{**built, **state_fields})


def an_update(state: JobState, schedule: Schedule | None = None, **fields: Any) -> Update:
    """Return an update of a job by fields of `JobLimits` and `Rules`, and optionally a schedule."""
    limits = {name: fields.pop(name) for name in list(fields) if name in _LIMITS}
    return Update(
        kind=kind_of(schedule) if schedule else state.kind,
        rules=msgspec.structs.replace(
            state.current_rules, definition_ref=f"{state.edition + 1}", **fields
        ),
        limits=msgspec.structs.replace(state.limits, **limits),
        schedule=schedule,
    )


def round_trip(state: JobState) -> JobState:
    """Return the state after a round trip through a store."""
    return msgspec.json.decode(msgspec.json.encode(state), type=JobState)


def next_due_at(state: JobState) -> datetime | None:
    """Return the time at which the next occurrence is due: its time and the jitter."""
    return None if state.next_at is None else state.next_at + state.limits.jitter


class Story:
    """One job. All its swaps win, its effects succeed, and only the test moves the clock.

    `timers` holds the stored timers, `ledger` the history by run id, `sent` the messages, and
    `leases` the leases beside the job state.
    """

    def __init__(self, state: JobState, now: datetime = NOON) -> None:
        self.state = state
        self.now = now
        self.timers: set[datetime] = set()
        due_at = next_due_at(state)
        if due_at is not None and state.timer_at is None:
            self.state = msgspec.structs.replace(state, timer_at=due_at)
        if self.state.timer_at is not None:
            self.timers.add(self.state.timer_at)
        self.ledger: dict[str, Run] = {}
        self.leases: dict[str, Lease] = {}
        self.sent: list[Run] = []
        self.killed: list[str] = []
        self.attempts: list[tuple[Run, str]] = []
        self.claims = 0
        self.silent = False  # executors send no heartbeats

    def at(self, n: float) -> "Story":
        """Set the clock to `n` seconds after noon."""
        self.now = after(n)
        return self

    def wait(self, n: float) -> "Story":
        self.now += seconds(n)
        return self

    def do(self, event: Event, recorded: bool = True) -> Decision:
        known = frozenset(self.ledger) if recorded else frozenset()
        decision = self.decide(event, known)
        for run_id, lease in decision.required_leases.items():
            assert self.leases.get(run_id) == lease, "the swap would be lost"
        if decision.timer_at is not None:
            self.timers.add(decision.timer_at)
        self.state = round_trip(decision.state)
        for run_id, change in decision.leases.items():
            if change is None:
                self.leases.pop(run_id, None)
            else:
                self.leases[run_id] = change
        self.sent += decision.runs_to_send
        self.killed += decision.run_ids_to_stop
        self.attempts += decision.ended_attempts
        for run in decision.runs_to_record:
            self.ledger[run.run_id] = run
        if isinstance(event, Evaluate):
            self.timers -= {at for at in event.trigger_times if at != self.state.timer_at}
        return decision

    def decide(self, event: Event, known: frozenset[str]) -> Decision:
        return decide(self.state, event, self.now, "w", known)

    def evaluate(
        self, horizon: float | None = None, trigger_times: Sequence[datetime] = ()
    ) -> Decision:
        """Evaluate as a poller does, with early timers `trigger_times` and all due ones."""
        if not self.silent:
            for run in self.held:
                self.renew_lease(run)
        due = tuple(sorted({at for at in self.timers if at <= self.now} | set(trigger_times)))
        until = None if horizon is None else self.now + seconds(horizon)
        return self.do(
            Evaluate(leases=dict(self.leases), trigger_times=due, fire_ahead_until=until)
        )

    def evaluate_recorded(self, recorded: bool) -> Decision:
        due = tuple(sorted(at for at in self.timers if at <= self.now))
        return self.do(Evaluate(leases=dict(self.leases), trigger_times=due), recorded)

    def drain_evaluations(self) -> "Story":
        """Evaluate as long as a timer is due at this time."""
        for _ in range(1000):
            if not any(at <= self.now for at in self.timers):
                return self
            self.evaluate()
        raise AssertionError("the job does not come to rest")

    def claim(self, run: Run | str | None = None, executor_id: str = "e1") -> Run:
        """Claim a run, by default the first queued one."""
        run = self.queued[0] if run is None else run
        run_id = run if isinstance(run, str) else run.run_id
        self.claims += 1
        decision = self.do(Claim(run_id=run_id, executor_id=executor_id, nonce=str(self.claims)))
        assert decision.verdict == "OK", decision.verdict
        assert decision.run is not None
        return decision.run

    def finish(
        self, run: Run, status: RunStatus = RunStatus.SUCCESS, retryable: bool = True
    ) -> Decision:
        return self.do(Finish(run.run_id, run.token, status, retryable))

    def fail(self, run: Run) -> Decision:
        return self.finish(run, RunStatus.FAILED)

    def return_claim(
        self, run: Run, begun: bool = True, waits: bool = False, unstarted: bool = False
    ) -> Decision:
        return self.do(ReturnClaim(run.run_id, run.token, begun, waits, unstarted))

    def renew_lease(self, run: Run) -> None:
        self.leases[run.run_id] = Lease(
            token=run.token, until=self.now + RUN_LEASE, is_renewed=True
        )

    def pause(self, until: float | None = None, note: str = "") -> Decision:
        """Pause the job, up to `until` seconds after noon."""
        return self.do(Pause(None if until is None else after(until), note))

    def resume(self, missed: MisfirePolicy | None = None) -> Decision:
        return self.do(Resume(missed))

    def cancel(self) -> Decision:
        return self.do(Cancel())

    def cancel_run(self, run: Run | WaitingRun) -> Decision:
        return self.do(CancelRun(run.run_id))

    def change(self, schedule: Schedule | None = None, **fields: Any) -> Decision:
        return self.do(an_update(self.state, schedule, **fields))

    def request_run(self, run_id: str = "now-1", trigger: Trigger = Trigger.RUN_NOW) -> Decision:
        return self.do(StartRun(run_id, trigger))

    def evaluate_at(self, *times: float) -> "Story":
        """Evaluate at each of these seconds after noon."""
        for n in times:
            self.at(n).evaluate()
        return self

    def drain(self, limit: int = 5000) -> "Story":
        """Run everything with success, without moving the clock past a timer."""
        for _ in range(limit):
            if self.held:
                self.finish(self.held[0])
            elif ready := [run for run in self.queued if run.due_at <= self.now]:
                self.claim(ready[0])
            elif any(at <= self.now for at in self.timers):
                self.evaluate()
            else:
                return self
        raise AssertionError("the job does not come to rest")

    def drain_at(self, n: float) -> "Story":
        return self.at(n).drain()

    def status(self) -> str:
        return self.state.status.value

    @property
    def queued(self) -> list[Run]:
        return [run for run in self.state.runs if run.status is RunStatus.QUEUED]

    @property
    def held(self) -> list[Run]:
        return [run for run in self.state.runs if run.is_held]

    @property
    def wait_queue(self) -> tuple[WaitingRun, ...]:
        return self.state.wait_queue

    def outcomes(self) -> list[tuple[int, str, str, int]]:
        """Return the ledger by nominal time as (seconds after noon, status, reason, count)."""
        return sorted(
            (
                int((run.scheduled_at - NOON).total_seconds()),
                run.status.value,
                run.reason.value,
                run.occurrence_count,
            )
            for run in self.ledger.values()
        )
