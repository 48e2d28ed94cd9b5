"""Combinations of two rules."""

import pytest

from tests.support.acceptance.contract import (
    EVERY_SECOND,
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    instant,
    runs_on_node,
    script,
    soon,
    unique,
)
from tests.support.acceptance.target import Target
from tests.support.acceptance.values import EVERY_HOUR

SLOW_RETRY = {"backoff_seconds": 60, "jitter": False}
STUBBORN = script("trap '' TERM INT HUP; echo up; while :; do sleep 0.1; done")


def in_backoff(api: Api, target: Target, **fields: Json) -> Json:
    failing = {"schedule_type": "IMMEDIATE", "task": target.task("/500")}
    job = {**failing, "retry": SLOW_RETRY, **fields}
    job_id = api.create(**job)["job_id"]
    return api.in_status(api.first_run(job_id), "WAITING")


def test_waiting_run_between_attempts_is_cancelled(api: Api, target: Target) -> None:
    run = in_backoff(api, target)
    answer = api("POST", f"/jobs/{run['job_id']}/runs/{run['run_id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "CANCELLED")
    done = api.ended(run)
    assert (done["status"], len(done["attempts"])) == ("CANCELLED", 1)
    assert done["next_attempt_time"] is None
    api.job_in(run["job_id"], "COMPLETED")


def test_job_cancelled_between_attempts_cancels_its_run(api: Api, target: Target) -> None:
    run = in_backoff(api, target)
    api("DELETE", f"/jobs/{run['job_id']}")
    assert api.run(run["job_id"], run["run_id"])["status"] == "CANCELLED"


def test_started_run_continues_while_its_job_is_paused(api: Api, target: Target) -> None:
    retry = {"backoff_seconds": 2, "jitter": False}
    run = in_backoff(api, target, max_retries=1, retry=retry)
    paused = api.order(run["job_id"], "pause")
    assert paused["status"] == "PAUSED"
    done = api.ended(run)
    assert (done["status"], len(done["attempts"])) == ("FAILED", 2)
    api.order(run["job_id"], "resume")
    api.job_in(run["job_id"], "COMPLETED")


def test_job_with_a_running_run_is_not_completed(api: Api, target: Target) -> None:
    job_id = api.create(schedule_type="IMMEDIATE", task=target.hold(30))["job_id"]
    run = api.in_status(api.first_run(job_id), "RUNNING")
    status = api.get(f"/jobs/{job_id}/status")
    assert (status["status"], status["next_run_time"]) == ("SCHEDULED", None)
    assert status["latest_run"]["run_id"] == run["run_id"]
    api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/cancel")
    assert api.ended(run, 5)["status"] == "CANCELLED"
    api.job_in(job_id, "COMPLETED")


@pytest.mark.needs("script")
def test_script_that_ignores_signals_is_stopped(api: Api) -> None:
    job_id = api.create(**NEVER_SOON, task=STUBBORN, max_concurrency=2)["job_id"]
    late = api.create(**NEVER_SOON, task=STUBBORN, timeout_seconds=1, max_retries=0)["job_id"]
    run, timed = api.run_now(job_id), api.run_now(late)
    eventually(lambda: api.run(job_id, run["run_id"])["status"] == "RUNNING")
    eventually(lambda: api.output(run, "logs") == b"up\n")
    api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/cancel")
    # A detached runner learns of it within 4 s, and then the script has 2 s to end by itself.
    assert api.ended(run, 5 if runs_on_node(api) else 10)["status"] == "CANCELLED"
    assert api.ended(timed, 10)["status"] == "TIMED_OUT"


def test_cancelled_run_may_be_retried(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30), payload="again")["job_id"]
    run = api.in_status(api.run_now(job_id), "RUNNING")
    api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/cancel")
    api.ended(run)
    api("PATCH", f"/jobs/{job_id}", {"task": target.task("/echo")})
    retry = api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/retry").json()
    done = api.ended(retry)
    assert (done["status"], done["retried_from"]) == ("SUCCESS", run["run_id"])
    assert done["scheduled_time"] == run["scheduled_time"]
    assert api.output(done) == b'"again"'


def test_output_of_an_unfinished_run_is_empty_or_404(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30))["job_id"]
    running, waiting = api.run_now(job_id), api.run_now(job_id)
    api.in_status(running, "RUNNING")
    for run in (running, waiting):
        for name in ("output", "logs"):
            path = f"/jobs/{job_id}/runs/{run['run_id']}/{name}"
            answer = api("GET", path)
            assert (answer.status_code, answer.content) in ((200, b""), (404, answer.content))


def test_latest_run_is_the_last_one_that_was_not_skipped(api: Api, target: Target) -> None:
    fields = {"task": target.hold(30), "overlap_policy": "SKIP"}
    job_id = api.create(**EVERY_SECOND, **fields)["job_id"]
    eventually(lambda: api.runs(job_id, status="SKIPPED"))
    (running,) = api.runs(job_id, status="RUNNING")
    assert api.get(f"/jobs/{job_id}/status")["latest_run"]["run_id"] == running["run_id"]


