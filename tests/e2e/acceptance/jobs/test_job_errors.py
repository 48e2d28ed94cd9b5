"""A wrong job is refused, and the error names all wrong fields."""

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, fields_of, script
from tests.support.acceptance.values import EVERY_HOUR, dates, nested

LATER = {"schedule_type": "FUTURE", "schedule_time": "2032-12-01T10:00:00Z"}
HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}


def cases(field: str, base: Json, *values: Json) -> list[tuple[str, Json, Json]]:
    return [(field, base, {field: value}) for value in values]


WRONG: list[tuple[str, Json, Json]] = [
    *cases("name", NEVER_SOON, *("", "x" * 257, "a\x00", "a\nb", "\x7f", 5, None)),
    *cases("schedule_type", {}, *("cron", "", 1, None)),
    ("schedule_type", {}, {}),
    ("schedule_time", {"schedule_type": "FUTURE"}, {}),
    *cases(
        "schedule_time",
        LATER,
        *("tomorrow", "2032-12-01T10:00:00", "2032-13-01T10:00:00Z", 5, "", None),
    ),
    ("cron_expression", {"schedule_type": "CRON"}, {}),
    *cases(
        "cron_expression",
        NEVER_SOON,
        *(
            *("", "x", "* * * *", "* * * * * * *", "60 * * * *", "*/0 * * * *", "0 0 30 2 *"),
            *("@reboot", "H * * * *", "R * * * *", "0~30 * * * *", "@fortnightly", 5, "rate()"),
            *(
                "rate(0 minutes)",
                "cron(0 10 * * * *)",
                "at(2001-01-01T00:00:00)",
                "\x00",
                "* " * 999,
            ),
        ),
    ),
    *cases("timezone", NEVER_SOON, *("Mars/Base", "../UTC", "", "\x00", 1)),
    *cases("dst_gap", NEVER_SOON, *("next", "FIRST", 1)),
    *cases("dst_fold", NEVER_SOON, *("NEXT", False)),
    ("interval_seconds", {"schedule_type": "INTERVAL"}, {}),
    *cases("interval_seconds", EVERY_HOUR, *(0, -1, 31_622_401, "300", True, 1.5, 10**30, None)),
    ("interval_from", EVERY_HOUR, {"interval_from": "STARTED"}),
    ("max_concurrency", EVERY_HOUR, {"interval_from": "COMPLETED", "max_concurrency": 2}),
    *cases("start_time", NEVER_SOON, *("x", 5, "2032-01-01")),
    *cases("end_time", NEVER_SOON, *("x", 5)),
    *cases("max_runs", NEVER_SOON, *(0, -1, "1", True)),
    *cases("exclude", NEVER_SOON, *(dates(367), "2030-01-01", {})),
    *cases("jitter_seconds", NEVER_SOON, *(-1, 3601, True, "0")),
    ("misfire_policy", NEVER_SOON, {"misfire_policy": "RUN"}),
    *cases("misfire_grace_seconds", NEVER_SOON, *(-1, 86_401)),
    ("payload", NEVER_SOON, {"payload": nested(65)}),
    ("payload", NEVER_SOON, {"payload": "x" * (256 * 1024 - 1)}),
    ("payload.a.0", NEVER_SOON, {"payload": {"a": ["\x00"]}}),
    ("payload.\\u0000", NEVER_SOON, {"payload": {"\x00": 1}}),
    *cases("priority", NEVER_SOON, *("high", 1)),
    *cases("max_concurrency", NEVER_SOON, *(0, 101, "1", 1.5)),
    ("overlap_policy", NEVER_SOON, {"overlap_policy": "DROP"}),
    *cases("max_waiting", NEVER_SOON, *(0, 1001)),
    *cases("timeout_seconds", NEVER_SOON, *(0, 901, 86_400)),
    ("timeout_seconds", NEVER_SOON, {"timeout_seconds": 901, "task": HTTP}),
    *cases("max_retries", NEVER_SOON, *(-1, 101, "300", True)),
    ("max_retries", NEVER_SOON, {"delivery": "AT_MOST_ONCE", "max_retries": 1}),
    *cases("retry", NEVER_SOON, *([], 5, "x")),
    ("retry.backoff_seconds", NEVER_SOON, {"retry": {"backoff_seconds": -1}}),
    ("retry.max_backoff_seconds", NEVER_SOON, {"retry": {"max_backoff_seconds": "x"}}),
    ("retry.multiplier", NEVER_SOON, {"retry": {"multiplier": "2"}}),
    ("retry.jitter", NEVER_SOON, {"retry": {"jitter": 1}}),
    ("retry.factor", NEVER_SOON, {"retry": {"factor": 1}}),
    *cases("deadline_seconds", NEVER_SOON, *(0, 2_592_001)),
    ("delivery", NEVER_SOON, {"delivery": "EXACTLY_ONCE"}),
    *cases("output", NEVER_SOON, *("DISCARD", True, "")),
    *cases("tags", NEVER_SOON, *({f"k{n}": "" for n in range(51)}, [], "a:b")),
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
    *cases("task", NEVER_SOON, *("event", [], 5)),
    ("task.type", NEVER_SOON, {"task": {"type": "ftp"}}),
    ("task.type", NEVER_SOON, {"task": {}}),
    ("task.url", NEVER_SOON, {"task": {"type": "http"}}),
    ("task.url", NEVER_SOON, {"task": {"type": "event", "url": "http://x"}}),
    *[("task.url", NEVER_SOON, {"task": {**HTTP, "url": v}}) for v in ("x", "ftp://h/", 5, "")],
    *[("task.method", NEVER_SOON, {"task": {**HTTP, "method": v}}) for v in ("G T", "", 5)],
    *[
        ("task.follow_redirects", NEVER_SOON, {"task": {**HTTP, "follow_redirects": v}})
        for v in (-1, 6)
    ],
    ("task.headers", NEVER_SOON, {"task": {**HTTP, "headers": {f"h{n}": "" for n in range(51)}}}),
    ("task.headers", NEVER_SOON, {"task": {**HTTP, "headers": {"h": "x" * 8193}}}),
    ("task.colour", NEVER_SOON, {"task": {"type": "event", "colour": "red"}}),
]


WRONG_SCRIPTS: list[tuple[str, Json]] = [
    ("timeout_seconds", {"timeout_seconds": 86_401, "task": script("true")}),
    ("task.runtime", {"task": {"type": "script", "runtime": "perl", "code": "1"}}),
    ("task.code", {"task": script("x" * (64 * 1024 + 1))}),
]


@pytest.mark.needs("script")
@pytest.mark.parametrize(("field", "fields"), WRONG_SCRIPTS)
def test_wrong_field_of_a_script_is_named(api: Api, field: str, fields: Json) -> None:
    body = {"name": "wrong", **NEVER_SOON, **fields}
    assert fields_of(api("POST", "/jobs", body)) == {field}


@pytest.mark.parametrize(
    ("field", "base", "fields"), WRONG, ids=[f"{n}-{case[0]}" for n, case in enumerate(WRONG)]
)
def test_wrong_field_is_named(api: Api, field: str, base: Json, fields: Json) -> None:
    body = {"name": "wrong", **base, **fields}
    assert fields_of(api("POST", "/jobs", body)) == {field}


def test_all_wrong_fields_are_named_together(api: Api) -> None:
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
