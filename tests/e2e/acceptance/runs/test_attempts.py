"""Outcomes of runs: retries, timeouts, deadlines and schedule limits, with all jobs at once."""

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.acceptance.contract import (
    ENDED,
    EVERY_SECOND,
    NEVER_SOON,
    PATIENCE,
    Api,
    Json,
    eventually,
    instant,
    soon,
    unique,
)
from tests.support.acceptance.target import Target

QUICK = {"backoff_seconds": 1, "multiplier": 2, "max_backoff_seconds": 300, "jitter": False}
EACH_SECOND = {"schedule_type": "INTERVAL", "interval_seconds": 1}


def jobs(target: Target) -> dict[str, Json]:
    now = {"schedule_type": "IMMEDIATE"}
    return {
        "fails": {**now, "task": target.task("/503"), "max_retries": 2, "retry": QUICK},
        "recovers": {
            **now,
            "task": target.task("/500/200"),
            "retry": {**QUICK, "jitter": True},
        },
        "once": {**now, "task": target.task("/500"), "delivery": "AT_MOST_ONCE"},
        "too_long": {**now, "task": target.hold(60), "timeout_seconds": 1, "max_retries": 0},
        "too_long_again": {
            **now,
            "task": target.hold(60),
            "timeout_seconds": 1,
            "max_retries": 1,
            "retry": {"backoff_seconds": 0, "jitter": False},
        },
        "three": {**EVERY_SECOND, "max_runs": 3},
        "three_every": {**EACH_SECOND, "max_runs": 3},
        "until": {**EVERY_SECOND, "end_time": soon(3 + PATIENCE)},
        "after_each": {
            **EACH_SECOND,
            "interval_from": "COMPLETED",
            "max_runs": 2,
            "task": target.hold(0.5),
        },
        "jittered": {**EVERY_SECOND, "max_runs": 1, "jitter_seconds": 2},
        "future": {"schedule_type": "FUTURE", "schedule_time": soon(2)},
        "at": {**now, "name": unique("ünïcode \U0001f980"), "payload": {"a": None}},
    }


@pytest.fixture(scope="module")
def job_ids(shared: Api, target: Target) -> dict[str, str]:
    names = list(jobs(target))  # `soon` counts from the creation of its job
    return {name: shared.create(**jobs(target)[name])["job_id"] for name in names}


def completed(api: Api, job_id: str) -> list[Json]:
    """Return the runs of a completed job in order of time."""
    api.job_in(job_id, "COMPLETED")
    runs = [api.run(job_id, run["run_id"]) for run in api.runs(job_id)]
    assert {run["status"] for run in runs} <= ENDED
    return sorted(runs, key=lambda run: str(run["scheduled_time"]))


def ran(runs: list[Json]) -> list[Json]:
    """Return the runs without those skipped while the last run of `max_runs` was still queued."""
    left_out = [run for run in runs if run["status"] == "SKIPPED"]
    assert {run["reason"]["code"] for run in left_out} <= {"MAX_RUNS"}
    return [run for run in runs if run not in left_out]


def test_failed_run_is_retried_with_growing_delays(api: Api, job_ids: dict[str, str]) -> None:
    def waits() -> Json:
        run = api.run(job_ids["fails"], api.first_run(job_ids["fails"])["run_id"])
        assert run["status"] != "FAILED" or run["attempt_number"] == 3
        return run if run["status"] == "WAITING" else None

    waiting = eventually(waits)
    assert waiting["reason"]["code"] == "BACKOFF"
    assert instant(waiting["next_attempt_time"]) > instant(waiting["attempts"][-1]["end_time"])
    (run,) = completed(api, job_ids["fails"])
    assert (run["status"], run["attempt_number"], run["exit_code"]) == ("FAILED", 3, None)
    assert "503" in run["error_message"]
    assert run["next_attempt_time"] is None
    attempts = run["attempts"]
    assert [(a["attempt_number"], a["status"]) for a in attempts] == [
        *((1, "FAILED"), (2, "FAILED"), (3, "FAILED"))
    ]
    pauses = [
        (instant(b["start_time"]) - instant(a["end_time"])).total_seconds()
        for a, b in pairwise(attempts)
    ]
    assert 0.99 <= pauses[0] < 1 + 0.8 * PATIENCE
    assert 1.99 <= pauses[1] < 2 + 0.8 * PATIENCE


