"""Changes, pause and end of a job: merge rules, versions, and the allowed calls of each status."""

import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    Json,
    fields_of,
    longest_script_seconds,
    script,
)
from tests.support.acceptance.target import Target

CRON = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
EVERY_HOUR = {"schedule_type": "INTERVAL", "interval_seconds": 3600}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_change_merges_top_level_fields(api: Api, method: str) -> None:
    job = api.create(**CRON, tags={"a": "1"}, payload={"x": 1, "y": 2}, max_retries=7)
    path = f"/jobs/{job['job_id']}"
    answer = api(method, path, {"tags": {"b": "2"}, "payload": {"z": 3}, "name": "new"})
    assert answer.status_code == 200
    changed = answer.json()
    assert (changed["tags"], changed["payload"]) == ({"b": "2"}, {"z": 3})
    assert (changed["name"], changed["max_retries"]) == ("new", 7)
    assert changed["cron_expression"] == "0 0 * * *"
    assert changed["version"] == job["version"] + 1
    assert answer.headers["ETag"] == f'"{changed["version"]}"'
    assert api.get(path) == changed


@pytest.mark.parametrize(
    ("first", "change", "then"),
    [
        (
            {"retry": {"backoff_seconds": 9, "jitter": False}},
            {"retry": {"multiplier": 3}},
            {
                "retry": {
                    "backoff_seconds": 5,
                    "max_backoff_seconds": 300,
                    "multiplier": 3,
                    "jitter": True,
                }
            },
        ),
        ({"exclude": ["2030-01-01"]}, {"exclude": ["2030-02-01"]}, {"exclude": ["2030-02-01"]}),
        ({"payload": {"a": 1}}, {"payload": None}, {"payload": None}),
        ({"max_retries": 9}, {"max_retries": None}, {"max_retries": 3}),
        ({"tags": {"a": "1"}}, {"tags": None}, {"tags": {}}),
        ({"timezone": "Asia/Tokyo"}, {"timezone": None}, {"timezone": "UTC"}),
        (
            {"priority": "LOW"},
            {"deadline_seconds": 60},
            {"priority": "LOW", "deadline_seconds": 60},
        ),
    ],
)
def test_change_replaces_a_field_completely(
    api: Api, first: Json, change: Json, then: Json
) -> None:
    job = api.create(**CRON, **first)
    changed = api("PATCH", f"/jobs/{job['job_id']}", change).json()
    assert {name: changed[name] for name in then} == then


@pytest.mark.needs("script")
def test_change_replaces_a_task_completely(api: Api) -> None:
    job = api.create(**CRON, task=script("true", env={"A": "1"}))
    task = api("PATCH", f"/jobs/{job['job_id']}", {"task": script("false")}).json()["task"]
    assert task["code"] == "false"
    assert not task.get("env")


def test_change_of_schedule_type_drops_the_former_fields(api: Api) -> None:
    job = api.create(**CRON, timezone="Europe/Berlin")
    path = f"/jobs/{job['job_id']}"
    changed = api("PATCH", path, EVERY_HOUR).json()
    assert changed["schedule_type"] == "INTERVAL"
    assert changed.get("cron_expression") is None
    changed = api(
        "PATCH", path, {"schedule_type": "FUTURE", "schedule_time": "2032-01-01T00:00:00Z"}
    )
    assert changed.json()["next_run_time"] == "2032-01-01T00:00:00.000Z"
    assert changed.json().get("interval_seconds") is None


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_defining_field_of_a_schedule_type_changes_the_type(api: Api, method: str) -> None:
    job = api.create(**CRON, timezone="Europe/Berlin", dst_gap="SKIP", priority="LOW")
    path = f"/jobs/{job['job_id']}"
    at = "2032-01-01T00:00:00.000Z"
    once = api(method, path, {"name": "once", "schedule_time": at}).json()
    assert (once["schedule_type"], once["next_run_time"], once["name"]) == ("FUTURE", at, "once")
    assert (once["cron_expression"], once["timezone"], once["priority"]) == (None, None, "LOW")
    hourly = api(method, path, {"interval_seconds": 3600}).json()
    assert (hourly["schedule_type"], hourly["schedule_time"]) == ("INTERVAL", None)
    nightly = api(method, path, {"cron_expression": "30 2 * * *"}).json()
    assert (nightly["schedule_type"], nightly["interval_seconds"]) == ("CRON", None)
    assert api.get(path) == nightly
    assert nightly["version"] == job["version"] + 3


