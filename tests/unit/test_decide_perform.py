"""Claimed and ended in one swap: work that is part of the write that records it."""

from msgspec.structs import replace

from punctual.domain.decide import Verdict, decide, joined
from punctual.domain.durations import LOST_AT_MOST, RETURNED_AT_MOST
from punctual.domain.events import Claim, ClaimAndFinish, Evaluate, Finish, ReturnClaim
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.run import Reason, RunStatus
from punctual.domain.schedules.schedule import Every, Once
from tests.builders_jobs import a_job, after

T = after(60)


def fired() -> JobState:
    head = a_job(Once(T))
    return decide(head, Evaluate(brought=(T,)), T, "w").head


def test_it_ends_as_a_claim_and_a_finish_would() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    at_once = decide(head, ClaimAndFinish(run_id, "me", "n", RunStatus.SUCCESS), T, "x")
    claimed = decide(head, Claim(run_id, "me", "n"), T, "x")
    assert claimed.run is not None
    in_two = decide(claimed.head, Finish(run_id, claimed.run.token, RunStatus.SUCCESS), T, "y")
    assert at_once.verdict is Verdict.OK
    assert at_once.head.ended == in_two.head.ended
    assert at_once.head.state is in_two.head.state is JobStatus.COMPLETED
    assert at_once.leases == {run_id: None}
    assert at_once.head.version == head.version + 1


def test_a_failure_that_may_be_repeated_waits() -> None:
    head = fired()
    decision = decide(
        head, ClaimAndFinish(head.runs[0].run_id, "me", "n", RunStatus.FAILED), T, "x"
    )
    (run,) = decision.head.runs
    assert (run.status, run.reason, run.past) == (RunStatus.WAITING, Reason.BACKOFF, "F")
    assert decision.timer_at == run.next_at


def test_what_may_not_be_claimed_is_not_performed() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    early = decide(head, ClaimAndFinish(run_id, "me", "n", RunStatus.SUCCESS), after(30), "x")
    gone = decide(head, ClaimAndFinish("another", "me", "n", RunStatus.SUCCESS), T, "x")
    held = decide(head, Claim(run_id, "other", "m"), T, "x").head
    taken = decide(held, ClaimAndFinish(run_id, "me", "n", RunStatus.SUCCESS), T, "y")
    assert [d.verdict for d in (early, gone, taken)] == [
        Verdict.EARLY,
        Verdict.GONE,
        Verdict.HELD,
    ]
    assert not any(d.changed for d in (early, gone, taken))


def test_a_run_that_this_very_claimer_holds_is_ended_once() -> None:
    held = decide(fired(), Claim(fired().runs[0].run_id, "me", "n"), T, "x").head
    decision = decide(
        held, ClaimAndFinish(held.runs[0].run_id, "me", "n", RunStatus.SUCCESS), T, "y"
    )
    assert decision.head.runs == ()
    assert len(decision.head.ended) == 1


def test_a_claim_that_is_always_given_back_ends_too() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    for claims in range(1, 200):
        claimed = decide(head, Claim(run_id, "me", f"n{claims}"), T, "x")
        assert claimed.run is not None
        head = decide(
            claimed.head, ReturnClaim(run_id, claimed.run.token, begun=False), T, "y"
        ).head
        if not head.runs:
            break
    (ended,) = head.ended
    assert (ended.status, ended.reason, ended.past) == (RunStatus.FAILED, Reason.LOST, "LLLL")
    assert claims == RETURNED_AT_MOST + LOST_AT_MOST


def test_fired_and_performed_as_one_keeps_the_timer_of_what_comes_next() -> None:
    head = a_job(Every(60, anchor_at=after(0)))
    fired = decide(head, Evaluate(brought=(T,), horizon=T), after(59), "w")
    assert (fired.timer_at, fired.head.timer_at) == (after(120), after(120))
    done = decide(
        fired.head, ClaimAndFinish(fired.sends[0].run_id, "me", "n", RunStatus.SUCCESS), T, "x"
    )
    both = joined(fired, done)
    assert (done.timer_at, both.timer_at, both.head) == (None, after(120), done.head)


def test_fired_and_performed_as_one_drops_the_timer_of_a_deadline_that_was_met() -> None:
    head = a_job(Once(T), rules={1: Rules(body="1-body", since_at=after(0), deadline_seconds=9)})
    fired = decide(head, Evaluate(brought=(T,), horizon=T), after(59), "w")
    assert fired.timer_at == after(69)
    done = decide(
        fired.head, ClaimAndFinish(fired.sends[0].run_id, "me", "n", RunStatus.SUCCESS), T, "x"
    )
    assert joined(fired, done).timer_at is None


def test_one_that_fails_and_may_be_repeated_brings_its_own_timer() -> None:
    head = a_job(Once(T))
    fired = decide(head, Evaluate(brought=(T,), horizon=T), after(59), "w")
    done = decide(
        fired.head, ClaimAndFinish(fired.sends[0].run_id, "me", "n", RunStatus.FAILED), T, "x"
    )
    assert joined(fired, done).timer_at == done.head.runs[0].next_at


def test_rows_that_stand_or_fall_with_the_swap_need_no_place_in_the_head() -> None:
    head = fired()
    event = ClaimAndFinish(head.runs[0].run_id, "me", "n", RunStatus.SUCCESS)
    apart = decide(head, event, T, "x")
    together = decide(head, event, T, "x", together=True)
    assert together.records == apart.records == apart.head.ended
    assert together.head == replace(apart.head, ended=())
