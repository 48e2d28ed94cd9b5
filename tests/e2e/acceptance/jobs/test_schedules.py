"""Preview, upcoming and explain."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.support.acceptance.contract import (
    EVERY_SECOND,
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    instant,
    iso,
    soon,
    unique,
)

BERLIN = {"schedule_type": "CRON", "timezone": "Europe/Berlin"}


def preview(api: Api, **body: Json) -> Json:
    answer = api("POST", "/schedules/preview", body)
    assert answer.status_code == 200, answer.text
    shown_times = answer.json()
    assert set(shown_times) == {"times", "description", "warnings", "tzdata"}
    for time in shown_times["times"]:
        assert set(time) == {"utc", "local"}
        instant(time["utc"])
    return shown_times


def utc(api: Api, expression: str, from_: str, count: int = 3, **fields: Json) -> list[str]:
    body = {**BERLIN, "cron_expression": expression, "from": from_, "count": count, **fields}
    return [time["utc"][:19] for time in preview(api, **body)["times"]]


def test_preview_shows_ten_times_from_now(api: Api) -> None:
    result = preview(api, schedule_type="CRON", cron_expression="*/5 * * * *")
    assert len(result["times"]) == 10
    assert result["description"]
    assert result["warnings"] == []
    assert result["tzdata"]
    gaps = {instant(b["utc"]) - instant(a["utc"]) for a, b in pairwise(result["times"])}
    assert gaps == {timedelta(minutes=5)}


def test_preview_is_strictly_after_from(api: Api) -> None:
    assert utc(api, "0 12 * * *", "2026-06-01T10:00:00Z", 1) == ["2026-06-02T10:00:00"]
    assert utc(api, "0 12 * * *", "2026-06-01T09:59:59.999Z", 1) == ["2026-06-01T10:00:00"]
    assert utc(api, "0 12 * * *", "2026-06-01T11:59:59+02:00", 1) == ["2026-06-01T10:00:00"]


def test_preview_shows_local_time(api: Api) -> None:
    body = {**BERLIN, "cron_expression": "30 14 * * *", "from": "2026-06-01T00:00:00Z", "count": 1}
    (time,) = preview(api, **body)["times"]
    assert time["local"].startswith("2026-06-01T14:30:00")
    assert time["local"].endswith("+02:00")


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("NEXT", "2026-03-29T01:00:00"),
        ("SKIP", "2026-03-30T00:30:00"),
        ("SHIFT", "2026-03-29T01:30:00"),
    ],
)
def test_time_in_a_dst_gap_follows_dst_gap(api: Api, gap: str, expected: str) -> None:
    assert utc(api, "30 2 * * *", "2026-03-28T12:00:00Z", 1, dst_gap=gap) == [expected]


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("FIRST", ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]),
        ("SECOND", ["2026-10-25T01:30:00", "2026-10-26T01:30:00"]),
        ("BOTH", ["2026-10-25T00:30:00", "2026-10-25T01:30:00"]),
    ],
)
def test_time_in_a_dst_fold_follows_dst_fold(api: Api, fold: str, expected: list[str]) -> None:
    assert utc(api, "30 2 * * *", "2026-10-24T12:00:00Z", 2, dst_fold=fold) == expected


def test_frequent_schedule_keeps_its_rhythm_across_clock_changes(api: Api) -> None:
    gap = utc(api, "*/30 * * * *", "2026-03-29T00:00:00Z", 4)
    assert gap == [
        *("2026-03-29T00:30:00", "2026-03-29T01:00:00"),
        *("2026-03-29T01:30:00", "2026-03-29T02:00:00"),
    ]
    fold = utc(api, "15 * * * *", "2026-10-24T23:20:00Z", 3)
    assert fold == ["2026-10-25T00:15:00", "2026-10-25T01:15:00", "2026-10-25T02:15:00"]


@pytest.mark.parametrize("at", ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"])
def test_preview_warns_of_a_clock_change_that_affects_the_times(api: Api, at: str) -> None:
    body = {**BERLIN, "cron_expression": "30 2 * * *", "from": at, "count": 3}
    assert preview(api, **body)["warnings"]
    assert not preview(api, **{**body, "from": "2026-06-01T00:00:00Z"})["warnings"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@yearly", "2027-01-01T00:00:00"),
        ("@midnight", "2026-11-01T00:00:00"),
        ("@hourly", "2026-10-31T13:00:00"),
        ("15 30 10 * * *", "2026-11-01T10:30:15"),
        ("0 0 L * *", "2026-11-30T00:00:00"),
        ("0 0 L-3 * *", "2026-11-27T00:00:00"),
        ("0 0 LW * *", "2026-11-30T00:00:00"),
        ("0 0 1W * *", "2026-11-02T00:00:00"),
        ("0 0 * * 5L", "2026-11-27T00:00:00"),
        ("0 0 * * 5#2", "2026-11-13T00:00:00"),
        ("0 0 * * 7", "2026-11-01T00:00:00"),
        ("0 0 * * SUN", "2026-11-01T00:00:00"),
        ("0 22-2/2 * * *", "2026-10-31T22:00:00"),
        ("0 0 13 * FRI", "2026-11-06T00:00:00"),
        ("0 0 */2 * MON", "2026-11-09T00:00:00"),
        ("0 0 ? * MON", "2026-11-02T00:00:00"),
        ("cron(0 10 ? * 1 *)", "2026-11-01T10:00:00"),
        ("cron(0 10 ? * MON-FRI *)", "2026-11-02T10:00:00"),
        ("cron(0 0 1 1 ? 2030)", "2030-01-01T00:00:00"),
        ("at(2026-12-01T10:00:00)", "2026-12-01T10:00:00"),
    ],
)
def test_cron_syntax_variants_yield_expected_times(
    api: Api, expression: str, expected: str
) -> None:
    times = utc(api, expression, "2026-10-31T12:00:00Z", 1, timezone="UTC")
    assert times == [expected]


def test_eventbridge_expressions_follow_eventbridge_rules(api: Api) -> None:
    gap = utc(api, "cron(30 2 * * ? *)", "2026-03-28T12:00:00Z", 1)
    assert gap == ["2026-03-30T00:30:00"]
    fold = utc(api, "cron(30 2 * * ? *)", "2026-10-24T12:00:00Z", 2)
    assert fold == ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]
    once = utc(api, "at(2026-12-01T10:00:00)", "2026-01-01T00:00:00Z", 5)
    assert once == ["2026-12-01T09:00:00"]
    days = [instant(f"{time}.000Z") for time in utc(api, "rate(1 day)", "2026-03-27T12:00:00Z", 5)]
    assert {b - a for a, b in pairwise(days)} == {timedelta(hours=24)}


def test_preview_handles_intervals_and_single_times(api: Api) -> None:
    every = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
    start = {"start_time": "2026-01-01T00:20:00Z", "from": "2026-05-05T05:00:00Z", "count": 2}
    times = [time["utc"] for time in preview(api, **every, **start)["times"]]
    assert times == ["2026-05-05T05:20:00.000Z", "2026-05-05T06:20:00.000Z"]
    until = {**start, "end_time": "2026-05-05T06:20:00Z", "exclude": []}
    assert len(preview(api, **every, **until)["times"]) == 1
    excluded = {**start, "exclude": ["2026-05-05"]}
    times = [time["utc"] for time in preview(api, **every, **excluded)["times"]]
    assert times == ["2026-05-06T00:20:00.000Z", "2026-05-06T01:20:00.000Z"]
    once = preview(api, schedule_type="FUTURE", schedule_time="2032-01-01T00:00:00Z")
    assert [time["utc"] for time in once["times"]] == ["2032-01-01T00:00:00.000Z"]


def test_preview_names_all_wrong_fields(api: Api) -> None:
    body = {**BERLIN, "cron_expression": "61 * * * *", "timezone": "x", "from": 5, "count": 101}
    answer = api("POST", "/schedules/preview", {**body, "colour": 1})
    assert fields_of(answer) == {"cron_expression", "timezone", "from", "count", "colour"}
    assert fields_of(api("POST", "/schedules/preview", {})) == {"schedule_type"}
    assert len(utc(api, "* * * * *", "2026-06-01T00:00:00Z", 100)) == 100
    zero = {**BERLIN, "cron_expression": "* * * * *", "count": 0}
    assert fields_of(api("POST", "/schedules/preview", zero)) == {"count"}


def test_upcoming_merges_all_jobs_in_time_order(api: Api) -> None:
    jobs = [
        api.create(name=unique("up"), schedule_type="CRON", cron_expression=f"{m} 3 1 2 *")
        for m in (10, 30, 20)
    ]
    paused = api.create(schedule_type="CRON", cron_expression="15 3 1 2 *")
    api.order(paused["job_id"], "pause")
    window = {"from_": "2027-02-01T00:00:00Z", "to": "2027-02-02T00:00:00Z"}

    def load(limit: int) -> list[Json]:
        return [
            time
            for time in api.pages("/schedules/upcoming", "times", **window, limit=limit)
            if time["utc"].startswith("2027-02-01T03")
        ]

    wanted = {job["job_id"] for job in jobs}
    eventually(lambda: {time["job_id"] for time in load(200)} >= wanted)
    eventually(lambda: paused["job_id"] not in {time["job_id"] for time in load(200)})
    for limit in (1, 2, 200):
        times = load(limit)
        ids = [time["job_id"] for time in times]
        assert [i for i in ids if i in {job["job_id"] for job in jobs}] == [
            jobs[n]["job_id"] for n in (0, 2, 1)
        ]
        assert paused["job_id"] not in ids
        assert [time["utc"] for time in times] == sorted(time["utc"] for time in times)
    assert set(times[0]) == {"job_id", "name", "utc", "local"}


def test_upcoming_ends_with_max_runs(api: Api) -> None:
    cron = {"schedule_type": "CRON", "cron_expression": "0 3 * * *", "max_runs": 3}
    job_id = api.create(**cron, start_time="2029-01-10T00:00:00Z")["job_id"]

    def days(start: str, limit: int) -> list[str]:
        window = {"from_": start, "to": "2029-01-31T00:00:00Z"}
        times = api.pages("/schedules/upcoming", "times", **window, limit=limit)
        return [time["utc"][8:10] for time in times if time["job_id"] == job_id]

    eventually(lambda: days("2029-01-01T00:00:00Z", 200))
    assert days("2029-01-01T00:00:00Z", 200) == ["10", "11", "12"]
    assert days("2029-01-01T00:00:00Z", 1) == ["10", "11", "12"]
    assert days("2029-01-11T12:00:00Z", 200) == ["12"]
    assert days("2029-01-13T00:00:00Z", 200) == []


def test_upcoming_accepts_at_most_31_days(api: Api) -> None:
    start = "2030-01-01T00:00:00Z"
    ok: Json = {"from_": start, "to": "2030-02-01T00:00:00Z"}
    assert api("GET", "/schedules/upcoming", **ok).status_code == 200
    over: Json = {"from_": start, "to": "2030-02-01T00:00:01Z"}
    assert fields_of(api("GET", "/schedules/upcoming", **over)) <= {"from", "to"}
    assert fields_of(api("GET", "/schedules/upcoming", from_="x", to="y")) == {"from", "to"}
    assert api("GET", "/schedules/upcoming").status_code == 200


def explain(api: Api, job_id: str, at: str) -> Json:
    explanation = api.get(f"/jobs/{job_id}/explain", at=at)
    expected = {"job_id", "at", "occurrence", "outcome", "reason", "run_id", "previous", "next"}
    assert set(explanation) == expected
    assert explanation["job_id"] == job_id
    assert explanation["reason"]
    return explanation


def test_explain_covers_future_times(api: Api) -> None:
    job_id = api.create(
        schedule_type="CRON",
        cron_expression="0 12 * * *",
        exclude=["2031-05-05"],
    )["job_id"]
    explanation = explain(api, job_id, "2031-05-04T12:00:00Z")
    assert (explanation["outcome"], explanation["run_id"]) == ("PLANNED", None)
    assert explanation["occurrence"] == "2031-05-04T12:00:00.000Z"
    assert explanation["previous"] == "2031-05-03T12:00:00.000Z"
    assert explanation["next"] == "2031-05-06T12:00:00.000Z"
    explanation = explain(api, job_id, "2031-05-04T12:00:01Z")
    assert (explanation["outcome"], explanation["occurrence"]) == ("NOT_SCHEDULED", None)
    assert explain(api, job_id, "2031-05-05T12:00:00Z")["outcome"] == "EXCLUDED"
    api.order(job_id, "pause")
    assert explain(api, job_id, "2031-05-04T12:00:00Z")["outcome"] == "PAUSED"
    api.order(job_id, "resume")
    api("DELETE", f"/jobs/{job_id}")
    assert explain(api, job_id, "2031-05-04T12:00:00Z")["outcome"] == "CANCELLED"
    assert fields_of(api("GET", f"/jobs/{job_id}/explain", at="noon")) == {"at"}
    assert fields_of(api("GET", f"/jobs/{job_id}/explain", at="2026-02-30T00:00:00")) == {"at"}


def test_explain_uses_the_definition_in_force_at_the_time(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND)["job_id"]
    run = eventually(lambda: api.runs(job_id, status="SUCCESS"))[0]
    at = run["scheduled_time"]
    explanation = explain(api, job_id, at)
    assert (explanation["outcome"], explanation["run_id"]) == ("SUCCESS", run["run_id"])
    assert explanation["occurrence"] == at
    assert instant(explanation["next"]) == instant(at) + timedelta(seconds=1)
    api("PATCH", f"/jobs/{job_id}", NEVER_SOON)
    explanation = explain(api, job_id, at)
    assert (explanation["outcome"], explanation["run_id"]) == ("SUCCESS", run["run_id"])
    half = explain(api, job_id, iso(instant(at) + timedelta(milliseconds=500)))
    assert (half["outcome"], half["occurrence"]) == ("SUCCESS", at)
    later_time = iso(instant(soon(60)).replace(microsecond=0))
    assert explain(api, job_id, later_time)["outcome"] == "NOT_SCHEDULED"
    before = iso(instant(at) - timedelta(hours=1))
    assert explain(api, job_id, before)["outcome"] == "NOT_SCHEDULED"


def test_explain_covers_a_one_time_job(api: Api) -> None:
    job_id = api.create(schedule_type="FUTURE", schedule_time="2032-01-01T00:00:00Z")["job_id"]
    assert explain(api, job_id, "2032-01-01T01:00:00+01:00")["outcome"] == "PLANNED"
    assert explain(api, job_id, "2032-01-01T01:00:00Z")["outcome"] == "NOT_SCHEDULED"


def test_explain_reads_a_time_without_offset_in_the_zone_of_the_job(api: Api) -> None:
    at = {"schedule_type": "CRON", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin"}
    job_id = api.create(**at)["job_id"]
    for local, utc in (
        ("2031-01-15T02:30:00", "2031-01-15T01:30:00.000Z"),
        ("2031-07-15 02:30:00", "2031-07-15T00:30:00.000Z"),
        ("2031-03-30T02:30:00", "2031-03-30T01:00:00.000Z"),  # in the DST gap
        ("2031-10-26T02:30:00.25", "2031-10-26T00:30:00.000Z"),  # in the DST fold
    ):
        explanation = explain(api, job_id, local)
        assert (explanation["outcome"], explanation["occurrence"]) == ("PLANNED", utc)
    once = api.create(schedule_type="FUTURE", schedule_time="2032-01-01T00:00:00Z")["job_id"]
    assert explain(api, once, "2032-01-01T00:00:00")["outcome"] == "PLANNED"


def test_explain_without_a_time_uses_the_last_due_occurrence(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND)["job_id"]
    first = api.get(f"/jobs/{job_id}/explain")
    assert first["occurrence"] is not None  # the next occurrence, because none was due
    eventually(lambda: api.runs(job_id, status="SUCCESS"))
    api("PATCH", f"/jobs/{job_id}", {"max_runs": 1})
    api.job_in(job_id, "COMPLETED")
    run = api.runs(job_id)[-1]  # perhaps of a time not due yet: runs are sent ahead

    def explained() -> Any:
        explanation = api.get(f"/jobs/{job_id}/explain")
        return explanation if explanation["at"] == run["scheduled_time"] else None

    explanation = eventually(explained)
    assert (explanation["run_id"], explanation["outcome"]) == (run["run_id"], run["status"])


@pytest.mark.parametrize(
    "schedule",
    [
        {"schedule_type": "IMMEDIATE"},
        {"schedule_type": "INTERVAL", "interval_seconds": 1, "max_runs": 1},
        {"schedule_type": "FUTURE", "schedule_time": "2032-01-01T00:00:00.0004Z"},
    ],
    ids=lambda schedule: schedule["schedule_type"],
)
def test_explain_accepts_a_time_as_shown(api: Api, schedule: Json) -> None:
    job = api.create(**schedule)
    at, outcome = job["next_run_time"], "PLANNED"
    if schedule["schedule_type"] != "FUTURE":
        run = eventually(lambda: api.runs(job["job_id"], status="SUCCESS"))[0]
        at, outcome = run["scheduled_time"], "SUCCESS"
    to_the_second = f"{at[:19]}Z"
    for text in (at, to_the_second, at.replace("Z", "+00:00"), to_the_second[:-1]):
        explanation = explain(api, job["job_id"], text)
        assert (explanation["outcome"], explanation["at"], explanation["occurrence"]) == (
            outcome,
            at,
            at,
        )
        assert explanation["next"] != at
