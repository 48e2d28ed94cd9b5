"""Timer, head, effects, and last what brought it: each sentence of the protocol, by hand."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.durations import CLAIM_LEASE, RUN_LEASE
from punctual.domain.errors import Conflict, NotFound, PreconditionFailed, Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Reason, RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.hand import NOON, Hand, a_finish


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_a_creation_slower_than_its_timer_takes_the_place_that_was_held_for_it() -> None:
    hand = Hand()
    held: list[int] = []

    def look_early() -> None:
        hand.wait(16)
        hand.look()
        ((key, stored),) = hand.memory.heads.rows.items()
        assert stored.state.is_blank, key
        held.append(stored.state.version)

    hand.plan.before("job_states.swap", look_early)
    key = hand.submit()

    assert hand.head(key).version == held[0] + 1
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]
    assert len(hand.memory.queue.entries) == 1


def test_a_blank_head_is_no_job_for_anybody() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    (timer,) = hand.timers()
    del hand.memory.heads.rows[key]
    hand.now = timer.at
    hand.look(timer)

    assert hand.head(key).is_blank
    with pytest.raises(NotFound):
        hand.jobs.pause(*key)
    assert hand.memory.heads.page(key.tenant, None, 10).items == []


def test_a_writer_slower_than_its_timer_loses_its_version_and_decides_again() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = hand.head(key).version

    def look_early() -> None:
        hand.wait(20)
        early = [timer for timer in hand.timers() if timer.version > before]
        assert len(early) == 1
        hand.look(*early)
        assert hand.head(key).version == early[0].version, "the version is taken"
        assert hand.timers() != [], "the timer of the job's time stands"
        assert early[0] not in hand.timers(), "only then it goes"

    hand.plan.before("job_states.swap", look_early)
    view = hand.jobs.run_now(*key)

    assert hand.head(key).version == before + 2
    assert [run.run_id for run in hand.head(key).runs] == [view.run.run_id]
    assert hand.message().run_id == view.run.run_id


def test_an_old_versions_timer_is_a_look_and_goes() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    (timer,) = hand.timers()
    old = timer._replace(at=NOON, version=timer.version - 1, bucket=bucket_of(NOON))
    hand.memory.timers.put([old])
    before = hand.head(key)
    hand.look(old)

    assert hand.head(key) == before
    assert hand.timers() == [timer]


def test_a_put_that_took_over_ten_seconds_is_put_again_where_nobody_has_finished() -> None:
    hand = Hand()
    hand.now = NOON + seconds(50)
    hand.plan.before("timers.put", lambda: hand.wait(26))
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:55Z")

    assert hand.now == NOON + seconds(76)
    buckets = [timer.bucket for timer in hand.timers()]
    assert buckets == [NOON, NOON + seconds(60)], "its minute may have closed by now"
    hand.look(hand.timers()[1])
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]


def test_a_bucket_chosen_long_before_the_put_counts_as_a_slow_put() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    jobs = hand.api()  # which asks for the shards after it has chosen the moment
    hand.plan.before("partitions.shard_count", lambda: hand.wait(90))
    jobs.run_now(*key)

    places = set(hand.memory.timers.rows)
    assert (NOON, 0) in places, "the first choice"
    assert (NOON + seconds(60), 0) in places, "what is put long after it is put again"


def test_a_store_that_stays_slow_is_refused_and_nothing_has_changed() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = hand.head(key)

    def slow() -> None:
        hand.wait(11)
        hand.plan.before("timers.put", slow)

    hand.plan.before("timers.put", slow)
    with pytest.raises(Unavailable):
        hand.jobs.run_now(*key)
    assert hand.head(key) == before


def test_a_swap_whose_answer_was_lost_has_won_also_when_others_have_written_since() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    before = hand.head(key)
    seen: list[Swap] = []
    real = hand.memory.heads.swap

    def remember(swaps: list[Swap]) -> object:
        seen.extend(swaps)
        return real(swaps)

    hand.memory.heads.swap = remember  # type: ignore[assignment,method-assign]
    hand.jobs.run_now(*key)
    hand.jobs.run_now(*key)
    first = seen[0]

    assert first.expected_version == before.version
    assert hand.head(key).version == before.version + 2
    assert list(real([first])) == [True]
    assert list(real([replace(first, state=_by_another(first))])) == [False]


def _by_another(swap: Swap) -> JobState:
    return replace(swap.state, write_ids=(*swap.state.write_ids[:-1], "another"))


def test_a_beat_wins_against_a_look_that_has_read_the_lease_before_it() -> None:
    hand = Hand()
    key = hand.submit()
    held = hand.claim()
    claim = (key, held.run.run_id, held.run.token)
    executor = hand.executor()
    executor.renew([claim], is_first=True)
    hand.now += RUN_LEASE + seconds(1)
    poller = hand.interrupted("poller")
    beats: list[bool] = []
    hand.plan.before("job_states.swap", lambda: beats.append(executor.renew([claim])[0].is_held))
    watch = next(timer for timer in hand.timers() if timer.version == held.run.token)
    hand.now = max(hand.now, watch.at)
    Evaluator(hand.steps(poller), hand.new_id).evaluate_timers([watch])

    assert beats == [True]
    (run,) = hand.head(key).runs
    assert (run.status, run.token, run.past_attempts) == (RunStatus.RUNNING, held.run.token, "")
    assert hand.stored(key).leases[run.run_id].until == hand.now + RUN_LEASE
    again = [t for t in hand.timers() if t.version == held.run.token and t.at > hand.now]
    assert again, "it goes on being watched"


def test_a_lost_holder_is_fenced_and_its_output_is_not_the_runs() -> None:
    hand = Hand()
    key = hand.submit()
    zombie = hand.claim("e1")
    hand.now += CLAIM_LEASE
    handed = hand.executor("e2").claim([hand.message()])
    assert not handed.claimed
    assert len(handed.done) == 1, "its run is announced anew"
    fresh = hand.memory.queue.entries[-1].message
    (taken,) = hand.executor("e2").claim([fresh]).claimed
    assert taken.run.token > zombie.run.token

    (late,) = hand.executor("e1").finish([a_finish(zombie, RunStatus.SUCCESS, "of the zombie")])
    assert late.verdict == "FENCED"
    assert hand.head(key).runs[0].is_held
    (result,) = hand.executor("e2").finish([a_finish(taken, RunStatus.SUCCESS, "of the holder")])
    assert result.verdict == "OK"
    view = hand.jobs._queries.run(*key, taken.run.run_id)
    assert view.detail.output_blob == "of the holder"
    assert [row.lost for row in view.attempts] == [True]


def test_a_redelivery_to_a_live_lease_is_handed_back_until_the_lease_ends() -> None:
    hand = Hand()
    hand.submit()
    held = hand.claim("e1")
    hand.wait(10)
    handed = hand.executor("e2").claim([hand.message()])

    assert not handed.claimed
    assert not handed.done, "it is never acknowledged"
    assert [at for _, at in handed.retry_later] == [NOON + CLAIM_LEASE]
    assert held.run.executor_id == "e1"


def test_what_is_early_is_handed_back_and_not_claimed() -> None:
    hand = Hand()
    hand.poller = hand.new_poller(ahead=60)
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z")
    hand.tick()
    hand.poller.step(hand.now)
    (run,) = hand.head(key).runs
    assert (run.status, run.due_at) == (RunStatus.QUEUED, NOON + seconds(30))

    handed = hand.executor().claim([hand.message()])
    assert [at for _, at in handed.retry_later] == [NOON + seconds(30)]
    hand.now = NOON + seconds(30)
    assert hand.claim().run.attempt_at == NOON + seconds(30)


def test_a_claim_repeated_with_its_nonce_is_granted_again() -> None:
    hand = Hand()
    hand.submit()
    executor = hand.executor()
    first = executor.claim([hand.message()], ["delivery-1"]).claimed
    again = executor.claim([hand.message()], ["delivery-1"]).claimed

    assert [one.run.token for one in again] == [one.run.token for one in first]
    assert not executor.claim([hand.message()], ["delivery-2"]).claimed


def test_nothing_starts_after_an_answered_cancel_though_its_message_is_there() -> None:
    hand = Hand()
    key = hand.submit()
    message = hand.message()
    hand.jobs.cancel(*key)
    handed = hand.executor().claim([message])

    assert not handed.claimed
    assert list(handed.done) == [message]
    assert hand.laws.ended[next(iter(hand.laws.ended))].reason is Reason.CANCELLED
    with pytest.raises(Conflict):
        hand.jobs.run_now(*key)


def test_a_cancel_reaches_the_holder_with_its_next_beat() -> None:
    hand = Hand()
    key = hand.submit()
    held = hand.claim()
    executor = hand.executor()
    hand.jobs.cancel(*key)
    hand.wait(4)
    (alive,) = executor.renew([(key, held.run.run_id, held.run.token)], is_first=True)
    assert (alive.is_held, alive.cancel_reason) == (True, Reason.CANCELLED)


def test_a_tenants_jobs_and_runs_are_not_there_for_another() -> None:
    hand = Hand()
    key = hand.submit()
    other = JobKey("umbrella", key.job_id)
    held = hand.claim()
    calls: list[Callable[[], object]] = [
        lambda: hand.jobs.pause(*other),
        lambda: hand.jobs.cancel(*other),
        lambda: hand.jobs.run_now(*other),
        lambda: hand.jobs.cancel_run(*other, held.run.run_id),
        lambda: hand.jobs.change(*other, lambda old: old),
        lambda: hand.jobs._queries.run(*other, held.run.run_id),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    assert hand.executor("e2").renew([(other, held.run.run_id, held.run.token)])[0].is_held is False
    assert hand.memory.heads.page("umbrella", None, 10).items == []


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_a_command_for_one_version_loses_to_a_change_between_its_read_and_its_swap(
    command: str,
) -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    if command == "resume":
        hand.jobs.pause(*key)
    edition = hand.head(key).edition

    def change() -> None:
        hand.jobs.change(*key, lambda old: {**old, "name": "a new name"})

    hand.plan.before("job_states.swap", change)
    with pytest.raises(PreconditionFailed):
        getattr(hand.jobs, command)(*key, if_match=edition)
    assert hand.head(key).edition == edition + 1
    assert hand.head(key).status is (
        JobStatus.PAUSED if command == "resume" else JobStatus.SCHEDULED
    )