def test_start_and_end_time_bound_a_cron_schedule(api: Api) -> None:
    cron = {"schedule_type": "CRON", "cron_expression": "0 12 * * *"}
    job = api.create(**cron, start_time="2031-01-01T12:00:00Z", end_time="2031-01-03T12:00:00Z")
    assert job["next_run_time"] == "2031-01-01T12:00:00.000Z"
    window = {"from_": "2031-01-01T00:00:00Z", "to": "2031-01-10T00:00:00Z"}
    times = eventually(
        lambda: [
            time["utc"][:10]
            for time in api.pages("/schedules/upcoming", "times", **window)
            if time["job_id"] == job["job_id"]
        ]
    )
    assert times == ["2031-01-01", "2031-01-02"]
    excluded = api.create(**cron, start_time="2031-01-01T00:00:00Z", exclude=["2031-01-01"])
    assert excluded["next_run_time"] == "2031-01-02T12:00:00.000Z"
    wrong = {"start_time": "2031-01-03T00:00:00Z", "end_time": "2031-01-02T00:00:00Z"}
    assert "end_time" in fields_of(api("POST", "/jobs", {"name": unique("n"), **cron, **wrong}))
    past = {"end_time": "2020-01-02T00:00:00Z"}
    assert fields_of(api("POST", "/jobs", {"name": unique("n"), **cron, **past})) == {"end_time"}


def test_completed_schedule_continues_with_a_higher_max_runs(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND, max_runs=1)["job_id"]
    api.job_in(job_id, "COMPLETED")
    changed = api("PATCH", f"/jobs/{job_id}", {"max_runs": 3}).json()
    assert changed["status"] == "SCHEDULED"
    assert changed["next_run_time"]
    api.job_in(job_id, "COMPLETED")
    times = [instant(run["scheduled_time"]) for run in api.runs(job_id, status="SUCCESS")]
    assert len(times) == len(set(times)) == 3


def test_earlier_end_time_completes_and_later_one_resumes_a_job(api: Api) -> None:
    job_id = api.create(**EVERY_HOUR)["job_id"]
    path = f"/jobs/{job_id}"
    ended = api("PATCH", path, {"end_time": soon(5)}).json()
    assert (ended["status"], ended["next_run_time"]) == ("COMPLETED", None)
    reopened = api("PATCH", path, {"end_time": None}).json()
    assert reopened["status"] == "SCHEDULED"
    assert reopened["next_run_time"]


def test_backfill_omits_an_occurrence_that_ran(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND, max_runs=3)["job_id"]
    created = api.get(f"/jobs/{job_id}")["created_at"]
    api.job_in(job_id, "COMPLETED")
    runs = api.runs(job_id, status="SUCCESS")
    body = {"from": runs[0]["scheduled_time"], "to": runs[-1]["scheduled_time"], "dry_run": True}
    assert api.order(job_id, "backfill", body) == {"runs": 0, "times": []}
    assert created <= runs[0]["scheduled_time"]


def test_backfill_repeats_an_occurrence_that_was_missed(api: Api, target: Target) -> None:
    fields = {"start_time": "2026-01-01T00:00:00Z", "deadline_seconds": 1}
    job_id = api.create(**EVERY_HOUR, **fields, task=target.hold(4))["job_id"]
    busy = api.in_status(api.run_now(job_id), "RUNNING")
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
    assert api.order(job_id, "backfill", body) == {"runs": 1}
    (missed,) = api.runs(job_id, trigger="BACKFILL")
    assert api.ended(missed)["status"] == "MISSED"
    api.ended(busy)
    api("PATCH", f"/jobs/{job_id}", {"deadline_seconds": None, "task": {"type": "event"}})
    assert api.order(job_id, "backfill", body) == {"runs": 1}
    eventually(lambda: api.runs(job_id, trigger="BACKFILL", status="SUCCESS"))
    assert api.order(job_id, "backfill", body) == {"runs": 0}
    assert api.run(job_id, missed["run_id"])["status"] == "MISSED"


def test_explain_names_the_backfill_run(api: Api) -> None:
    job_id = api.create(**EVERY_HOUR, start_time="2026-01-01T00:00:00Z")["job_id"]
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
    api.order(job_id, "backfill", body)
    run = api.ended(api.first_run(job_id))
    explanation = api.get(f"/jobs/{job_id}/explain", at="2026-01-01T00:00:00Z")
    assert (explanation["outcome"], explanation["run_id"]) == ("SUCCESS", run["run_id"])


@pytest.mark.parametrize("kind", ["secret", "artifact"])
def test_unavailable_secret_or_artifact_is_refused_with_its_field(
    api: Api, target: Target, kind: str
) -> None:
    secret = {"type": "http", "url": target.url("/s"), "headers": {"X": "{{secret:nope}}"}}
    artifact = {"type": "script", "runtime": "bash", "artifact_id": "0" * 64}
    fields: Json = {
        "secret": {"task": secret},
        "artifact": {"task": artifact},
    }[kind]
    answer = api("POST", "/jobs", {"name": unique("n"), **NEVER_SOON, **fields})
    assert answer.status_code in (202, 422)
    if answer.status_code == 422:
        (field,) = fields_of(answer)
        assert field.split(".")[0] in fields
    else:
        api.made.append(answer.json()["job_id"])
