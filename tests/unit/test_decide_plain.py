"""The short ways of `decide` are taken where they should be, and answer as it does at length."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.domain import fast_path
from punctual.domain.decide import decide, decide_at_length
from punctual.domain.events import ClaimAndFinish, Evaluate
from punctual.domain.identifiers import EPOCH, occurrence_id, sortable_id
from punctual.domain.job_state import JobState, Limits
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Cron, Once, Schedule
from tests.builders_jobs import a_job, after, every

NOBODY: frozenset[str] = frozenset()
T = after(60)
SCHEDULES: list[Schedule] = [Once(T), every(60), every(1), Cron("* * * * *")]
UNUSUAL: list[dict[str, Any]] = [
    {"limits": Limits(max_runs=1)},
    {"deadline_seconds": 30},
    {"schedule": every(60, from_completion=True)},
]


def fired(head: JobState) -> JobState:
    return decide(head, Evaluate(brought=(T,), horizon=T), after(59.5), "w").head


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_that_is_alone_takes_the_short_way(schedule: Schedule) -> None:
    head = replace(a_job(schedule), next_at=T, timer_at=T)
    look = Evaluate(brought=(T,), horizon=T)
    first = fast_path.fire(head, look, after(59.5), "w", NOBODY, True)
    assert first is not None
    assert first == decide_at_length(head, look, after(59.5), "w", NOBODY, True)
    event = ClaimAndFinish(first.sends[0].run_id, "me", "n", RunStatus.SUCCESS)
    second = fast_path.perform(first.head, event, T, "x", NOBODY, True)
    assert second is not None
    assert second == decide_at_length(first.head, event, T, "x", NOBODY, True)


@pytest.mark.parametrize("fields", UNUSUAL)
def test_what_is_unusual_goes_the_long_way(fields: dict[str, Any]) -> None:
    head = a_job(fields.pop("schedule", Once(T)), **fields)
    assert fast_path.fire(head, Evaluate(horizon=T), after(59), "w", NOBODY, True) is None
    ready = fired(head)
    event = ClaimAndFinish(ready.runs[0].run_id, "me", "n", RunStatus.SUCCESS)
    assert fast_path.perform(ready, event, T, "x", NOBODY, True) is None


def test_what_failed_or_is_not_due_or_is_another_goes_the_long_way() -> None:
    ready = fired(a_job(Once(T)))
    run_id = ready.runs[0].run_id
    well, ill = RunStatus.SUCCESS, RunStatus.FAILED
    for event, now in (
        (ClaimAndFinish(run_id, "me", "n", ill), T),
        (ClaimAndFinish(run_id, "me", "n", well), after(59)),
        (ClaimAndFinish("another", "me", "n", well), T),
    ):
        assert fast_path.perform(ready, event, now, "x", NOBODY, True) is None


AROUND = st.sampled_from([-61, -60, -1, -0.5, 0, 0.5, 1, 3.7, 59, 60, 61, 3_600])


@settings(max_examples=400, deadline=None)
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
) -> None:
    now, later = after(60 + begin), after(60 + begin + wait)
    head = a_job(schedule, timer_at=None if timer is None else after(60 + timer), **limits)
    horizon = None if ahead is None else after(60 + begin + ahead)
    look = Evaluate(brought=tuple(after(60 + n) for n in brought), horizon=horizon)
    first = decide_at_length(head, look, now, "w", NOBODY, together)
    assert decide(head, look, now, "w", NOBODY, together) == first
    for run in first.head.runs:
        event = ClaimAndFinish(run.run_id, "me", "n", RunStatus.SUCCESS)
        recorded = frozenset(ended.run_id for ended in first.head.ended)
        for known in (NOBODY, recorded):
            second = decide_at_length(first.head, event, later, "x", known, together)
            assert decide(first.head, event, later, "x", known, together) == second


def test_ids_of_occurrences_stay_what_they_were() -> None:
    assert occurrence_id("job", T) == "019cae6c-5060-77d6-a176-1461a160903e"
    for at in (EPOCH, T, after(0.001), after(0.0015)):
        same = occurrence_id("job", at)
        assert same[:15] == sortable_id(at, bytes(10))[:15]
        assert occurrence_id("job", at) == same != occurrence_id("jobs", at)