def test_fields_of_two_schedule_types_are_refused(api: Api) -> None:
    path = f"/jobs/{api.create(**CRON)['job_id']}"
    at = "2032-01-01T00:00:00Z"
    two = {"schedule_time": at, "cron_expression": "0 1 * * *"}
    assert fields_of(api("PATCH", path, two)) == {"schedule_time"}
    assert fields_of(api("PUT", path, {"interval_seconds": 5, "colour": 1, "name": ""})) == {
        *("colour", "name")
    }
    assert fields_of(api("PATCH", path, {"schedule_time": at, "dst_gap": "SKIP"})) == {"dst_gap"}
    assert fields_of(api("PATCH", path, {"schedule_type": "CRON", "interval_seconds": 5})) == {
        "interval_seconds"
    }
    assert fields_of(api("PATCH", path, {"schedule_type": "INTERVAL"})) == {"interval_seconds"}
    assert api.get(path)["version"] == 1


@pytest.mark.needs("script")
def test_limits_are_checked_against_the_merged_job(api: Api) -> None:
    longest = longest_script_seconds(api)
    script_job = api.create(**CRON, task=script("true"), timeout_seconds=longest)
    change = {"task": {"type": "event"}, "timeout_seconds": max(longest, 901)}
    del change["timeout_seconds" if longest > 900 else "task"]
    answer = api("PATCH", f"/jobs/{script_job['job_id']}", change)
    assert "timeout_seconds" in fields_of(answer)
    once = api.create(**CRON, delivery="AT_MOST_ONCE")
    assert fields_of(api("PATCH", f"/jobs/{once['job_id']}", {"max_retries": 2})) == {"max_retries"}


def test_unchanged_schedule_fields_keep_the_phase(api: Api) -> None:
    job = api.create(**EVERY_HOUR)
    path = f"/jobs/{job['job_id']}"
    same = api("PATCH", path, {"name": "new", "interval_seconds": 3600}).json()
    assert same["next_run_time"] == job["next_run_time"]
    other = api("PATCH", path, {"interval_seconds": 7200}).json()
    assert other["next_run_time"] > job["next_run_time"]


def test_if_match_accepts_only_the_current_version(api: Api) -> None:
    path = f"/jobs/{api.create(**CRON)['job_id']}"
    first = api("GET", path).headers["ETag"]
    second = api("PATCH", path, {"name": "b"}, headers={"If-Match": first})
    assert second.status_code == 200
    assert second.headers["ETag"] != first
    assert api("PATCH", path, {"name": "c"}, headers={"If-Match": first}).status_code == 412
    assert api("PUT", path, {"name": "c"}, headers={"If-Match": first}).status_code == 412
    assert api.get(path)["name"] == "b"
    assert api("PATCH", path, {"name": "d"}, headers={"If-Match": "*"}).status_code == 200
    listed = {"If-Match": '"99", "3"'}
    assert api("PATCH", path, {"name": "e"}, headers=listed).status_code == 200
    assert api("PATCH", path, {"name": "f"}, headers={"If-Match": "junk"}).status_code in (412, 422)


def test_only_a_change_by_a_client_raises_the_version(api: Api) -> None:
    job = api.create(**CRON)
    run = api.run_now(job["job_id"])
    api.ended(run)
    assert api("GET", f"/jobs/{job['job_id']}").headers["ETag"] == f'"{job["version"]}"'


def test_delete_cancels_a_job_and_is_idempotent(api: Api) -> None:
    job = api.create(**CRON)
    path = f"/jobs/{job['job_id']}"
    first = api("DELETE", path)
    assert first.status_code == 200
    assert first.json()["status"] == "CANCELLED"
    assert first.json()["next_run_time"] is None
    second = api("DELETE", path)
    assert second.status_code == 200
    assert second.json() == first.json()
    assert api.get(path)["status"] == "CANCELLED"


def calls(job_id: str, run_id: str) -> dict[str, tuple[str, str, Json]]:
    path = f"/jobs/{job_id}"
    reach = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
    return {
        "PUT": ("PUT", path, {"name": "put"}),
        "PATCH": ("PATCH", path, {"name": "patched"}),
        "pause": ("POST", f"{path}/pause", {}),
        "resume": ("POST", f"{path}/resume", {}),
        "runNow": ("POST", f"{path}/runNow", {}),
        "backfill": ("POST", f"{path}/backfill", reach),
        "retry": ("POST", f"{path}/runs/{run_id}/retry", {}),
        "DELETE": ("DELETE", path, None),
    }


