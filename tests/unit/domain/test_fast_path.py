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
from punctual.domain.identifiers import occurrence_id, sortable_id
from punctual.domain.job_state import JobLimits, JobState
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Cron, Once, Schedule
from punctual.domain.utc import EPOCH
from tests.support.builders_jobs import a_job, after, every
from tests.support.examples import examples

NO_RUN_IDS: frozenset[str] = frozenset()
DUE_AT = after(60)
SCHEDULES: list[Schedule] = [Once(DUE_AT), every(60), every(1), Cron("* * * * *")]
UNUSUAL_FIELDS: list[dict[str, Any]] = [
    {"limits": JobLimits(max_runs=1)},
    {"deadline_seconds": 30},
    {"schedule": every(60, from_completion=True)},
]


def fired_state(state: JobState) -> JobState:
    return decide(
        state, Evaluate(trigger_times=(DUE_AT,), fire_ahead_until=DUE_AT), after(59.5), "w"
    ).state


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_simple_job_takes_the_fast_path(schedule: Schedule) -> None:
    state = replace(a_job(schedule), next_at=DUE_AT, timer_at=DUE_AT)
    evaluate = Evaluate(trigger_times=(DUE_AT,), fire_ahead_until=DUE_AT)
    fired = fast_path.fire(state, evaluate, after(59.5), "w", NO_RUN_IDS, True)
    assert fired is not None
    assert fired == decide_without_fast_path(state, evaluate, after(59.5), "w", NO_RUN_IDS, True)
    claim = Claim(fired.runs_to_send[0].run_id, "me", "n")
    claimed = fast_path.claim(fired.state, claim, DUE_AT, "x", NO_RUN_IDS, True)
    assert claimed is not None
    assert claimed.run is not None
    assert claimed == decide_without_fast_path(fired.state, claim, DUE_AT, "x", NO_RUN_IDS, True)
    finish = Finish(claim.run_id, claimed.run.token, RunStatus.SUCCESS)
    finished = fast_path.finish(claimed.state, finish, after(60.5), "y", NO_RUN_IDS, True)
    assert finished is not None
    assert finished == decide_without_fast_path(
        claimed.state, finish, after(60.5), "y", NO_RUN_IDS, True
    )


@pytest.mark.parametrize("fields", UNUSUAL_FIELDS)
def test_job_with_unusual_fields_takes_the_full_path(fields: dict[str, Any]) -> None:
    state = a_job(fields.pop("schedule", Once(DUE_AT)), **fields)
    assert (
        fast_path.fire(state, Evaluate(fire_ahead_until=DUE_AT), after(59), "w", NO_RUN_IDS, True)
        is None
    )
    ready = fired_state(state)
    claim = Claim(ready.runs[0].run_id, "me", "n")
    assert fast_path.claim(ready, claim, DUE_AT, "x", NO_RUN_IDS, True) is None
    claimed = decide(ready, claim, DUE_AT, "x")
    assert claimed.run is not None
    finish = Finish(claim.run_id, claimed.run.token, RunStatus.SUCCESS)
    assert fast_path.finish(claimed.state, finish, DUE_AT, "y", NO_RUN_IDS, True) is None


def test_early_or_foreign_claim_takes_the_full_path() -> None:
    ready = fired_state(a_job(Once(DUE_AT)))
    run_id = ready.runs[0].run_id
    for event, now in (
        (Claim(run_id, "me", "n"), after(59)),
        (Claim(run_id, "me", "n", starts_later=True), DUE_AT),
        (Claim("another", "me", "n"), DUE_AT),
    ):
        assert fast_path.claim(ready, event, now, "x", NO_RUN_IDS, True) is None


