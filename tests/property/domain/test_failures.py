"""Open failures: what opens, counts and closes them, and what is one kind of error."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.domain.failures import (
    MAX_FAILURE_LINE_CHARACTERS,
    MAX_FAILURES_PER_JOB,
    Acknowledgement,
    EndedRun,
    Failure,
    after_run,
    error_line,
    kind_of,
    parse_failure_id,
)
from punctual.domain.run import Reason, RunStatus
from tests.support.builders import JOB, NOON, a_run, after

FAILED, TIMED_OUT, SUCCESS = RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.SUCCESS


def ended(
    number: int = 1,
    status: RunStatus = FAILED,
    error: str = "it broke",
    begin: float | None = None,
    **fields: Any,
) -> EndedRun:
    """Return a run that ended `number` seconds after noon, and began a second before."""
    detail = {name: fields.pop(name) for name in ("exit_code", "http_status") if name in fields}
    run = a_run(
        f"run-{number}",
        status,
        attempt_at=after(number - 1 if begin is None else begin),
        ended_at=after(number),
        **fields,
    )
    return EndedRun(run, error, **detail)


def failures_after(*runs: EndedRun) -> list[Failure]:
    failures: list[Failure] = []
    for run in runs:
        failures = list(after_run(failures, JOB, run))
    return failures


def test_failed_runs_of_one_kind_are_one_failure() -> None:
    (failure,) = failures_after(ended(1, error="at 12:00:01"), ended(5, error="at 12:00:05\nmore"))
    assert failure == Failure(
        job_id=JOB,
        kind=kind_of(ended(error="at 9")),
        error="at 12:00:05",
        status=FAILED,
        first_at=after(1),
        last_at=after(5),
        last_run_id="run-5",
        last_began_at=after(4),
        count=2,
    )
    assert parse_failure_id(failure.failure_id) == (JOB, failure.kind)


def test_each_kind_of_error_is_a_failure_of_its_own() -> None:
    runs = [
        ended(1),
        ended(2, status=TIMED_OUT),
        ended(3, error="it broke otherwise"),
        ended(4, exit_code=3),
        ended(5, exit_code=4),
        ended(6, http_status=502),
        ended(7, reason=Reason.LOST),
    ]
    assert [failure.count for failure in failures_after(*runs)] == [1] * len(runs)


@pytest.mark.parametrize(
    ("error", "other"),
    [
        ("job 17 failed", "job 4711 failed"),
        ("no route to 10.0.0.1:443", "no route to 10.0.0.2:8443"),
        (
            "order 0193e2b4-7b12-7000-8000-000000000000 is missing",
            "order 01a1ee87-35e8-7000-8000-00000000004d is missing",
        ),
        ("2026-11-18T12:00:00Z lost row 0x7fed5", "2027-01-01T01:10:10.001Z lost row 0x7fed6"),
        ("since Fri, Nov 20 10:00:00", "since Mon, Jan 5 09:30:01"),
        ("took 1.5 s", "took 20 s"),
        ("rows 1, 2, 3 differ", "rows 4, 5 differ"),
        ("it broke\nline 2", "it broke\nline 3: other"),
        ("\n\n  it broke", "it broke"),
    ],
)
def test_kind_leaves_out_numbers_times_and_further_lines(error: str, other: str) -> None:
    assert kind_of(ended(error=error)) == kind_of(ended(error=other))


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (ended(error="a\r\nb"), "a"),
        (ended(error="x" * 1_000), "x" * MAX_FAILURE_LINE_CHARACTERS),
        (ended(error="", exit_code=3), "exit code 3"),
        (ended(error="\n", http_status=502), "HTTP status 502"),
        (ended(error="", status=TIMED_OUT), "timed out"),
        (ended(error="", reason=Reason.LOST), "lost"),
        (ended(error=""), "failed"),
    ],
)
def test_error_line_says_what_is_known(run: EndedRun, line: str) -> None:
    assert error_line(run) == line


def test_success_of_a_run_that_began_later_closes_failures() -> None:
    failed = [ended(1), ended(2, error="it broke otherwise")]
    assert failures_after(*failed, ended(10, SUCCESS)) == []
    assert len(failures_after(*failed, ended(10, SUCCESS), ended(11))) == 1


def test_success_of_a_run_that_began_before_a_failure_leaves_it_open() -> None:
    early, late = ended(3, begin=1), ended(9, error="it broke otherwise", begin=8)
    (open_failure,) = failures_after(early, late, ended(10, SUCCESS, begin=5))
    assert open_failure.last_run_id == "run-9"


@pytest.mark.parametrize(
    "status", [RunStatus.CANCELLED, RunStatus.SKIPPED, RunStatus.MISSED, RunStatus.RUNNING]
)
def test_other_ends_change_nothing(status: RunStatus) -> None:
    failures = failures_after(ended(1))
    assert after_run(failures, JOB, ended(2, status)) == failures
    assert after_run([], JOB, ended(2, status)) == []


def test_run_that_never_began_is_a_failure_of_its_end() -> None:
    poison = EndedRun(replace(ended(5, reason=Reason.POISON).run, attempt_at=None))
    (failure,) = failures_after(poison)
    assert failure.last_began_at == after(5)


def test_repeated_run_is_counted_once() -> None:
    assert [failure.count for failure in failures_after(ended(1), ended(1))] == [1]


def test_acknowledgement_stays_with_its_kind_until_a_success() -> None:
    acknowledgement = Acknowledgement("ann", NOON, "known")
    known = replace(failures_after(ended(1))[0], acknowledged=acknowledgement)
    again = after_run([known], JOB, ended(2))
    other = after_run(again, JOB, ended(3, error="it broke otherwise"))
    assert [failure.acknowledged for failure in other] == [acknowledgement, None]
    closed = after_run(other, JOB, ended(9, SUCCESS))
    assert [failure.acknowledged for failure in after_run(closed, JOB, ended(10))] == [None]


def test_job_keeps_the_kinds_that_happened_last() -> None:
    kinds = [ended(number, exit_code=number) for number in range(1, MAX_FAILURES_PER_JOB + 4)]
    failures = failures_after(*kinds)
    assert len(failures) == MAX_FAILURES_PER_JOB
    assert min(failure.last_at for failure in failures) == after(4)


RUNS = st.builds(
    ended,
    number=st.integers(1, 30),
    status=st.sampled_from([FAILED, FAILED, TIMED_OUT, SUCCESS, RunStatus.CANCELLED]),
    error=st.sampled_from(["a", "b", "c 1", "c 2"]),
    begin=st.integers(-30, 30),
)


@given(st.lists(RUNS, max_size=20))
def test_failures_are_bounded_unique_and_began_after_each_success(runs: list[EndedRun]) -> None:
    failures: list[Failure] = []
    for run in runs:
        failures = list(after_run(failures, JOB, run))
        assert len({failure.kind for failure in failures}) == len(failures)
        assert len(failures) <= MAX_FAILURES_PER_JOB
        assert all(failure.first_at <= failure.last_at for failure in failures)
        assert sum(failure.count for failure in failures) <= len(runs)
        if run.run.status is SUCCESS:
            assert run.run.attempt_at is not None
            assert all(failure.last_began_at >= run.run.attempt_at for failure in failures)


@given(st.text(max_size=2_000))
def test_kind_of_any_text_is_short_and_the_line_fits(error: str) -> None:
    assert len(kind_of(ended(error=error))) == 12
    assert 1 <= len(error_line(ended(error=error))) <= MAX_FAILURE_LINE_CHARACTERS
