"""Every field of a job: what it is by default, how far it goes, and the name it is refused by."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.acceptance.contract import NEVER_SOON, TIME, Api, Json, fields_of, script, soon

EVERY_HOUR = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
LATER = {"schedule_type": "FUTURE", "schedule_time": "2032-12-01T10:00:00Z"}
HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}

DEFAULTS = {
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
    "tags": {},
}


def dates(count: int) -> list[str]:
    return [f"{datetime(2030, 1, 1) + timedelta(days=n):%Y-%m-%d}" for n in range(count)]  # noqa: DTZ001


def nested(levels: int) -> Json:
    value: Json = 0
    for _ in range(levels):
        value = [value]
    return value


def test_a_body_of_five_fields_is_a_whole_job(api: Api) -> None:
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
    again = api("GET", f"/jobs/{job['job_id']}")
    assert again.json() == job
    assert again.headers["ETag"] == '"1"'


def test_defaults_are_shown(api: Api) -> None:
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
    own = {"job_id", "created_at", "updated_at"}
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
        {"timeout_seconds": 86_400, "task": script("true")},
        {"max_retries": 0},
        {"max_retries": 100},
        {"deadline_seconds": 1},
        {"deadline_seconds": 2_592_000},
        {"delivery": "AT_MOST_ONCE", "max_retries": 0},
        {"tags": {f"k{n}": "v" for n in range(50)}},
        {"tags": {"k" * 128: "v" * 256, "empty": ""}},
    ],
    ids=lambda fields: "+".join(fields),
)
def test_the_ends_of_each_range_are_taken_and_kept(api: Api, fields: Json) -> None:
    job = api.create(**{**NEVER_SOON, **fields})
    kept = api.get(f"/jobs/{job['job_id']}")
    assert {name: kept[name] for name in fields if name != "task"} == {
        name: value for name, value in fields.items() if name != "task"
    }


@pytest.mark.parametrize("seconds", [1, 31_622_400])
def test_an_interval_first_fires_one_interval_after_creation(api: Api, seconds: int) -> None:
    job = api.create(schedule_type="INTERVAL", interval_seconds=seconds, max_runs=1)
    created = datetime.fromisoformat(job["created_at"])
    first = datetime.fromisoformat(job["next_run_time"])
    assert timedelta(0) <= created + timedelta(seconds=seconds) - first < timedelta(seconds=1.1) or (
        abs(first - created - timedelta(seconds=seconds)) < timedelta(milliseconds=2)
    )
    assert job["interval_from"] == "SCHEDULED"


def test_an_interval_first_fires_at_its_start_time(api: Api) -> None:
    job = api.create(**EVERY_HOUR, start_time="2033-01-01T10:00:00+02:00")
    assert job["next_run_time"] == "2033-01-01T08:00:00.000Z"
    assert job["start_time"].startswith("2033-01-01T08:00:00")


def test_a_start_time_in_the_past_sets_the_phase(api: Api) -> None:
    job = api.create(**EVERY_HOUR, start_time="2026-01-01T00:17:00Z")
    assert ":17:00.000Z" in job["next_run_time"]
    assert api.runs(job["job_id"]) == []


@pytest.mark.parametrize(
    "sent", ["2032-12-01T10:00:00Z", "2032-12-01T12:00:00+02:00", "2032-12-01t10:00:00.000z"]
)
def test_a_future_job_takes_any_offset(api: Api, sent: str) -> None:
    job = api.create(schedule_type="FUTURE", schedule_time=sent)
    assert job["next_run_time"] == "2032-12-01T10:00:00.000Z"


def test_at_most_once_has_no_retries_by_default(api: Api) -> None:
    assert api.create(**NEVER_SOON, delivery="AT_MOST_ONCE")["max_retries"] == 0


WRONG: list[tuple[str, Json, dict[str, Any]]] = [
    *[("name", NEVER_SOON, {"name": v}) for v in ("", "x" * 257, "a\x00", "a\nb", "\x7f", 5, None)],
    *[("schedule_type", {}, {"schedule_type": v}) for v in ("cron", "", 1, None)],
    ("schedule_type", {}, {}),
    ("schedule_time", {"schedule_type": "FUTURE"}, {}),
    *[
        ("schedule_time", LATER, {"schedule_time": v})
        for v in ("tomorrow", "2032-12-01T10:00:00", "2032-13-01T10:00:00Z", 5, "", None)
    ],
    ("cron_expression", {"schedule_type": "CRON"}, {}),
    *[
        ("cron_expression", NEVER_SOON, {"cron_expression": v})
        for v in (
            *("", "x", "* * * *", "* * * * * * *", "60 * * * *", "*/0 * * * *", "0 0 30 2 *"),
            *("@reboot", "H * * * *", "R * * * *", "0~30 * * * *", "@fortnightly", 5, "rate()"),
            *("rate(0 minutes)", "cron(0 10 * * * *)", "at(2001-01-01T00:00:00)", "\x00", "* " * 999),
        )
    ],
    *[("timezone", NEVER_SOON, {"timezone": v}) for v in ("Mars/Base", "../UTC", "", "\x00", 1)],
    *[("dst_gap", NEVER_SOON, {"dst_gap": v}) for v in ("next", "FIRST", 1)],
    *[("dst_fold", NEVER_SOON, {"dst_fold": v}) for v in ("NEXT", False)],
    ("interval_seconds", {"schedule_type": "INTERVAL"}, {}),
    *[
        ("interval_seconds", EVERY_HOUR, {"interval_seconds": v})
        for v in (0, -1, 31_622_401, "300", True, 1.5, 10**30, None)
    ],
    ("interval_from", EVERY_HOUR, {"interval_from": "STARTED"}),
    ("max_concurrency", EVERY_HOUR, {"interval_from": "COMPLETED", "max_concurrency": 2}),
    *[("start_time", NEVER_SOON, {"start_time": v}) for v in ("x", 5, "2032-01-01")],
    *[("end_time", NEVER_SOON, {"end_time": v}) for v in ("x", 5)],
    *[("max_runs", NEVER_SOON, {"max_runs": v}) for v in (0, -1, "1", True)],
    *[("exclude", NEVER_SOON, {"exclude": v}) for v in (dates(367), "2030-01-01", {})],
    *[("jitter_seconds", NEVER_SOON, {"jitter_seconds": v}) for v in (-1, 3601, True, "0")],
    ("misfire_policy", NEVER_SOON, {"misfire_policy": "RUN"}),
    *[("misfire_grace_seconds", NEVER_SOON, {"misfire_grace_seconds": v}) for v in (-1, 86_401)],
    ("payload", NEVER_SOON, {"payload": nested(65)}),
    ("payload", NEVER_SOON, {"payload": "x" * (256 * 1024 - 1)}),
    ("payload.a.0", NEVER_SOON, {"payload": {"a": ["\x00"]}}),
    ("payload.\\u0000", NEVER_SOON, {"payload": {"\x00": 1}}),
    *[("priority", NEVER_SOON, {"priority": v}) for v in ("high", 1)],
    *[("max_concurrency", NEVER_SOON, {"max_concurrency": v}) for v in (0, 101, "1", 1.5)],
    ("overlap_policy", NEVER_SOON, {"overlap_policy": "DROP"}),
    *[("max_waiting", NEVER_SOON, {"max_waiting": v}) for v in (0, 1001)],
    *[("timeout_seconds", NEVER_SOON, {"timeout_seconds": v}) for v in (0, 901, 86_400)],
    ("timeout_seconds", NEVER_SOON, {"timeout_seconds": 901, "task": HTTP}),
    ("timeout_seconds", NEVER_SOON, {"timeout_seconds": 86_401, "task": script("true")}),
    *[("max_retries", NEVER_SOON, {"max_retries": v}) for v in (-1, 101, "300", True)],
    ("max_retries", NEVER_SOON, {"delivery": "AT_MOST_ONCE", "max_retries": 1}),
    *[("retry", NEVER_SOON, {"retry": v}) for v in ([], 5, "x")],
    ("retry.backoff_seconds", NEVER_SOON, {"retry": {"backoff_seconds": -1}}),
    ("retry.max_backoff_seconds", NEVER_SOON, {"retry": {"max_backoff_seconds": "x"}}),
    ("retry.multiplier", NEVER_SOON, {"retry": {"multiplier": "2"}}),
    ("retry.jitter", NEVER_SOON, {"retry": {"jitter": 1}}),
    ("retry.factor", NEVER_SOON, {"retry": {"factor": 1}}),
    *[("deadline_seconds", NEVER_SOON, {"deadline_seconds": v}) for v in (0, 2_592_001)],
    ("delivery", NEVER_SOON, {"delivery": "EXACTLY_ONCE"}),
    *[("tags", NEVER_SOON, {"tags": v}) for v in ({f"k{n}": "" for n in range(51)}, [], "a:b")],
    ("tags.team", NEVER_SOON, {"tags": {"team": 5}}),
    ("tags.team", NEVER_SOON, {"tags": {"team": "v" * 257}}),
    ("tags.a:b", NEVER_SOON, {"tags": {"a:b": "v"}}),
    *[("schedule_time", NEVER_SOON, {"schedule_time": "2032-12-01T10:00:00Z"})],
    ("interval_seconds", NEVER_SOON, {"interval_seconds": 5}),
    ("cron_expression", EVERY_HOUR, {"cron_expression": "0 0 * * *"}),
    ("cron_expression", {"schedule_type": "IMMEDIATE"}, {"cron_expression": "0 0 * * *"}),
    ("max_runs", LATER, {"max_runs": 2}),
    ("colour", NEVER_SOON, {"colour": "red"}),
    *[(name, NEVER_SOON, {name: "x"}) for name in ("status", "job_id", "version", "next_run_time")],
    *[("task", NEVER_SOON, {"task": v}) for v in ("event", [], 5)],
    ("task.type", NEVER_SOON, {"task": {"type": "ftp"}}),
    ("task.type", NEVER_SOON, {"task": {}}),
    ("task.url", NEVER_SOON, {"task": {"type": "http"}}),
    ("task.url", NEVER_SOON, {"task": {"type": "event", "url": "http://x"}}),
    *[("task.url", NEVER_SOON, {"task": {**HTTP, "url": v}}) for v in ("x", "ftp://h/", 5, "")],
    *[("task.method", NEVER_SOON, {"task": {**HTTP, "method": v}}) for v in ("G T", "", 5)],
    *[("task.follow_redirects", NEVER_SOON, {"task": {**HTTP, "follow_redirects": v}}) for v in (-1, 6)],
    ("task.headers", NEVER_SOON, {"task": {**HTTP, "headers": {f"h{n}": "" for n in range(51)}}}),
    ("task.headers", NEVER_SOON, {"task": {**HTTP, "headers": {"h": "x" * 8193}}}),
    ("task.runtime", NEVER_SOON, {"task": {"type": "script", "runtime": "perl", "code": "1"}}),
    ("task.code", NEVER_SOON, {"task": script("x" * (64 * 1024 + 1))}),
    ("task.colour", NEVER_SOON, {"task": {"type": "event", "colour": "red"}}),
]


@pytest.mark.parametrize(
    ("field", "base", "fields"), WRONG, ids=[f"{n}-{case[0]}" for n, case in enumerate(WRONG)]
)
def test_a_wrong_field_is_refused_by_its_name(
    api: Api, field: str, base: Json, fields: dict[str, Any]
) -> None:
    body = {"name": "wrong", **base, **fields}
    assert fields_of(api("POST", "/jobs", body)) == {field}


def test_every_wrong_field_is_named_at_once(api: Api) -> None:
    body = {
        "name": "",
        **NEVER_SOON,
        "cron_expression": "61 * * * *",
        "timezone": "Mars/Base",
        "max_retries": "300",
        "priority": "URGENT",
        "retry": {"multiplier": "x", "backoff_seconds": -1},
        "tags": {"team": 5, "a:b": "v"},
        "task": {"type": "http", "url": "ftp://h/", "colour": 1},
        "colour": "red",
        "interval_seconds": 5,
    }
    expected = {"name", "cron_expression", "timezone", "max_retries", "priority", "colour"}
    expected |= {"retry.multiplier", "retry.backoff_seconds", "tags.team", "tags.a:b"}
    expected |= {"task.url", "task.colour", "interval_seconds"}
    assert fields_of(api("POST", "/jobs", body)) == expected


@pytest.mark.parametrize("task", ["lambda", "sqs", "container"])
def test_what_is_not_built_is_refused_and_says_so(api: Api, task: str) -> None:
    built = api.get("/health")["task_types"]
    own: dict[str, Json] = {
        "lambda": {"function": "f"},
        "sqs": {"queue_url": "https://sqs.eu-west-1.amazonaws.com/1/q"},
        "container": {"image": "alpine"},
    }
    answer = api("POST", "/jobs", {"name": "n", **NEVER_SOON, "task": {"type": task, **own[task]}})
    if task in built:
        assert answer.status_code == 202
    else:
        assert fields_of(answer) == {"task.type"}


def test_a_time_in_the_past_runs_at_once_or_is_refused(api: Api) -> None:
    assert fields_of(
        api("POST", "/jobs", {"name": "n", "schedule_type": "FUTURE", "schedule_time": soon(-6)})
    ) == {"schedule_time"}
    job = api.create(schedule_type="FUTURE", schedule_time=soon(-3))
    assert api.only_run(job["job_id"])["status"] == "SUCCESS"
    assert datetime.fromisoformat(job["created_at"]) <= datetime.now(UTC)
