"""Every field of a job: its default, its range, and the field name in its error."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    TIME,
    Api,
    Json,
    fields_of,
    instant,
    longest_script_seconds,
    script,
    soon,
    unique,
)
from tests.support.acceptance.values import EVERY_HOUR, dates, nested

DEFAULTS: dict[str, Json] = {
    "timezone": "UTC",
    "dst_gap": "NEXT",
    "dst_fold": "FIRST",
    "start_time": None,
    "end_time": None,
    "max_runs": None,
    "exclude": [],
    "jitter_seconds": 0,
    "misfire_policy": "RUN_ONCE",
    "misfire_grace_seconds": 60,
    "payload": None,
    "priority": "NORMAL",
    "max_concurrency": 1,
    "overlap_policy": "QUEUE",
    "max_waiting": 100,
    "timeout_seconds": 300,
    "max_retries": 3,
    "deadline_seconds": None,
    "delivery": "AT_LEAST_ONCE",
    "notify": [],
    "output": "keep",
    "tags": {},
}


def test_body_of_five_fields_creates_a_complete_job(api: Api) -> None:
    answer = api(
        "POST",
        "/jobs",
        {
            "name": "Daily Data Cleanup",
            "schedule_type": "CRON",
            "cron_expression": "0 0 * * *",
            "payload": {"table": "t"},
            "max_retries": 5,
        },
    )
    assert answer.status_code == 202
    job = answer.json()
    api.made.append(job["job_id"])
    assert answer.headers["Location"].endswith(f"/v1/jobs/{job['job_id']}")
    assert job["status"] == "SCHEDULED"
    assert (job["payload"], job["max_retries"]) == ({"table": "t"}, 5)
    assert job["next_run_time"].endswith("T00:00:00.000Z")
    assert job["latest_run"] is None
    assert job["created_by"]
    assert job["version"] == 1
    assert TIME.fullmatch(job["created_at"])
    assert TIME.fullmatch(job["updated_at"])
    assert job["job_id"][14] == "7"
    shown = api("GET", f"/jobs/{job['job_id']}")
    assert shown.json() == job
    assert shown.headers["ETag"] == '"1"'


def test_job_shows_all_defaults(api: Api) -> None:
    job = api.create(**NEVER_SOON)
    assert {name: job[name] for name in DEFAULTS} == DEFAULTS
    assert job["task"]["type"] == "event"
    assert job["retry"] == {
        "backoff_seconds": 5,
        "max_backoff_seconds": 300,
        "multiplier": 2,
        "jitter": True,
    }


def test_null_sets_a_default(api: Api) -> None:
    nulls = dict.fromkeys([*DEFAULTS, "retry", "task"])
    plain = api.create(**NEVER_SOON)
    job = api.create(**NEVER_SOON, **nulls)
    own = {"job_id", "name", "created_at", "updated_at"}
    assert {k: v for k, v in job.items() if k not in own} == {
        k: v for k, v in plain.items() if k not in own
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x"},
        {"name": "x" * 256},
        {"name": "\U0001f980" * 256},
        {"name": "  kept as sent \u00a0e\u0301"},
        {"timezone": "America/Argentina/Buenos_Aires"},
        {"dst_gap": "SKIP", "dst_fold": "BOTH"},
        {"dst_gap": "SHIFT", "dst_fold": "SECOND"},
        {"max_runs": 1},
        {"exclude": dates(366)},
        {"jitter_seconds": 3600},
        {"misfire_policy": "RUN_ALL", "misfire_grace_seconds": 0},
        {"misfire_policy": "SKIP", "misfire_grace_seconds": 86_400},
        {"payload": [None, True, 1, 1.5, "ü\U0001f980", {"": [], "a b": {}}]},
        {"payload": 0},
        {"payload": False},
        {"payload": "text"},
        {"payload": nested(64)},
        {"payload": "x" * (256 * 1024 - 2)},
        {"priority": "HIGH", "max_concurrency": 100, "overlap_policy": "SKIP"},
        {"priority": "LOW", "max_waiting": 1, "overlap_policy": "REPLACE"},
        {"max_waiting": 1000},
        {"timeout_seconds": 1},
        {"timeout_seconds": 900},
        {"max_retries": 0},
        {"max_retries": 100},
        {"deadline_seconds": 1},
        {"deadline_seconds": 2_592_000},
        {"delivery": "AT_MOST_ONCE", "max_retries": 0},
        {"output": "discard"},
        {"tags": {f"k{n}": "v" for n in range(50)}},
        {"tags": {"k" * 128: "v" * 256, "empty": ""}},
    ],
    ids=lambda fields: "+".join(fields),
)
def test_range_limits_of_each_field_are_accepted_and_kept(api: Api, fields: Json) -> None:
    job = api.create(**{**NEVER_SOON, **fields})
    stored = api.get(f"/jobs/{job['job_id']}")
    assert {name: stored[name] for name in fields if name != "task"} == {
        name: value for name, value in fields.items() if name != "task"
    }


@pytest.mark.needs("script")
def test_longest_script_is_accepted_and_a_longer_one_refused(api: Api) -> None:
    longest = longest_script_seconds(api)
    task = script("true")
    assert (
        api.create(**NEVER_SOON, task=task, timeout_seconds=longest)["timeout_seconds"] == longest
    )
    body = {"name": unique("n"), **NEVER_SOON, "task": task, "timeout_seconds": longest + 1}
    assert fields_of(api("POST", "/jobs", body)) == {"timeout_seconds"}


@pytest.mark.parametrize("seconds", [1, 31_622_400])
def test_interval_first_fires_one_interval_after_creation(api: Api, seconds: int) -> None:
    job = api.create(schedule_type="INTERVAL", interval_seconds=seconds, max_runs=1)
    created, first = instant(job["created_at"]), instant(job["next_run_time"])
    assert abs(first - created - timedelta(seconds=seconds)) < timedelta(milliseconds=2)
    assert job["interval_from"] == "SCHEDULED"


def test_interval_first_fires_at_its_start_time(api: Api) -> None:
    job = api.create(**EVERY_HOUR, start_time="2033-01-01T10:00:00+02:00")
    assert job["next_run_time"] == "2033-01-01T08:00:00.000Z"
    assert job["start_time"].startswith("2033-01-01T08:00:00")


def test_start_time_in_the_past_sets_the_phase(api: Api) -> None:
    job = api.create(**EVERY_HOUR, start_time="2026-01-01T00:17:00Z")
    assert ":17:00.000Z" in job["next_run_time"]
    assert api.runs(job["job_id"]) == []


@pytest.mark.parametrize(
    "sent", ["2032-12-01T10:00:00Z", "2032-12-01T12:00:00+02:00", "2032-12-01t10:00:00.000z"]
)
def test_future_job_accepts_any_utc_offset(api: Api, sent: str) -> None:
    job = api.create(schedule_type="FUTURE", schedule_time=sent)
    assert job["next_run_time"] == "2032-12-01T10:00:00.000Z"


def test_at_most_once_has_no_retries_by_default(api: Api) -> None:
    assert api.create(**NEVER_SOON, delivery="AT_MOST_ONCE")["max_retries"] == 0


@pytest.mark.parametrize("task", ["lambda", "sqs", "container"])
def test_unavailable_task_type_is_refused(api: Api, task: str) -> None:
    built = api("GET", "/health").json()["task_types"]
    own: dict[str, Json] = {
        "lambda": {"function": "f"},
        "sqs": {"queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/q"},
        "container": {"image": "alpine"},
    }
    answer = api(
        "POST", "/jobs", {"name": unique("n"), **NEVER_SOON, "task": {"type": task, **own[task]}}
    )
    if task in built:
        # The stage may limit the targets of a tenant's tasks. Then the error names the target.
        target = f"task.{next(iter(own[task]))}"
        assert answer.status_code == 202 or fields_of(answer) == {target}
    else:
        assert fields_of(answer) == {"task.type"}


def test_recent_past_time_runs_immediately_and_older_one_is_refused(api: Api) -> None:
    assert fields_of(
        api("POST", "/jobs", {"name": "n", "schedule_type": "FUTURE", "schedule_time": soon(-6)})
    ) == {"schedule_time"}
    job = api.create(schedule_type="FUTURE", schedule_time=soon(-3))
    assert api.only_run(job["job_id"])["status"] == "SUCCESS"
    assert datetime.fromisoformat(job["created_at"]) <= datetime.now(UTC)
