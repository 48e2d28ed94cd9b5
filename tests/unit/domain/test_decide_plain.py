"""The fast paths of `decide` apply in the right cases, and agree with the full path."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.domain import fast_path
from punctual.domain.decide import decide, decide_without_fast_path
from punctual.domain.events import Claim, Evaluate, Finish
from punctual.domain.identifiers import EPOCH, occurrence_id, sortable_id
from punctual.domain.job_state import JobLimits, JobState
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Cron, Once, Schedule
from tests.support.builders_jobs import a_job, after, every
from tests.support.examples import examples

NOBODY: frozenset[str] = frozenset()
T = after(60)
SCHEDULES: list[Schedule] = [Once(T), every(60), every(1), Cron("* * * * *")]
UNUSUAL: list[dict[str, Any]] = [
    {"limits": JobLimits(max_runs=1)},
    {"deadline_seconds": 30},
    {"schedule": every(60, from_completion=True)},
]


def fired(head: JobState) -> JobState:
    return decide(head, Evaluate(trigger_times=(T,), fire_ahead_until=T), after(59.5), "w").state


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_that_is_alone_takes_the_short_way(schedule: Schedule) -> None:
    head = replace(a_job(schedule), next_at=T, timer_at=T)
    look = Evaluate(trigger_times=(T,), fire_ahead_until=T)
    first = fast_path.fire(head, look, after(59.5), "w", NOBODY, True)
    assert first is not None
    assert first == decide_without_fast_path(head, look, after(59.5), "w", NOBODY, True)
    claim = Claim(first.runs_to_send[0].run_id, "me", "n")
    second = fast_path.claim(first.state, claim, T, "x", NOBODY, True)
    assert second is not None
    assert second.run is not None
    assert second == decide_without_fast_path(first.state, claim, T, "x", NOBODY, True)
    finish = Finish(claim.run_id, second.run.token, RunStatus.SUCCESS)
    third = fast_path.finish(second.state, finish, after(60.5), "y", NOBODY, True)
    assert third is not None
    assert third == decide_without_fast_path(second.state, finish, after(60.5), "y", NOBODY, True)


@pytest.mark.parametrize("fields", UNUSUAL)
def test_what_is_unusual_goes_the_long_way(fields: dict[str, Any]) -> None:
    head = a_job(fields.pop("schedule", Once(T)), **fields)
    assert fast_path.fire(head, Evaluate(fire_ahead_until=T), after(59), "w", NOBODY, True) is None
    ready = fired(head)
    claim = Claim(ready.runs[0].run_id, "me", "n")
    assert fast_path.claim(ready, claim, T, "x", NOBODY, True) is None
    claimed = decide(ready, claim, T, "x")
    assert claimed.run is not None
    finish = Finish(claim.run_id, claimed.run.token, RunStatus.SUCCESS)
    assert fast_path.finish(claimed.state, finish, T, "y", NOBODY, True) is None


def test_a_claim_that_is_early_or_of_another_goes_the_long_way() -> None:
    ready = fired(a_job(Once(T)))
    run_id = ready.runs[0].run_id
    for event, now in (
        (Claim(run_id, "me", "n"), after(59)),
        (Claim(run_id, "me", "n", starts_later=True), T),
        (Claim("another", "me", "n"), T),
    ):
        assert fast_path.claim(ready, event, now, "x", NOBODY, True) is None


def test_an_end_that_failed_or_is_of_another_goes_the_long_way() -> None:
    ready = fired(a_job(Once(T)))
    run_id = ready.runs[0].run_id
    claimed = decide(ready, Claim(run_id, "me", "n"), T, "x").state
    token = claimed.runs[0].token
    for event in (
        Finish(run_id, token, RunStatus.FAILED),
        Finish(run_id, token - 1, RunStatus.SUCCESS),
        Finish("another", token, RunStatus.SUCCESS),
    ):
        assert fast_path.finish(claimed, event, T, "y", NOBODY, True) is None


def test_an_end_whose_row_stands_or_falls_with_the_swap_leaves_the_head() -> None:
    ready = fired(a_job(Once(T)))
    claimed = decide(ready, Claim(ready.runs[0].run_id, "me", "n"), T, "x").state
    finish = Finish(claimed.runs[0].run_id, claimed.runs[0].token, RunStatus.SUCCESS)
    apart = decide(claimed, finish, T, "y")
    together = decide(claimed, finish, T, "y", transactional=True)
    assert together.runs_to_record == apart.runs_to_record == apart.state.unrecorded
    assert together.state == replace(apart.state, unrecorded=())


AROUND = st.sampled_from([-61, -60, -1, -0.5, 0, 0.5, 1, 3.7, 59, 60, 61, 3_600])


@settings(max_examples=examples(400), deadline=None)
@given(
    schedule=st.sampled_from([*SCHEDULES, every(60, from_completion=True)]),
    limits=st.fixed_dictionaries(
        {},
        optional={
            "max_runs": st.integers(1, 2),
            "jitter_ms": st.sampled_from([1, 3_700, 70_000]),
            "misfire_grace_seconds": st.integers(0, 61),
            "deadline_seconds": st.sampled_from([1, 60]),
            "max_concurrency": st.integers(1, 2),
        },
    ),
    begin=AROUND,
    ahead=st.none() | AROUND,
    wait=AROUND,
    timer=st.none() | AROUND,
    brought=st.lists(AROUND, max_size=2),
    together=st.booleans(),
    work=st.sampled_from([0, 0.5, 59, 60, 3_600]),
    note=st.sampled_from(["", "a note"]),
)
def test_both_ways_answer_alike(
    schedule: Schedule,
    limits: dict[str, Any],
    begin: float,
    ahead: float | None,
    wait: float,
    timer: float | None,
    brought: list[float],
    together: bool,
    work: float,
    note: str,
) -> None:
    now, later = after(60 + begin), after(60 + begin + wait)
    head = a_job(schedule, timer_at=None if timer is None else after(60 + timer), **limits)
    horizon = None if ahead is None else after(60 + begin + ahead)
    look = Evaluate(trigger_times=tuple(after(60 + n) for n in brought), fire_ahead_until=horizon)
    first = decide_without_fast_path(head, look, now, "w", NOBODY, together)
    assert decide(head, look, now, "w", NOBODY, together) == first
    for run in first.state.runs:
        claim = Claim(run.run_id, "me", "n")
        recorded = frozenset(ended.run_id for ended in first.state.unrecorded)
        for known in (NOBODY, recorded):
            second = decide_without_fast_path(first.state, claim, later, "x", known, together)
            assert decide(first.state, claim, later, "x", known, together) == second
            for held in second.state.runs:
                finish = Finish(held.run_id, held.token, RunStatus.SUCCESS, inline_output=note)
                end = later + timedelta(seconds=work)
                third = decide_without_fast_path(second.state, finish, end, "y", known, together)
                assert decide(second.state, finish, end, "y", known, together) == third


def test_ids_of_occurrences_stay_what_they_were() -> None:
    assert occurrence_id("job", T) == "019cae6c-5060-77d6-a176-1461a160903e"
    for at in (EPOCH, T, after(0.001), after(0.0015)):
        same = occurrence_id("job", at)
        assert same[:15] == sortable_id(at, bytes(10))[:15]
        assert occurrence_id("job", at) == same != occurrence_id("jobs", at)
