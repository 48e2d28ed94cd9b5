"""Random events in any order, late and repeated. The rules hold after each step."""

from datetime import date, datetime
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from punctual.domain.events import (
    Backfill,
    Cancel,
    CancelRun,
    Claim,
    DeadLetter,
    Evaluate,
    Finish,
    Pause,
    Resume,
    ReturnClaim,
    Started,
    StartRun,
)
from punctual.domain.job_state import JobStatus, MisfirePolicy, OverlapPolicy, Retry
from punctual.domain.run import RunStatus, Trigger
from punctual.domain.schedules.schedule import Cron, Once, Schedule
from tests.support.builders_jobs import NOON, a_job, after, an_update, every, seconds
from tests.support.decide.decide_ledger import World
from tests.support.examples import examples

DELAY_SECONDS = [0, 0.4, 1, 5, 9.5, 10, 15, 30, 61, 120, 3_600]
LONG_OUTAGE_SECONDS = 12_000  # an outage that takes a catch-up several evaluations
EXCLUDED = (date(2026, 3, 3),)


@st.composite
def schedules(draw: st.DrawFn, now: datetime) -> Schedule:
    end = draw(st.sampled_from([None, None, 60, 4_000]))
    fields: dict[str, Any] = {
        "anchor_at": now,
        "end_at": None if end is None else now + seconds(end),
        "exclude": draw(st.sampled_from([(), EXCLUDED])),
    }
    kind = draw(st.sampled_from(["every"] * 3 + ["completion", "once", "cron"]))
    if kind == "once":
        return Once(now + seconds(draw(st.sampled_from([-4, 0, 0.5, 20, 600]))))
    if kind == "cron":
        text = draw(st.sampled_from(["* * * * *", "*/2 * * * * *", "30 12 * * *"]))
        return Cron(text, **fields)
    return every(
        draw(st.sampled_from([5, 10, 60, 1_000])), from_completion=kind == "completion", **fields
    )


LIMITS = st.fixed_dictionaries(
    {
        "max_concurrency": st.integers(1, 3),
        "overlap": st.sampled_from(OverlapPolicy),
        "max_waiting": st.integers(1, 3),
        "misfire": st.sampled_from(MisfirePolicy),
        "misfire_grace_seconds": st.sampled_from([0, 5, 60, 86_400]),
        "max_runs": st.sampled_from([None, None, None, 1, 2, 5]),
        "jitter_ms": st.sampled_from([0, 0, 0, 3_700]),
    }
)
RULES = st.fixed_dictionaries(
    {
        "max_retries": st.sampled_from([0, 1, 3]),
        "deadline_seconds": st.sampled_from([None, None, 1, 30, 3_600]),
        "at_most_once": st.sampled_from([False, False, False, True]),
        "retry": st.sampled_from(
            [
                Retry(),
                Retry(backoff_seconds=0, max_backoff_seconds=0),
                Retry(backoff_seconds=1, multiplier=1000, max_backoff_seconds=86_400),
            ]
        ),
    }
)


