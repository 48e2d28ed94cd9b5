"""The overview: its verdict, sentence and facts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.domain.overview import (
    LateRuns,
    LimitUse,
    OpenFailures,
    OverduePauses,
    Overview,
    Situation,
    Verdict,
    overview,
)
from tests.support.builders import NOON, after

MINUTE_AGO, HOUR_AGO = after(-60), after(-3_600)


def of(**fields: Any) -> Overview:
    """Return the overview of 412 jobs with a next start in 40 s."""
    values: dict[str, Any] = {"active_jobs": 412, "all_jobs": 500, "next_start_at": after(40)}
    return overview(Situation(NOON, **{**values, **fields}))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "412 jobs, all on time. Next start in 40 s."),
        ({"active_jobs": 1, "next_start_at": NOON}, "1 job, on time. Next start now."),
        ({"next_start_at": None}, "412 jobs, all on time. No start is planned."),
        ({"next_start_at": after(7_300)}, "412 jobs, all on time. Next start in 2 h."),
        ({"active_jobs": 0, "next_start_at": None}, "No active jobs."),
        ({"active_jobs": 0, "all_jobs": 0, "next_start_at": None}, "No jobs yet."),
        ({"active_jobs": 12_345}, "12,345 jobs, all on time. Next start in 40 s."),
    ],
)
def test_quiet_tenant_is_ok(fields: dict[str, Any], sentence: str) -> None:
    result = of(**fields)
    assert (result.verdict, result.sentence, result.since) == (Verdict.OK, sentence, None)


@pytest.mark.parametrize(
    ("fields", "verdict", "text", "since"),
    [
        (
            {"failures": OpenFailures(2, 0, HOUR_AGO)},
            "BAD",
            "2 failures are not acknowledged.",
            HOUR_AGO,
        ),
        (
            {"failures": OpenFailures(1, 0, HOUR_AGO)},
            "BAD",
            "1 failure is not acknowledged.",
            HOUR_AGO,
        ),
        ({"failures": OpenFailures(0, 2, None, HOUR_AGO)}, "WARN", "2 known failures.", HOUR_AGO),
        ({"failures": OpenFailures(0, 1, None, HOUR_AGO)}, "WARN", "1 known failure.", HOUR_AGO),
        (
            {"late": LateRuns(1, False, after(-40))},
            "BAD",
            "Runs of 1 job are due and have not started, the oldest for 40 s.",
            after(-40),
        ),
        (
            {"late": LateRuns(100, True, MINUTE_AGO)},
            "BAD",
            "Runs of over 100 jobs are due and have not started, the oldest for 1 min.",
            MINUTE_AGO,
        ),
        (
            {"pauses": OverduePauses(1, MINUTE_AGO)},
            "WARN",
            "1 job is paused past the time to resume.",
            MINUTE_AGO,
        ),
        (
            {"pauses": OverduePauses(100, MINUTE_AGO, has_more=True)},
            "WARN",
            "Over 100 jobs are paused past the time to resume.",
            MINUTE_AGO,
        ),
        (
            {"pauses": OverduePauses(2, MINUTE_AGO)},
            "WARN",
            "2 jobs are paused past the time to resume.",
            MINUTE_AGO,
        ),
        (
            {"limits": [LimitUse("jobs", 920, 1_000)]},
            "WARN",
            "The limit jobs is used to 92 %.",
            None,
        ),
        (
            {"is_planner_silent": True, "planner_at": MINUTE_AGO},
            "BLIND",
            "No word from the planner for 1 min.",
            MINUTE_AGO,
        ),
        ({"is_planner_silent": True}, "BLIND", "No word from the planner.", None),
        (
            {"executors_at": after(-61)},
            "BLIND",
            "No word from the executors for 1 min.",
            after(-61),
        ),
    ],
)
def test_fact_decides_the_verdict(
    fields: dict[str, Any], verdict: str, text: str, since: Any
) -> None:
    result = of(**fields)
    assert (result.verdict.name, result.since) == (verdict, since)
    assert text in [fact.text for fact in result.facts]
    assert text in result.sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": [LimitUse("jobs", 800, 1_000), LimitUse("none", 0, 0)]},
        {"executors_at": after(-60)},
    ],
)
def test_bound_itself_is_no_cause(fields: dict[str, Any]) -> None:
    assert of(**fields).verdict is Verdict.OK


def test_verdict_is_not_ok_and_nothing_is_on_time_where_not_all_was_read() -> None:
    assert of(late=LateRuns(0, True)).sentence.startswith("412 jobs. ")
    result = of(failures=OpenFailures(has_more=True))
    assert result.verdict is Verdict.BAD
    assert "There are more failures than were counted." in result.sentence


def test_worst_verdict_holds_with_its_own_begin() -> None:
    failures = OpenFailures(1, 3, MINUTE_AGO, HOUR_AGO)
    result = of(failures=failures, late=LateRuns(1, False, after(-20)))
    assert (result.verdict, result.since) == (Verdict.BAD, MINUTE_AGO)
    assert result.sentence == (
        "412 jobs. Runs of 1 job are due and have not started, the oldest for 20 s. "
        "1 failure is not acknowledged. 3 known failures. Next start in 40 s."
    )
    silent = of(failures=failures, is_planner_silent=True)
    assert silent.verdict is Verdict.BLIND
    assert silent.facts[0].code == "NO_WORD_FROM_PLANNER"
    assert silent.sentence.startswith("No word from the planner. 412 jobs. 1 failure")


COUNTS = st.integers(0, 3)
TIMES = st.sampled_from([None, MINUTE_AGO, HOUR_AGO])


@given(
    active=COUNTS,
    ended=COUNTS,
    late=st.builds(LateRuns, COUNTS, st.booleans(), TIMES),
    failures=st.builds(OpenFailures, COUNTS, COUNTS, TIMES, TIMES),
    pauses=st.builds(OverduePauses, COUNTS, TIMES),
    limits=st.lists(st.builds(LimitUse, st.just("a"), st.floats(0, 9), st.floats(0, 9))),
    is_planner_silent=st.booleans(),
    executors_at=TIMES,
    next_start_at=st.sampled_from([None, NOON, after(-5), after(5)]),
)
def test_verdict_is_that_of_the_worst_fact(active: int, ended: int, **fields: Any) -> None:
    result = overview(Situation(NOON, active, active + ended, **fields))
    assert result.verdict is max(fact.verdict for fact in result.facts)
    assert result.sentence == " ".join(fact.text for fact in result.facts)
    assert all(fact.text.endswith(".") for fact in result.facts)
    assert (result.verdict is Verdict.OK) <= (result.since is None)
    assert (fields["failures"].unacknowledged > 0) <= (result.verdict >= Verdict.BAD)
