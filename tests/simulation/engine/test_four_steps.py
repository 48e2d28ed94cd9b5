"""The four steps of a change, in order: timer, state, effects, removal of the trigger."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.errors import Conflict, NotFound, PreconditionFailed, Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.leases import CLAIM_LEASE, RUN_LEASE
from punctual.domain.run import Reason, RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.manual_engine import NOON, ManualEngine, a_finish


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_creation_slower_than_its_timer_replaces_the_blank_state() -> None:
    engine = ManualEngine()
    blank_versions: list[int] = []

    def evaluate_early() -> None:
        engine.wait(16)
        engine.evaluate()
        ((key, stored),) = engine.memory.job_states.rows.items()
        assert stored.state.is_blank, key
        blank_versions.append(stored.state.version)

    engine.plan.before("job_states.swap", evaluate_early)
    key = engine.submit()

    assert engine.state(key).version == blank_versions[0] + 1
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]
    assert len(engine.memory.run_queue.entries) == 1


def test_blank_state_is_not_a_job() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    (timer,) = engine.timers()
    del engine.memory.job_states.rows[key]
    engine.now = timer.at
    engine.evaluate(timer)

    assert engine.state(key).is_blank
    with pytest.raises(NotFound):
        engine.jobs.pause(*key)
    assert engine.memory.job_states.page(key.tenant, None, 10).items == []


def test_write_slower_than_its_timer_loses_its_version_and_is_repeated() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = engine.state(key).version

    def evaluate_early() -> None:
        engine.wait(20)
        early = [timer for timer in engine.timers() if timer.version > before]
        assert len(early) == 1
        engine.evaluate(*early)
        assert engine.state(key).version == early[0].version, "the evaluation takes the version"
        assert engine.timers() != [], "the timer of the due time stays"
        assert early[0] not in engine.timers(), "the early timer is removed"

    engine.plan.before("job_states.swap", evaluate_early)
    view = engine.jobs.run_now(*key)

    assert engine.state(key).version == before + 2
    assert [run.run_id for run in engine.state(key).runs] == [view.run.run_id]
    assert engine.message().run_id == view.run.run_id


def test_timer_of_an_old_version_is_evaluated_and_removed() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    (timer,) = engine.timers()
    old = timer._replace(at=NOON, version=timer.version - 1, bucket=bucket_of(NOON))
    engine.memory.timers.put([old])
    before = engine.state(key)
    engine.evaluate(old)

    assert engine.state(key) == before
    assert engine.timers() == [timer]


def test_slow_timer_put_is_repeated_in_an_open_bucket() -> None:
    engine = ManualEngine()
    engine.now = NOON + seconds(50)
    engine.plan.before("timers.put", lambda: engine.wait(26))
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:55Z")

    assert engine.now == NOON + seconds(76)
    buckets = [timer.bucket for timer in engine.timers()]
    assert buckets == [NOON, NOON + seconds(60)], "its bucket may be closed by now"
    engine.evaluate(engine.timers()[1])
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]


def test_bucket_chosen_long_before_the_put_counts_as_a_slow_put() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    jobs = engine.api()  # it reads the shard count after it chose the time
    engine.plan.before("partitions.shard_count", lambda: engine.wait(90))
    jobs.run_now(*key)

    partitions = set(engine.memory.timers.rows)
    assert (NOON, 0) in partitions, "the bucket chosen first"
    assert (NOON + seconds(60), 0) in partitions, "the timer is put again in an open bucket"


def test_store_that_stays_slow_fails_the_call_without_a_change() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = engine.state(key)

    def slow() -> None:
        engine.wait(11)
        engine.plan.before("timers.put", slow)

    engine.plan.before("timers.put", slow)
    with pytest.raises(Unavailable):
        engine.jobs.run_now(*key)
    assert engine.state(key) == before


def test_swap_with_a_lost_answer_wins_after_later_swaps_too() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    before = engine.state(key)
    swaps_made: list[Swap] = []
    real = engine.memory.job_states.swap

    def remember(swaps: list[Swap]) -> object:
        swaps_made.extend(swaps)
        return real(swaps)

    engine.memory.job_states.swap = remember  # type: ignore[assignment,method-assign]
    engine.jobs.run_now(*key)
    engine.jobs.run_now(*key)
    first = swaps_made[0]

    assert first.expected_version == before.version
    assert engine.state(key).version == before.version + 2
    assert list(real([first])) == [True]
    assert list(real([replace(first, state=_with_another_write_id(first))])) == [False]


def _with_another_write_id(swap: Swap) -> JobState:
    return replace(swap.state, write_ids=(*swap.state.write_ids[:-1], "another"))


def test_heartbeat_wins_against_an_evaluation_that_read_before_it() -> None:
    engine = ManualEngine()
    key = engine.submit()
    claimed = engine.claim()
    claim = (key, claimed.run.run_id, claimed.run.token)
    executor = engine.executor()
    executor.renew([claim], is_first=True)
    engine.now += RUN_LEASE + seconds(1)
    poller = engine.interrupted("poller")
    renewals: list[bool] = []
    engine.plan.before(
        "job_states.swap", lambda: renewals.append(executor.renew([claim])[0].is_held)
    )
    lease_timer = next(timer for timer in engine.timers() if timer.version == claimed.run.token)
    engine.now = max(engine.now, lease_timer.at)
    Evaluator(engine.applier(poller), engine.new_id).evaluate_timers([lease_timer])

    assert renewals == [True]
    (run,) = engine.state(key).runs
    assert (run.status, run.token, run.past_attempts) == (RunStatus.RUNNING, claimed.run.token, "")
    assert engine.stored(key).leases[run.run_id].until == engine.now + RUN_LEASE
    lease_timers = [
        t for t in engine.timers() if t.version == claimed.run.token and t.at > engine.now
    ]
    assert lease_timers, "the lease keeps a timer"


def test_executor_with_lost_lease_cannot_finish_run() -> None:
    engine = ManualEngine()
    key = engine.submit()
    lost_claim = engine.claim("e1")
    engine.now += CLAIM_LEASE
    claim_result = engine.executor("e2").claim([engine.message()])
    assert not claim_result.claimed
    assert len(claim_result.done) == 1, "its run is sent again"
    new_message = engine.memory.run_queue.entries[-1].message
    (new_claim,) = engine.executor("e2").claim([new_message]).claimed
    assert new_claim.run.token > lost_claim.run.token

    (late_result,) = engine.executor("e1").finish(
        [a_finish(lost_claim, RunStatus.SUCCESS, "of the lost executor")]
    )
    assert late_result.verdict == "FENCED"
    assert engine.state(key).runs[0].is_held
    (result,) = engine.executor("e2").finish(
        [a_finish(new_claim, RunStatus.SUCCESS, "of the holder")]
    )
    assert result.verdict == "OK"
    view = engine.jobs._queries.run(*key, new_claim.run.run_id)
    assert view.detail.output_blob == "of the holder"
    assert [row.lost for row in view.attempts] == [True]


def test_message_of_a_claimed_run_is_retried_when_the_lease_ends() -> None:
    engine = ManualEngine()
    engine.submit()
    claimed = engine.claim("e1")
    engine.wait(10)
    claim_result = engine.executor("e2").claim([engine.message()])

    assert not claim_result.claimed
    assert not claim_result.done, "it is never acknowledged"
    assert [at for _, at in claim_result.retry_later] == [NOON + CLAIM_LEASE]
    assert claimed.run.executor_id == "e1"


def test_early_message_is_retried_at_the_due_time() -> None:
    engine = ManualEngine()
    engine.poller = engine.new_poller(ahead=60)
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z")
    engine.tick()
    engine.poller.step(engine.now)
    (run,) = engine.state(key).runs
    assert (run.status, run.due_at) == (RunStatus.QUEUED, NOON + seconds(30))

    claim_result = engine.executor().claim([engine.message()])
    assert [at for _, at in claim_result.retry_later] == [NOON + seconds(30)]
    engine.now = NOON + seconds(30)
    assert engine.claim().run.attempt_at == NOON + seconds(30)


def test_claim_repeated_with_its_nonce_is_granted_again() -> None:
    engine = ManualEngine()
    engine.submit()
    executor = engine.executor()
    first = executor.claim([engine.message()], ["delivery-1"]).claimed
    repeated = executor.claim([engine.message()], ["delivery-1"]).claimed

    assert [assignment.run.token for assignment in repeated] == [
        assignment.run.token for assignment in first
    ]
    assert not executor.claim([engine.message()], ["delivery-2"]).claimed


def test_cancelled_job_starts_no_run() -> None:
    engine = ManualEngine()
    key = engine.submit()
    message = engine.message()
    engine.jobs.cancel(*key)
    claim_result = engine.executor().claim([message])

    assert not claim_result.claimed
    assert list(claim_result.done) == [message]
    assert engine.invariants.ended[next(iter(engine.invariants.ended))].reason is Reason.CANCELLED
    with pytest.raises(Conflict):
        engine.jobs.run_now(*key)


def test_heartbeat_returns_the_cancel_request() -> None:
    engine = ManualEngine()
    key = engine.submit()
    claimed = engine.claim()
    executor = engine.executor()
    engine.jobs.cancel(*key)
    engine.wait(4)
    (alive,) = executor.renew([(key, claimed.run.run_id, claimed.run.token)], is_first=True)
    assert (alive.is_held, alive.cancel_reason) == (True, Reason.CANCELLED)


def test_jobs_and_runs_of_another_tenant_are_not_found() -> None:
    engine = ManualEngine()
    key = engine.submit()
    other = JobKey("umbrella", key.job_id)
    claimed = engine.claim()
    calls: list[Callable[[], object]] = [
        lambda: engine.jobs.pause(*other),
        lambda: engine.jobs.cancel(*other),
        lambda: engine.jobs.run_now(*other),
        lambda: engine.jobs.cancel_run(*other, claimed.run.run_id),
        lambda: engine.jobs.change(*other, lambda old: old),
        lambda: engine.jobs._queries.run(*other, claimed.run.run_id),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    assert (
        engine.executor("e2").renew([(other, claimed.run.run_id, claimed.run.token)])[0].is_held
        is False
    )
    assert engine.memory.job_states.page("umbrella", None, 10).items == []


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_command_with_if_match_fails_after_a_concurrent_change(
    command: str,
) -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    if command == "resume":
        engine.jobs.pause(*key)
    edition = engine.state(key).edition

    def change() -> None:
        engine.jobs.change(*key, lambda old: {**old, "name": "a new name"})

    engine.plan.before("job_states.swap", change)
    with pytest.raises(PreconditionFailed):
        getattr(engine.jobs, command)(*key, if_match=edition)
    assert engine.state(key).edition == edition + 1
    assert engine.state(key).status is (
        JobStatus.PAUSED if command == "resume" else JobStatus.SCHEDULED
    )
