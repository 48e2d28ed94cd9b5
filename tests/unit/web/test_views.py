"""The views of jobs and runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger
from punctual.engine.ports.rows import AttemptRow, Detail, JobLabel
from punctual.engine.queries.explain import REASON_TEXTS
from punctual.engine.queries.views import JobView, RunView
from punctual.web.views.job import job_json, status_json
from punctual.web.views.run import listed_run_json, run_json
from tests.support.web_world import NOON, WebWorld

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
    return WebWorld().submit("t", **sent)


def test_queued_run_shows_no_start() -> None:
    view_json = run_json(a_view(a_run()), "/v1")
    assert view_json["status"] == "QUEUED"
    assert view_json["attempts"] == []
    assert view_json["queued_at"] == "2026-11-18T12:00:00.000Z"
    empty = ("start_time", "end_time", "lateness_ms", "reason", "executor_id", "error_message")
    assert {view_json[name] for name in empty} == {None}
    urls = ("log_url", "output_url", "next_attempt_time", "exit_code", "retried_from")
    assert {view_json[name] for name in urls} == {None}
    assert (view_json["job_version"], view_json["attempt_number"], view_json["count"]) == (2, 1, 1)
    assert "payload" not in view_json


def test_lateness_is_shown_to_the_microsecond() -> None:
    run = a_run(RunStatus.RUNNING, started_at=NOON + timedelta(microseconds=412), attempt_at=NOON)
    assert run_json(a_view(run), "/v1")["lateness_ms"] == 0.412


def test_running_run_shows_its_attempt_and_log_url() -> None:
    run = a_run(
        RunStatus.RUNNING,
        started_at=NOON,
        attempt_at=NOON + MS,
        executor_id="x2",
        past_attempts="F",
    )
    view_json = run_json(a_view(run, attempts=[an_attempt(1)]), "/v1")
    assert view_json["log_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/logs"
    assert view_json["output_url"] is None
    assert [attempt["status"] for attempt in view_json["attempts"]] == ["FAILED", "RUNNING"]
    assert view_json["attempts"][1] == {
        "attempt_number": 2,
        "start_time": "2026-11-18T12:00:00.001Z",
        "end_time": None,
        "status": "RUNNING",
        "executor_id": "x2",
        "error_message": None,
    }


def test_waiting_run_shows_the_next_attempt_and_the_last_error() -> None:
    run = a_run(
        RunStatus.WAITING,
        reason=Reason.BACKOFF,
        past_attempts="F",
        next_at=NOON + 5 * MS,
        started_at=NOON,
        attempt_at=NOON,
    )
    view_json = run_json(a_view(run, attempts=[an_attempt(1)]), "/v1")
    assert (view_json["attempt_number"], view_json["error_message"]) == (2, "no")
    assert view_json["next_attempt_time"] == "2026-11-18T12:00:00.005Z"
    assert view_json["reason"] == {"code": "BACKOFF", "text": REASON_TEXTS[Reason.BACKOFF]}
    assert len(view_json["attempts"]) == 1


def test_ended_run_shows_its_results() -> None:
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
    view_json = run_json(view, "/v1")
    assert [attempt["status"] for attempt in view_json["attempts"]] == ["LOST", "FAILED"]
    assert (view_json["exit_code"], view_json["error_message"]) == (3, "exit 3")
    assert view_json["output_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/output"
    assert view_json["log_url"] == f"/v1/jobs/{JOB_ID}/runs/r1/logs"
    assert (view_json["output_truncated"], view_json["log_truncated"]) == (True, False)
    assert (view_json["claimed_at"], view_json["duration_ms"]) == (view_json["start_time"], 1)
    listed = listed_run_json(view, "/v1")
    assert "attempts" not in listed
    assert listed["error_message"] == "exit 3"


def test_http_run_shows_the_status_and_headers_of_the_answer() -> None:
    detail = Detail(http_status=404, http_headers=(("content-type", "a"), ("via", "b")))
    run = a_run(RunStatus.FAILED, started_at=NOON, attempt_at=NOON, ended_at=NOON)
    view_json = run_json(a_view(run, detail=detail), "/v1")
    assert view_json["http_status"] == 404
    assert view_json["http_headers"] == [["content-type", "a"], ["via", "b"]]


def test_empty_output_has_an_output_url() -> None:
    run = a_run(RunStatus.SUCCESS, started_at=NOON, attempt_at=NOON, ended_at=NOON)
    assert run_json(a_view(run, detail=Detail(output=b"")), "/v1")["output_url"] is not None


@pytest.mark.parametrize("payload", [None, 0, "", {"a": 1}])
def test_payload_of_a_run_is_shown_if_it_is_its_own(payload: Any) -> None:
    view = a_view(a_run(trigger=Trigger.RUN_NOW), payload=payload, has_payload=True)
    assert run_json(view, "/v1")["payload"] == payload


def test_counted_occurrences_are_one_entry() -> None:
    run = a_run(
        RunStatus.SKIPPED, reason=Reason.COALESCED, occurrence_count=7, last_at=NOON + 6 * MS
    )
    view_json = listed_run_json(a_view(run), "/v1")
    assert (view_json["count"], view_json["reason"]["code"]) == (7, "COALESCED")
    assert view_json["last_scheduled_time"] == "2026-11-18T12:00:00.006Z"


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_every_reason_has_a_text(reason: Reason) -> None:
    view_json = listed_run_json(a_view(a_run(RunStatus.SKIPPED, reason=reason)), "/v1")
    assert view_json["reason"]["code"] == reason.value
    assert len(view_json["reason"]["text"]) > 15


@pytest.mark.parametrize("state", [JobStatus.PAUSED, JobStatus.COMPLETED, JobStatus.CANCELLED])
def test_paused_or_ended_job_has_no_next_run_time(state: JobStatus) -> None:
    view = a_job()
    assert job_json(view, "/v1", NOON)["next_run_time"] == "2026-11-19T00:00:00.000Z"
    resting = view._replace(state=replace(view.state, status=state))
    assert job_json(resting, "/v1", NOON)["next_run_time"] is None
    assert status_json(resting, "/v1", NOON)["next_run_time"] is None


def test_run_fired_ahead_is_the_next_run_until_it_begins() -> None:
    soon = NOON + timedelta(seconds=30)
    run = replace(a_run(), scheduled_at=soon, due_at=soon, created_at=NOON)
    view = a_job()
    fired_ahead = view._replace(state=replace(view.state, runs=(run,), next_at=None))
    assert job_json(fired_ahead, "/v1", NOON)["next_run_time"] == "2026-11-18T12:00:30.000Z"
    late = soon + timedelta(seconds=20)
    assert job_json(fired_ahead, "/v1", late)["next_run_time"] == "2026-11-18T12:00:30.000Z"
    begun = replace(run, status=RunStatus.RUNNING, started_at=late)
    begun_view = view._replace(state=replace(view.state, runs=(begun,), next_at=None))
    assert job_json(begun_view, "/v1", late)["next_run_time"] is None


def test_new_job_shows_its_first_run() -> None:
    view = a_job()
    state = replace(view.state, runs=(a_run(),), latest_run_id="r1")
    view_json = job_json(view._replace(state=state), "/v1", NOON)
    assert view_json["latest_run"]["run_id"] == "r1"
    latest = a_view(a_run(RunStatus.SUCCESS))
    view_json = job_json(view._replace(state=state, latest_run=latest), "/v1", NOON)
    assert view_json["latest_run"]["status"] == "SUCCESS"


def test_sent_fields_replace_the_defaults() -> None:
    task = {"type": "http", "url": "https://example.com", "method": "PUT"}
    view_json = job_json(a_job(task=task, retry={"multiplier": 1}, priority="LOW"), "/v1", NOON)
    assert view_json["task"] == {**task, "follow_redirects": 0}
    assert view_json["retry"]["multiplier"] == 1
    assert view_json["retry"]["backoff_seconds"] == 5
    assert view_json["priority"] == "LOW"


def test_times_are_in_utc_with_milliseconds() -> None:
    view = a_job()
    at = datetime(2026, 3, 4, 5, 6, 7, 891_999, tzinfo=UTC)
    view_json = job_json(view._replace(state=replace(view.state, created_at=at)), "/v1", NOON)
    assert view_json["created_at"] == "2026-03-04T05:06:07.891Z"


def test_listed_run_names_its_job_and_its_task() -> None:
    listed = listed_run_json(a_view(a_run()), "/v1")
    assert (listed["job_name"], listed["task_type"]) == (None, "event")
    view = a_view(a_run(), label=JobLabel("nightly"), task_type="http")
    listed = listed_run_json(view, "/v1")
    assert (listed["job_name"], listed["task_type"]) == ("nightly", "http")


def test_latest_run_of_a_job_names_the_job() -> None:
    view = a_job()._replace(latest_run=a_view(a_run()))
    for shown in (job_json(view, "/v1", NOON), status_json(view, "/v1", NOON)):
        assert shown["latest_run"]["job_name"] == "a"
