"""The difference that a change of a schedule makes."""

from tests.support.acceptance.contract import Api, Json, fields_of, unique

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