ALLOWED = {
    "SCHEDULED": {"pause": 200, "resume": 200, "runNow": 202, "backfill": 202, "retry": 202},
    "PAUSED": {"pause": 200, "resume": 200, "runNow": 202, "backfill": 202, "retry": 202},
    "COMPLETED": {"pause": 409, "resume": 409, "runNow": 202, "backfill": 202, "retry": 202},
    "CANCELLED": {"pause": 409, "resume": 409, "runNow": 409, "backfill": 409, "retry": 409},
}


def job_with_a_run(api: Api, status: str) -> tuple[str, str]:
    if status == "COMPLETED":
        job_id = api.create(schedule_type="IMMEDIATE")["job_id"]
        run = api.first_run(job_id)
    else:
        job_id = api.create(**EVERY_HOUR, start_time="2026-01-01T00:00:00Z")["job_id"]
        run = api.run_now(job_id)
    api.ended(run)
    if status == "PAUSED":
        api.order(job_id, "pause")
    if status == "CANCELLED":
        api("DELETE", f"/jobs/{job_id}")
    return job_id, run["run_id"]


@pytest.mark.parametrize("status", ALLOWED)
def test_job_status_decides_which_calls_are_allowed(api: Api, status: str) -> None:
    expected = {"PUT": 200, "PATCH": 200, **ALLOWED[status], "DELETE": 200}
    if status == "CANCELLED":
        expected |= {"PUT": 409, "PATCH": 409}
    job_id, run_id = job_with_a_run(api, status)
    statuses = {}
    for name, (method, path, body) in calls(job_id, run_id).items():
        statuses[name] = api(method, path, body).status_code
        if name == "resume" and status == "PAUSED":
            api.order(job_id, "pause")
        if name in ("PUT", "PATCH", "runNow", "backfill", "retry") and statuses[name] in (200, 202):
            api.job_in(job_id, status)
    assert statuses == expected


def test_completed_job_with_a_new_future_time_is_scheduled_again(api: Api) -> None:
    job = api.create(schedule_type="IMMEDIATE")
    path = f"/jobs/{job['job_id']}"
    done = api.job_in(job["job_id"], "COMPLETED")
    assert done["next_run_time"] is None
    assert done["latest_run"]["status"] == "SUCCESS"
    assert api("PATCH", path, {"name": "still over"}).json()["status"] == "COMPLETED"
    changed = api(
        "PATCH", path, {"schedule_type": "FUTURE", "schedule_time": "2032-01-01T00:00:00Z"}
    )
    assert changed.json()["status"] == "SCHEDULED"
    assert changed.json()["next_run_time"] == "2032-01-01T00:00:00.000Z"


def test_pause_and_resume_are_idempotent_and_show_the_next_time(api: Api) -> None:
    job = api.create(**CRON)
    path = f"/jobs/{job['job_id']}"
    paused = api.order(job["job_id"], "pause")
    assert (paused["status"], paused["next_run_time"]) == ("PAUSED", None)
    assert api.order(job["job_id"], "pause") == paused
    changed = api("PATCH", path, {"cron_expression": "30 0 * * *"}).json()
    assert (changed["status"], changed["next_run_time"]) == ("PAUSED", None)
    resumed = api.order(job["job_id"], "resume")
    assert resumed["status"] == "SCHEDULED"
    assert resumed["next_run_time"].endswith("T00:30:00.000Z")
    assert api.order(job["job_id"], "resume") == resumed
    for missed in ("SKIP", "RUN_ONCE", "RUN_ALL"):
        api.order(job["job_id"], "resume", {"missed": missed})
    assert fields_of(api("POST", f"{path}/resume", {"missed": "ALL"})) == {"missed"}
    assert fields_of(api("POST", f"{path}/resume", {"colour": 1})) == {"colour"}


def test_delete_stops_running_runs_within_five_seconds(api: Api, target: Target) -> None:
    job = api.create(**NEVER_SOON, task=target.hold(30), max_concurrency=2)
    runs = [api.run_now(job["job_id"]) for _ in range(3)]
    for run in runs[:2]:
        api.in_status(run, "RUNNING")
    assert api.run(job["job_id"], runs[2]["run_id"])["status"] == "WAITING"
    api("DELETE", f"/jobs/{job['job_id']}")
    assert api.run(job["job_id"], runs[2]["run_id"])["status"] == "CANCELLED"
    for run in runs:
        assert api.ended(run, within=5)["status"] == "CANCELLED"
