"""The difference that a change of a schedule makes, the forecast, and the times of one job."""

from tests.support.acceptance.contract import Api, Json, eventually, fields_of, unique

AT_TWO = {"schedule_type": "CRON", "timezone": "Europe/Berlin", "cron_expression": "0 2 * * *"}
AT_THREE = {**AT_TWO, "cron_expression": "0 3 * * *"}


def diff(api: Api, before: Json, after: Json, **fields: Json) -> Json:
    answer = api("POST", "/schedules/diff", {"before": before, "after": after, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_change_of_a_job_moves_its_times(api: Api) -> None:
    job = api.create(name=unique("diff"), **AT_TWO)
    answer = diff(api, job["job_id"], AT_THREE, days=300)
    assert answer["moved"]["count"] + answer["unchanged"]["count"] in (300, 301)
    assert len(answer["moved"]["times"]) == 100
    assert answer["added"]["count"] + answer["removed"]["count"] <= 1  # between 02:00 and 03:00
    same = diff(api, job["job_id"], AT_TWO)
    assert same["unchanged"]["count"] in (30, 31)
    assert same["moved"] == {"count": 0, "shift_seconds": None, "times": []}


def test_diff_across_the_clock_change_warns(api: Api) -> None:
    answer = diff(api, AT_TWO, AT_THREE, **{"from": "2027-03-27T12:00:00Z"}, days=2)
    kinds = ("added", "removed", "moved", "unchanged")
    assert [answer[kind]["count"] for kind in kinds] == [0, 0, 1, 1]
    assert "clocks in Europe/Berlin go forward" in answer["warnings"][0]


def test_diff_names_all_wrong_fields(api: Api) -> None:
    wrong = {**AT_TWO, "cron_expression": "61 * * * *"}
    body = {"before": "x", "after": wrong, "days": 0, "colour": 1}
    names = {"before", "after.cron_expression", "days", "colour"}
    assert fields_of(api("POST", "/schedules/diff", body)) == names
    unknown = {"before": "01a1ee87-3200-7000-8000-ffffffffffff", "after": AT_TWO}
    assert api("POST", "/schedules/diff", unknown).status_code == 404


def test_forecast_counts_the_starts_of_a_job(api: Api) -> None:
    before = api.get("/forecast", hours=168)
    api.create(name=unique("forecast"), schedule_type="CRON", cron_expression="7 * * * *")
    assert before["step_seconds"] == 3_600
    assert len(before["minutes"]) == 168
    starts = {hour["minute"]: hour["starts"] for hour in before["minutes"]}

    def has_gained() -> bool:
        """Return whether the forecast has the new job. On AWS it follows within seconds."""
        gained = [
            hour["starts"] - starts[hour["minute"]]
            for hour in api.get("/forecast", hours=168)["minutes"]
            if hour["minute"] in starts
        ]
        return gained.count(1) >= 165  # other jobs may start meanwhile

    eventually(has_gained)
    assert fields_of(api("GET", "/forecast", hours=0)) == {"hours"}


def test_upcoming_times_of_one_job(api: Api) -> None:
    api.create(name=unique("other"), schedule_type="CRON", cron_expression="8 3 * * *")
    job = api.create(name=unique("one"), schedule_type="CRON", cron_expression="9 3 * * *")
    window = {"from_": "2027-02-01T00:00:00Z", "to": "2027-02-04T00:00:00Z"}
    times = list(api.pages("/schedules/upcoming", "times", job_id=job["job_id"], **window, limit=2))
    assert [time["utc"][:16] for time in times] == [f"2027-02-0{day}T03:09" for day in (1, 2, 3)]
    unknown = "01a1ee87-3200-7000-8000-ffffffffffff"
    assert api("GET", "/schedules/upcoming", job_id=unknown).status_code == 404