def test_failed_or_foreign_finish_takes_the_full_path() -> None:
    ready = fired_state(a_job(Once(DUE_AT)))
    run_id = ready.runs[0].run_id
    claimed = decide(ready, Claim(run_id, "me", "n"), DUE_AT, "x").state
    token = claimed.runs[0].token
    for event in (
        Finish(run_id, token, RunStatus.FAILED),
        Finish(run_id, token - 1, RunStatus.SUCCESS),
        Finish("another", token, RunStatus.SUCCESS),
    ):
        assert fast_path.finish(claimed, event, DUE_AT, "y", NO_RUN_IDS, True) is None


def test_transactional_finish_leaves_no_unrecorded_run() -> None:
    ready = fired_state(a_job(Once(DUE_AT)))
    claimed = decide(ready, Claim(ready.runs[0].run_id, "me", "n"), DUE_AT, "x").state
    finish = Finish(claimed.runs[0].run_id, claimed.runs[0].token, RunStatus.SUCCESS)
    separate = decide(claimed, finish, DUE_AT, "y")
    transactional = decide(claimed, finish, DUE_AT, "y", transactional=True)
    assert transactional.runs_to_record == separate.runs_to_record == separate.state.unrecorded
    assert transactional.state == replace(separate.state, unrecorded=())


OFFSETS = st.sampled_from([-61, -60, -1, -0.5, 0, 0.5, 1, 3.7, 59, 60, 61, 3_600])


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
    start_offset=OFFSETS,
    horizon_offset=st.none() | OFFSETS,
    claim_delay=OFFSETS,
    timer=st.none() | OFFSETS,
    triggers=st.lists(OFFSETS, max_size=2),
    transactional=st.booleans(),
    work_seconds=st.sampled_from([0, 0.5, 59, 60, 3_600]),
    note=st.sampled_from(["", "a note"]),
)
def test_fast_path_and_full_path_return_equal_decisions(
    schedule: Schedule,
    limits: dict[str, Any],
    start_offset: float,
    horizon_offset: float | None,
    claim_delay: float,
    timer: float | None,
    triggers: list[float],
    transactional: bool,
    work_seconds: float,
    note: str,
) -> None:
    now, claim_at = after(60 + start_offset), after(60 + start_offset + claim_delay)
    state = a_job(schedule, timer_at=None if timer is None else after(60 + timer), **limits)
    horizon = None if horizon_offset is None else after(60 + start_offset + horizon_offset)
    evaluate = Evaluate(
        trigger_times=tuple(after(60 + offset) for offset in triggers), fire_ahead_until=horizon
    )
    fired = decide_without_fast_path(state, evaluate, now, "w", NO_RUN_IDS, transactional)
    assert decide(state, evaluate, now, "w", NO_RUN_IDS, transactional) == fired
    for run in fired.state.runs:
        claim = Claim(run.run_id, "me", "n")
        recorded = frozenset(ended.run_id for ended in fired.state.unrecorded)
        for recorded_ids in (NO_RUN_IDS, recorded):
            claimed = decide_without_fast_path(
                fired.state, claim, claim_at, "x", recorded_ids, transactional
            )
            assert decide(fired.state, claim, claim_at, "x", recorded_ids, transactional) == claimed
            for running in claimed.state.runs:
                finish = Finish(
                    running.run_id, running.token, RunStatus.SUCCESS, inline_output=note
                )
                finish_at = claim_at + timedelta(seconds=work_seconds)
                finished = decide_without_fast_path(
                    claimed.state, finish, finish_at, "y", recorded_ids, transactional
                )
                assert (
                    decide(claimed.state, finish, finish_at, "y", recorded_ids, transactional)
                    == finished
                )


def test_occurrence_ids_are_stable() -> None:
    assert occurrence_id("job", DUE_AT) == "019cae6c-5060-77d6-a176-1461a160903e"
    for at in (EPOCH, DUE_AT, after(0.001), after(0.0015)):
        same = occurrence_id("job", at)
        assert same[:15] == sortable_id(at, bytes(10))[:15]
        assert occurrence_id("job", at) == same != occurrence_id("jobs", at)