class Machine(RuleBasedStateMachine):
    world: World

    @initialize(data=st.data(), limits=LIMITS, rules=RULES)
    def start(self, data: st.DataObject, limits: dict[str, Any], rules: dict[str, Any]) -> None:
        schedule = data.draw(schedules(NOON))
        self.world = World(a_job(schedule, **limits, **_consistent(rules)), NOON)
        self.world.silent = True
        self.claims: list[tuple[str, int]] = []
        self.orders = 0
        self.world.evaluate()  # the creation of a job evaluates it

    @rule(delay_seconds=st.sampled_from(DELAY_SECONDS), step_back=st.booleans())
    def pass_time(self, delay_seconds: float, step_back: bool) -> None:
        """Let time pass. The clock may step back a little, as with the clock of another caller."""
        self.world.wait(
            -min(delay_seconds, 2) if step_back and delay_seconds == 5 else delay_seconds
        )

    @rule()
    def pass_a_long_outage(self) -> None:
        self.world.wait(LONG_OUTAGE_SECONDS)

    @rule(horizon=st.sampled_from([None, None, 0, 15, 60]), recorded=st.booleans())
    def look(self, horizon: float | None, recorded: bool) -> None:
        until = None if horizon is None else self.world.now + seconds(horizon)
        latest = until or self.world.now
        trigger_times = tuple(sorted(at for at in self.world.timers if at <= latest))
        leases = dict(self.world.leases)
        self.world.do(
            Evaluate(leases=leases, trigger_times=trigger_times, fire_ahead_until=until), recorded
        )

    @rule(pick=st.integers(0, 30), nonce=st.integers(0, 2), staged=st.booleans())
    def claim(self, pick: int, nonce: int, staged: bool) -> None:
        """Deliver a message, perhaps an old one, to an executor."""
        if sent := self.world.sent:
            run_id = sent[-1 - pick % min(len(sent), 4)].run_id if pick < 25 else "unknown"
            decision = self.world.do(Claim(run_id, "e", str(nonce), staged))
            if decision.run is not None and decision.run.token:
                self.claims.append((run_id, decision.run.token))

    @precondition(lambda self: self.claims)
    @rule(
        pick=st.integers(0, 5),
        status=st.sampled_from(
            ["SUCCESS", "SUCCESS", "FAILED", "FAILED", "TIMED_OUT", "CANCELLED"]
        ),
        retryable=st.sampled_from([True, True, True, False]),
        recorded=st.booleans(),
    )
    def finish(self, pick: int, status: str, retryable: bool, recorded: bool) -> None:
        run_id, token = self._holder(pick)
        self.world.do(Finish(run_id, token, RunStatus(status), retryable), recorded)

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 5), begun=st.booleans(), waits=st.booleans())
    def release(self, pick: int, begun: bool, waits: bool) -> None:
        self.world.do(ReturnClaim(*self._holder(pick), begun, waits))

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 5))
    def release_at_once(self, pick: int) -> None:
        released = ReturnClaim(*self._holder(pick), never_started=True, at_once=True)
        self.world.do(released)

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 5))
    def fail_start(self, pick: int) -> None:
        failed = ReturnClaim(
            *self._holder(pick), work_begun=False, never_started=True, start_failed=True
        )
        self.world.do(failed)

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 5), runner_id=st.sampled_from(["", "one", "two"]))
    def started(self, pick: int, runner_id: str) -> None:
        self.world.do(Started(*self._holder(pick), runner_id))

    @rule()
    def beat(self) -> None:
        for run in self.world.held:
            self.world.renew_lease(run)

    @rule(pick=st.integers(0, 5))
    def poison(self, pick: int) -> None:
        if sent := self.world.sent:
            self.world.do(DeadLetter(sent[-1 - pick % len(sent)].run_id))

    @rule()
    def pause(self) -> None:
        self._twice(Pause())

    @rule(missed=st.sampled_from([None, *MisfirePolicy]))
    def resume(self, missed: MisfirePolicy | None) -> None:
        self._twice(Resume(missed))

    @precondition(lambda self: len(self.world.trail) > 12)
    @rule()
    def cancel(self) -> None:
        self._twice(Cancel())

    @rule(pick=st.integers(0, 5))
    def cancel_run(self, pick: int) -> None:
        run_ids = [
            *(run.run_id for run in self.world.state.runs),
            *(waiting.run_id for waiting in self.world.wait_queue),
        ]
        if run_ids:
            self.world.do(CancelRun(run_ids[pick % len(run_ids)]))

    @rule(limits=LIMITS, rules=RULES, data=st.data(), reschedule=st.booleans())
    def change(
        self,
        limits: dict[str, Any],
        rules: dict[str, Any],
        data: st.DataObject,
        reschedule: bool,
    ) -> None:
        schedule = data.draw(schedules(self.world.now)) if reschedule else None
        if isinstance(schedule, Once) and self.world.is_time_of_an_earlier_schedule(schedule.at):
            return  # indistinguishable: back to an old schedule within five seconds
        self.world.do(an_update(self.world.state, schedule, **limits, **_consistent(rules)))

    @rule(trigger=st.sampled_from([Trigger.RUN_NOW, Trigger.RETRY]))
    def order(self, trigger: Trigger) -> None:
        self.orders += 1
        self._twice(StartRun(f"p{self.orders}", trigger))

    @rule(count=st.integers(1, 4))
    def backfill(self, count: int) -> None:
        self.orders += 1
        self._twice(
            Backfill(
                tuple((f"b{self.orders}-{number}", after(-60 * number)) for number in range(count))
            )
        )

    @invariant()
    def every_occurrence_is_in_the_ledger(self) -> None:
        self.world.check_ledger()

    @invariant()
    def next_time_has_a_timer(self) -> None:
        at = self.world.state.timer_at
        assert at is None or at in self.world.timers

    @invariant()
    def job_state_is_small(self) -> None:
        assert len(msgspec.json.encode(self.world.state)) < 390_000

    def teardown(self) -> None:
        """Check that the job comes to rest: it has ended, or waits for its time.

        Its executors work without faults.
        """
        if not hasattr(self, "world"):
            return
        world = self.world
        if world.status() == "PAUSED":
            world.resume()
        if len(world.wait_queue) > 50 or world.state.catch_up is not None:
            world.cancel()  # running so many would show nothing more
        self._settle(world)
        world.check_ledger()
        assert not world.wait_queue
        assert not world.state.runs
        if world.state.status is JobStatus.SCHEDULED:
            assert world.state.timer_at is not None
            assert world.state.timer_at > world.now
            assert world.state.timer_at in world.timers

    def _settle(self, world: World) -> None:
        for _ in range(4_000):
            ready = [run for run in world.queued if run.due_at <= world.now]
            waits = [run.next_at for run in world.state.runs if run.next_at is not None]
            waits += [run.due_at for run in world.queued]
            if world.held:
                world.finish(world.held[0])
            elif ready:
                world.do(Claim(ready[0].run_id, "e", "n"))
            elif any(at <= world.now for at in world.timers):
                world.evaluate()
            elif waits:
                world.now = min(waits)
            else:
                return
        raise AssertionError("the job does not come to rest")

    def _twice(self, event: Any) -> None:
        """Check that a repeated command has no second effect."""
        self.world.do(event)
        catching_up = self.world.state.catch_up is not None
        repeated = self.world.do(event, recorded=False)
        assert not isinstance(event, Pause | Resume | Cancel) or not repeated.changed
        assert catching_up or not repeated.runs_to_send

    def _holder(self, pick: int) -> tuple[str, int]:
        return self.claims[-1 - pick % min(len(self.claims), 5)]


def _consistent(rules: dict[str, Any]) -> dict[str, Any]:
    return {**rules, "max_retries": 0} if rules["at_most_once"] else rules


Machine.TestCase.settings = settings(
    max_examples=examples(150),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=(
        Phase.explicit,
        Phase.generate,
    ),  # shrinking takes minutes, and the trail shows the cause
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestDecide = Machine.TestCase
