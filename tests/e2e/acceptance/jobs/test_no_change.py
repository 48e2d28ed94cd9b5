"""A change without a difference creates no version and no audit entry, and keeps the phase."""

import pytest

from punctual.web.models.job import READ_ONLY_FIELDS
from tests.support.acceptance.contract import (
    EVERY_SECOND,
    NEVER_SOON,
    Api,
    Json,
    eventually,
    unique,
)
from tests.support.acceptance.values import EVERY_HOUR

_EVERY_FIELD = {
    "timezone": "Europe/Berlin",
    "start_time": "2026-01-01T00:20:00+01:00",
    "end_time": "2099-01-01T00:00:00Z",
    "max_runs": 7,
    "exclude": ["2031-05-05", "2030-12-24"],
    "jitter_seconds": 3,
    "misfire_policy": "SKIP",
    "misfire_grace_seconds": 0,
    "task": {"type": "http", "url": "http://192.0.2.1/", "headers": {"X-A": "b"}, "method": "PUT"},
    "payload": {"a": [1, 2.5, None, True, "é"]},
    "priority": "LOW",
    "max_concurrency": 2,
    "overlap_policy": "REPLACE",
    "max_waiting": 7,
    "timeout_seconds": 17,
    "max_retries": 2,
    "retry": {"backoff_seconds": 1.5, "max_backoff_seconds": 9, "multiplier": 3, "jitter": False},
    "deadline_seconds": 77,
    "delivery": "AT_LEAST_ONCE",
    "output": "discard",
    "tags": {"team": "data"},
}
JOBS: dict[str, Json] = {
    "immediate": {"schedule_type": "IMMEDIATE"},
    "future": {"schedule_type": "FUTURE", "schedule_time": "2031-01-01T01:00:00.5+01:00"},
    "cron": NEVER_SOON,
    "cron_of_eventbridge": {"schedule_type": "CRON", "cron_expression": "cron(0 0 29 2 ? *)"},
    "rate": {"schedule_type": "CRON", "cron_expression": "rate(7 hours)"},
    "interval": EVERY_HOUR,
    "interval_from_completion": {**EVERY_HOUR, "interval_from": "COMPLETED"},
    "at_most_once": {**NEVER_SOON, "delivery": "AT_MOST_ONCE"},
    "every_field_of_cron": {**NEVER_SOON, **_EVERY_FIELD, "dst_gap": "SHIFT", "dst_fold": "BOTH"},
    "every_field_of_interval": {**EVERY_HOUR, **_EVERY_FIELD},
}


def writable(job: Json) -> Json:
    return {name: value for name, value in job.items() if name not in READ_ONLY_FIELDS}


def lines(api: Api, job_id: str) -> list[Json]:
    entries = api.get("/audit", job_id=job_id)["entries"]
    return [line["action"] for line in entries]


@pytest.mark.parametrize("fields", JOBS.values(), ids=JOBS)
def test_put_of_an_unchanged_job_changes_nothing(api: Api, fields: Json) -> None:
    job_id = api.create(name=unique("same"), **fields)["job_id"]
    eventually(lambda: lines(api, job_id) == ["job.create"])
    path = f"/jobs/{job_id}"
    before = api("GET", path)
    after = api("PUT", path, writable(before.json()))
    assert after.status_code == 200, after.text
    assert after.headers["ETag"] == before.headers["ETag"] == '"1"'
    for name in ("version", "updated_at", "next_run_time", *writable(before.json())):
        if fields["schedule_type"] != "IMMEDIATE" or name != "next_run_time":
            assert after.json()[name] == before.json()[name], name
    mark = api("PATCH", path, {"tags": {"a": "mark"}})  # the last expected entry
    assert mark.headers["ETag"] == '"2"'
    eventually(lambda: lines(api, job_id)[0] == "job.update")
    assert lines(api, job_id) == ["job.update", "job.create"]


@pytest.mark.parametrize(
    "fields",
    [
        {"timezone": "UTC"},
        {"priority": "NORMAL"},
        {"jitter_seconds": 0},
        {"exclude": []},
        {"task": {"type": "event"}},
        {"tags": {}},
        {"retry": {"multiplier": 2}},
        {"retry": None},
        {"max_retries": 3},
        {"notify": []},
        {"end_time": None},
        {"interval_from": "SCHEDULED"},
    ],
    ids=str,
)
def test_explicit_default_is_not_a_change(api: Api, fields: Json) -> None:
    job = api.create(**EVERY_HOUR)
    answer = api("PATCH", f"/jobs/{job['job_id']}", fields)
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"1"')
    assert answer.json() == job


def test_explicit_schedule_defaults_do_not_restart_the_schedule(api: Api) -> None:
    """`max_runs` counts from the last change of the schedule."""
    job_id = api.create(**EVERY_SECOND, max_runs=2)["job_id"]
    done = api.job_in(job_id, "COMPLETED")
    body = {**writable(done), "name": "another"}
    changed = api("PUT", f"/jobs/{job_id}", body)
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    assert (changed.json()["status"], changed.json()["next_run_time"]) == ("COMPLETED", None)
