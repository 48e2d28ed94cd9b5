"""POST /schedules/diff: two schedules, a job and its change, and what is refused."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.names.own_names import own_name
from tests.support.web_client import Answer, Client

DIFF = "/v1/schedules/diff"
BERLIN = {"schedule_type": "CRON", "timezone": "Europe/Berlin"}
AT_TWO, AT_THREE = ({**BERLIN, "cron_expression": f"0 {hour} * * *"} for hour in (2, 3))
HOURLY = {"schedule_type": "INTERVAL", "interval_seconds": 3_600}
KINDS = ("added", "removed", "moved", "unchanged")


@pytest.fixture
def client() -> Client:
    return Client()  # at noon of 18 November 2026


def diff(client: Client, before: Any, after: Any, **fields: Any) -> Any:
    answer = client.post(DIFF, {"before": before, "after": after, **fields})
    assert answer.status == 200, answer.body
    return answer.json


def counts(answer: Any) -> tuple[int, ...]:
    return tuple(answer[kind]["count"] for kind in KINDS)


def submitted(client: Client, **fields: Any) -> str:
    return str(client.post("/v1/jobs", {"name": own_name("a"), **fields}).json["job_id"])


def test_daily_job_an_hour_later_moves_thirty_times(client: Client) -> None:
    answer = diff(client, AT_TWO, AT_THREE)
    assert counts(answer) == (0, 0, 30, 0)
    assert (answer["from"], answer["to"]) == (
        "2026-11-18T12:00:00.000Z",
        "2026-12-18T23:00:00.000Z",
    )
    assert answer["moved"]["shift_seconds"] == 3_600
    assert answer["moved"]["times"][0] == {
        "before": {
            "utc": "2026-11-19T01:00:00.000Z",
            "local": "2026-11-19T02:00:00.000+01:00",
        },
        "after": {"utc": "2026-11-19T02:00:00.000Z", "local": "2026-11-19T03:00:00.000+01:00"},
    }


def test_moved_time_that_is_over_today_is_added(client: Client) -> None:
    """At noon the job of 02:00 has run. That of 18:00 also runs today."""
    answer = diff(client, AT_TWO, {**BERLIN, "cron_expression": "0 18 * * *"}, days=3)
    assert counts(answer) == (1, 0, 3, 0)
    assert answer["added"]["times"][0]["local"].startswith("2026-11-18T18:00")


def test_times_on_other_dates_are_removed_and_added(client: Client) -> None:
    mondays, tuesdays = ({**BERLIN, "cron_expression": f"0 9 * * {day}"} for day in "12")
    assert counts(diff(client, mondays, tuesdays, days=28)) == (4, 4, 0, 0)


def test_another_number_of_times_a_day_is_added_and_unchanged(client: Client) -> None:
    hourly = {**BERLIN, "cron_expression": "0 * * * *"}
    half_hourly = {**BERLIN, "cron_expression": "*/30 * * * *"}
    answer = diff(client, hourly, half_hourly, days=2)
    assert counts(answer) == (59, 0, 0, 58)
    assert answer["moved"]["shift_seconds"] is None


def test_first_hundred_times_are_listed_and_all_are_counted(client: Client) -> None:
    each_minute = {**BERLIN, "cron_expression": "* * * * *"}
    answer = diff(client, {"schedule_type": "IMMEDIATE"}, each_minute, days=1)
    assert counts(answer) == (2_099, 1, 0, 0)
    assert len(answer["added"]["times"]) == 100


def test_schedule_of_another_zone_is_compared_by_its_own_dates(client: Client) -> None:
    answer = diff(client, {**AT_TWO, "timezone": "UTC"}, AT_TWO, days=2)
    assert counts(answer) == (0, 0, 2, 0)
    assert answer["moved"]["shift_seconds"] == -3_600


def test_clock_change_is_a_warning_that_names_the_schedule(client: Client) -> None:
    answer = diff(client, AT_TWO, AT_THREE, **{"from": "2027-03-27T12:00:00Z"}, days=2)
    assert counts(answer) == (0, 0, 1, 1)  # 02:00 does not exist, and fires at 03:00 too
    (warning,) = answer["warnings"]
    assert warning.startswith("Before: on 28 March 2027 clocks in Europe/Berlin go forward")


def test_unchanged_interval_of_a_job_keeps_its_phase(client: Client) -> None:
    job_id = submitted(client, **HOURLY)
    client.world.now += timedelta(minutes=20)
    assert counts(diff(client, job_id, HOURLY, days=1)) == (0, 0, 0, 35)
    other = diff(client, job_id, {**HOURLY, "interval_seconds": 1_800}, days=1)
    assert other["added"]["times"][0]["utc"] == "2026-11-18T12:50:00.000Z"


def test_runs_that_max_runs_still_allows_are_compared(client: Client) -> None:
    job_id = submitted(client, **AT_TWO, max_runs=5)
    assert counts(diff(client, job_id, {**AT_TWO, "max_runs": 7})) == (2, 0, 0, 5)
    assert counts(diff(client, job_id, {**AT_THREE, "max_runs": 4})) == (0, 1, 4, 0)
    later = {"from": "2026-11-20T12:00:00Z"}
    assert counts(diff(client, job_id, {**AT_TWO, "max_runs": 7}, **later)) == (2, 0, 0, 3)


def test_interval_from_completion_warns_that_runs_take_no_time(client: Client) -> None:
    job_id = submitted(client, **HOURLY, interval_from="COMPLETED")
    answer = diff(client, job_id, HOURLY, days=1)
    assert counts(answer) == (0, 0, 0, 35)
    assert "runs that take no time" in answer["warnings"][0]


def test_paused_job_is_compared_with_a_warning(client: Client) -> None:
    job_id = submitted(client, **AT_TWO)
    client.post(f"/v1/jobs/{job_id}/pause", {})
    answer = diff(client, job_id, AT_THREE)
    assert counts(answer) == (0, 0, 30, 0)
    assert "paused" in answer["warnings"][0]


def test_cancelled_job_has_no_times(client: Client) -> None:
    job_id = submitted(client, **AT_TWO)
    assert client.call("DELETE", f"/v1/jobs/{job_id}").status == 200
    answer = diff(client, job_id, AT_THREE)
    assert counts(answer) == (0, 0, 0, 0)
    assert "cancelled" in answer["warnings"][0]


def test_schedule_with_too_many_times_is_refused_with_the_possible_days(client: Client) -> None:
    each_second = {**BERLIN, "cron_expression": "* * * * * *"}
    answer = client.post(DIFF, {"before": AT_TWO, "after": each_second, "days": 2})
    assert answer.fields == {
        "days": "cover 212,399 times of a schedule, and at most 200,000 can be compared: ask for 1"
    }
    answer = diff(client, AT_TWO, {**each_second, "max_runs": 3}, days=366)
    assert answer["added"]["count"] == 3


def refused(client: Client, body: Any) -> Answer:
    answer = client.post(DIFF, body)
    assert answer.status == 422, answer.body
    return answer


def test_wrong_fields_are_named_with_their_path(client: Client) -> None:
    assert set(refused(client, {}).fields) == {"before", "after"}
    body = {
        "before": {**AT_TWO, "cron_expression": "61 * * * *", "colour": 1},
        "after": {"schedule_type": "INTERVAL", "timezone": "x", "cron_expression": "0 0 * * *"},
        "days": 367,
        "from": 5,
        "name": "x",
    }
    assert set(refused(client, body).fields) == {
        "before.cron_expression",
        "before.colour",
        "after.interval_seconds",
        "after.timezone",
        "after.cron_expression",
        "days",
        "from",
        "name",
    }
    many_fields = {str(number): 1 for number in range(201)}
    body = {"before": "no-id", "after": many_fields, "days": 0}
    assert set(refused(client, body).fields) == {"before", "after", "days"}
    assert set(refused(client, {"before": 5, "after": []}).fields) == {"before", "after"}


def test_unknown_job_is_not_found(client: Client) -> None:
    body = {"before": "0190a0a0-0000-7000-8000-000000000000", "after": AT_TWO}
    assert client.post(DIFF, body).status == 404
