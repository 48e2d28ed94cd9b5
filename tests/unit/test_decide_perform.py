"""Claimed and ended in one swap: work that is part of the write that records it."""

from punctual.domain.decide import Verdict, decide
from punctual.domain.events import Claim, Finish, Look, Perform, Release
from punctual.domain.head import Head, State
from punctual.domain.run import Reason, Status
from punctual.domain.schedule import Once
from punctual.domain.timing import LOST_AT_MOST, RETURNED_AT_MOST
from tests.builders_jobs import a_job, after

T = after(60)


def fired() -> Head:
    head = a_job(Once(T))
    return decide(head, Look(brought=(T,)), T, "w").head


def test_it_ends_as_a_claim_and_a_finish_would() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    at_once = decide(head, Perform(run_id, "me", "n", Status.SUCCESS), T, "x")
    claimed = decide(head, Claim(run_id, "me", "n"), T, "x")
    assert claimed.run is not None
    in_two = decide(claimed.head, Finish(run_id, claimed.run.token, Status.SUCCESS), T, "y")
    assert at_once.verdict is Verdict.OK
    assert at_once.head.ended == in_two.head.ended
    assert at_once.head.state is in_two.head.state is State.COMPLETED
    assert at_once.leases == {run_id: None}
    assert at_once.head.version == head.version + 1


def test_a_failure_that_may_be_repeated_waits() -> None:
    head = fired()
    decision = decide(head, Perform(head.runs[0].run_id, "me", "n", Status.FAILED), T, "x")
    (run,) = decision.head.runs
    assert (run.status, run.reason, run.past) == (Status.WAITING, Reason.BACKOFF, "F")
    assert decision.timer_at == run.next_at


def test_what_may_not_be_claimed_is_not_performed() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    early = decide(head, Perform(run_id, "me", "n", Status.SUCCESS), after(30), "x")
    gone = decide(head, Perform("another", "me", "n", Status.SUCCESS), T, "x")
    held = decide(head, Claim(run_id, "other", "m"), T, "x").head
    taken = decide(held, Perform(run_id, "me", "n", Status.SUCCESS), T, "y")
    assert [d.verdict for d in (early, gone, taken)] == [
        Verdict.EARLY,
        Verdict.GONE,
        Verdict.HELD,
    ]
    assert not any(d.changed for d in (early, gone, taken))


def test_a_run_that_this_very_claimer_holds_is_ended_once() -> None:
    held = decide(fired(), Claim(fired().runs[0].run_id, "me", "n"), T, "x").head
    decision = decide(held, Perform(held.runs[0].run_id, "me", "n", Status.SUCCESS), T, "y")
    assert decision.head.runs == ()
    assert len(decision.head.ended) == 1


def test_a_claim_that_is_always_given_back_ends_too() -> None:
    head = fired()
    run_id = head.runs[0].run_id
    for claims in range(1, 200):
        claimed = decide(head, Claim(run_id, "me", f"n{claims}"), T, "x")
        assert claimed.run is not None
        head = decide(claimed.head, Release(run_id, claimed.run.token, begun=False), T, "y").head
        if not head.runs:
            break
    (ended,) = head.ended
    assert (ended.status, ended.reason, ended.past) == (Status.FAILED, Reason.LOST, "LLLL")
    assert claims == RETURNED_AT_MOST + LOST_AT_MOST
