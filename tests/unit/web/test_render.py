"""The views of jobs and runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import AttemptRow, Detail
from punctual.engine.queries.explain import REASON_TEXTS
from punctual.engine.queries.views import JobView, RunView
from punctual.web.views.job import job_json, status_json
from punctual.web.views.run import listed_run_json, run_json
from tests.support.web_engine import NOON, MemoryEngine

JOB_ID = "01a1ee87-3200-7000-8000-000000000001"
MS = timedelta(milliseconds=1)


def a_run(status: RunStatus = RunStatus.QUEUED, **fields: Any) -> Run:
    return Run("r1", status, 2, NOON, NOON, NOON, NOON, **fields)


def a_view(run: Run, **fields: Any) -> RunView:
    return RunView("t", JOB_ID, run, fields.pop("detail", Detail()), "2026b", **fields)


def an_attempt(number: int, status: str = "FAILED", error: str = "no", lost: bool = False) -> Any:
    return AttemptRow(
        "t",
        JOB_ID,
        "r1",
        number,
        7,
        status,
        NOON,
        NOON + MS,
        "x1",
        lost=lost,
        detail=Detail(error=error),
    )


def a_job(**document: Any) -> JobView:
    sent = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *", **document}
    (view,) = MemoryEngine().submit("t", "me", [Submission(sent)])
    assert isinstance(view, JobView)
    return view


def test_a_run_that_waits_has_begun_nothing() -> None:
    shown = run_json(a_view(a_run()), "/v1")
    assert shown["status"] == "QUEUED"
    assert shown["attempts"] == []
    empty = ("start_time", "end_time", "lateness_ms", "reason", "executor_id", "error_message")
    assert {shown[name] for name in empty} == {None}
    urls = ("log_url", "output_url", "next_attempt_time", "exit_code", "retried_from")
    assert {shown[name] for name in urls} == {None}
    assert (shown["job_version"], shown["attempt_number"], shown["count"]) == (2, 1, 1)
    assert "payload" not in shown


def test_lateness_is_told_to_the_microsecond() -> None:
    run = a_run(RunStatus.RUNNING, started_at=NOON + timedelta(microseconds=412), attempt_at=NOON)
    assert run_json(a_view(run), "/v1")["lateness_ms"] == 0.412


def test_a_run_that_runs_shows_its_attempt_and_where_its_log_is() -> None:
    run = a_run(RunStatus.RUNNING, started_at=NOON, attempt_at=NOON + MS, executor_id="x2", past_attempts="F")
    shown = run_json(a_view(run, attempts=[an_attempt(1)]), "/v1")
    assert shown["log_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/logs"
    assert shown["output_url"] is None
    assert [one["status"] for one in shown["attempts"]] == ["FAILED", "RUNNING"]
    assert shown["attempts"][1] == {
        "attempt_number": 2,
        "start_time": "2026-11-18T12:00:00.001Z",
        "end_time": None,
        "status": "RUNNING",
        "executor_id": "x2",
        "error_message": None,
    }


def test_between_attempts_the_next_is_announced_and_the_last_error_kept() -> None:
    run = a_run(
        RunStatus.WAITING,
        reason=Reason.BACKOFF,
        past_attempts="F",
        next_at=NOON + 5 * MS,
        started_at=NOON,
        attempt_at=NOON,
    )
    shown = run_json(a_view(run, attempts=[an_attempt(1)]), "/v1")
    assert (shown["attempt_number"], shown["error_message"]) == (2, "no")
    assert shown["next_attempt_time"] == "2026-11-18T12:00:00.005Z"
    assert shown["reason"] == {"code": "BACKOFF", "text": REASON_TEXTS[Reason.BACKOFF]}
    assert len(shown["attempts"]) == 1


def test_a_run_that_ended_shows_what_it_left() -> None:
    run = a_run(
        RunStatus.FAILED,
        past_attempts="L",
        started_at=NOON,
        attempt_at=NOON,
        ended_at=NOON + MS,
        executor_id="x",
    )
    detail = Detail(
        error="exit 3", exit_code=3, log_blob="l", output_blob="o", output_truncated=True
    )
    view = a_view(run, detail=detail, attempts=[an_attempt(1, lost=True, error="")])
    shown = run_json(view, "/v1")
    assert [one["status"] for one in shown["attempts"]] == ["LOST", "FAILED"]
    assert (shown["exit_code"], shown["error_message"]) == (3, "exit 3")
    assert shown["output_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/output"
    assert shown["log_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/logs"
    assert (shown["output_truncated"], shown["log_truncated"]) == (True, False)
    listed = listed_run_json(view, "/v1")
    assert "attempts" not in listed
    assert listed["error_message"] == "exit 3"


def test_an_answer_over_http_is_shown_with_its_status_and_headers() -> None:
    detail = Detail(http_status=404, http_headers=(("content-type", "a"), ("via", "b")))
    run = a_run(RunStatus.FAILED, started_at=NOON, attempt_at=NOON, ended_at=NOON)
    shown = run_json(a_view(run, detail=detail), "/v1")
    assert shown["http_status"] == 404
    assert shown["http_headers"] == [["content-type", "a"], ["via", "b"]]


def test_an_empty_output_is_an_output() -> None:
    run = a_run(RunStatus.SUCCESS, started_at=NOON, attempt_at=NOON, ended_at=NOON)
    assert run_json(a_view(run, detail=Detail(output=b"")), "/v1")["output_url"] is not None


@pytest.mark.parametrize("payload", [None, 0, "", {"a": 1}])
def test_a_payload_is_shown_where_it_is_the_runs_own(payload: Any) -> None:
    view = a_view(a_run(trigger=Trigger.RUN_NOW), payload=payload, has_payload=True)
    assert run_json(view, "/v1")["payload"] == payload


def test_occurrences_in_bulk_are_one_entry() -> None:
    run = a_run(RunStatus.SKIPPED, reason=Reason.COALESCED, occurrence_count=7, last_at=NOON + 6 * MS)
    shown = listed_run_json(a_view(run), "/v1")
    assert (shown["count"], shown["reason"]["code"]) == (7, "COALESCED")
    assert shown["last_scheduled_time"] == "2026-11-18T12:00:00.006Z"


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    shown = listed_run_json(a_view(a_run(RunStatus.SKIPPED, reason=reason)), "/v1")
    assert shown["reason"]["code"] == reason.value
    assert len(shown["reason"]["text"]) > 15


@pytest.mark.parametrize("state", [JobStatus.PAUSED, JobStatus.COMPLETED, JobStatus.CANCELLED])
def test_a_job_at_rest_has_no_next_run(state: JobStatus) -> None:
    view = a_job()
    assert job_json(view, "/v1", NOON)["next_run_time"] == "2026-11-19T00:00:00.000Z"
    rested = view._replace(state=replace(view.state, status=state))
    assert job_json(rested, "/v1", NOON)["next_run_time"] is None
    assert status_json(rested, "/v1", NOON)["next_run_time"] is None


def test_what_is_fired_ahead_of_its_time_is_still_to_come() -> None:
    soon = NOON + timedelta(seconds=30)
    run = replace(a_run(), scheduled_at=soon, due_at=soon)
    view = a_job()
    ahead = view._replace(state=replace(view.state, runs=(run,), next_at=None))
    assert job_json(ahead, "/v1", NOON)["next_run_time"] == "2026-11-18T12:00:30.000Z"
    assert job_json(ahead, "/v1", soon)["next_run_time"] is None


def test_a_job_that_was_just_accepted_shows_the_run_it_began() -> None:
    view = a_job()
    head = replace(view.state, runs=(a_run(),), latest_run_id="r1")
    shown = job_json(view._replace(state=head), "/v1", NOON)
    assert shown["latest_run"]["run_id"] == "r1"
    found = a_view(a_run(RunStatus.SUCCESS))
    shown = job_json(view._replace(state=head, latest_run=found), "/v1", NOON)
    assert shown["latest_run"]["status"] == "SUCCESS"


def test_what_was_sent_comes_before_the_defaults() -> None:
    task = {"type": "http", "url": "https://example.com", "method": "PUT"}
    shown = job_json(a_job(task=task, retry={"multiplier": 1}, priority="LOW"), "/v1", NOON)
    assert shown["task"] == {**task, "follow_redirects": 0}
    assert shown["retry"]["multiplier"] == 1
    assert shown["retry"]["backoff_seconds"] == 5
    assert shown["priority"] == "LOW"


def test_times_are_in_utc_with_milliseconds() -> None:
    view = a_job()
    at = datetime(2026, 3, 4, 5, 6, 7, 891_999, tzinfo=UTC)
    shown = job_json(view._replace(state=replace(view.state, created_at=at)), "/v1", NOON)
    assert shown["created_at"] == "2026-03-04T05:06:07.891Z"