def test_retry_may_succeed(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["recovers"])
    assert (run["status"], run["attempt_number"], run["error_message"]) == ("SUCCESS", 2, None)
    assert [a["status"] for a in run["attempts"]] == ["FAILED", "SUCCESS"]
    assert run["start_time"] == run["attempts"][0]["start_time"]
    pause = instant(run["attempts"][1]["start_time"]) - instant(run["attempts"][0]["end_time"])
    assert timedelta(seconds=0.49) <= pause < timedelta(seconds=1 + 0.8 * PATIENCE)


def test_at_most_once_run_is_not_retried(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["once"])
    assert (run["status"], len(run["attempts"])) == ("FAILED", 1)


def test_attempt_past_its_timeout_is_timed_out(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["too_long"])
    assert run["status"] == "TIMED_OUT"
    (attempt,) = run["attempts"]
    assert attempt["status"] == "TIMED_OUT"
    duration = instant(attempt["end_time"]) - instant(attempt["start_time"])
    assert timedelta(seconds=1) <= duration < timedelta(seconds=1 + 2 * PATIENCE)


def test_timed_out_attempt_is_retried(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["too_long_again"])
    assert [a["status"] for a in run["attempts"]] == ["TIMED_OUT", "TIMED_OUT"]


@pytest.mark.parametrize("name", ["three", "three_every"])
def test_max_runs_ends_a_schedule(api: Api, job_ids: dict[str, str], name: str) -> None:
    runs = ran(completed(api, job_ids[name]))
    assert [run["status"] for run in runs] == ["SUCCESS"] * 3
    times = [instant(run["scheduled_time"]) for run in runs]
    assert [b - a for a, b in pairwise(times)] == [timedelta(seconds=1)] * 2
    assert api.get(f"/jobs/{job_ids[name]}")["next_run_time"] is None


def test_max_runs_does_not_count_run_now_requests(api: Api) -> None:
    job_id = api.create(**NEVER_SOON, max_runs=1)["job_id"]
    for _ in range(2):
        api.ended(api.run_now(job_id))
    assert api.get(f"/jobs/{job_id}")["status"] == "SCHEDULED"


def test_end_time_is_exclusive(api: Api, job_ids: dict[str, str]) -> None:
    runs = completed(api, job_ids["until"])
    end = instant(api.get(f"/jobs/{job_ids['until']}")["end_time"])
    assert 2 <= len(runs) <= 3 + PATIENCE
    assert all(instant(run["scheduled_time"]) < end for run in runs)


def test_interval_may_count_from_the_end_of_the_last_run(api: Api, job_ids: dict[str, str]) -> None:
    first, second = completed(api, job_ids["after_each"])
    gap = instant(second["due_time"]) - instant(first["end_time"])
    assert timedelta(seconds=0.99) <= gap <= timedelta(seconds=1.01)


def test_jitter_moves_only_the_due_time(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = ran(completed(api, job_ids["jittered"]))
    scheduled, due = instant(run["scheduled_time"]), instant(run["due_time"])
    assert scheduled.microsecond == 0
    assert timedelta(0) <= due - scheduled < timedelta(seconds=2)
    assert run["lateness_ms"] < 1_500 * PATIENCE


def test_future_job_runs_at_its_time_and_completes(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["future"])
    job = api.get(f"/jobs/{job_ids['future']}")
    assert run["scheduled_time"] == run["due_time"] == job["schedule_time"]
    assert instant(run["start_time"]) >= instant(run["due_time"])
    assert run["trigger"] == "SCHEDULE"
    assert job["next_run_time"] is None
    assert job["latest_run"]["run_id"] == run["run_id"]


def test_immediate_job_runs_immediately(api: Api, job_ids: dict[str, str]) -> None:
    (run,) = completed(api, job_ids["at"])
    assert run["lateness_ms"] < 2_000 * PATIENCE
    assert run["exit_code"] is None
    assert api.output(run)


def test_run_waiting_past_its_deadline_is_missed(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(4), deadline_seconds=1)["job_id"]
    first, second = api.run_now(job_id), api.run_now(job_id)
    missed = api.ended(second)
    assert (missed["status"], missed["reason"]["code"]) == ("MISSED", "DEADLINE")
    assert missed["attempts"] == []
    assert api.get(f"/jobs/{job_id}/status")["latest_run"]["run_id"] == first["run_id"]
    assert api.ended(first)["status"] == "SUCCESS"
