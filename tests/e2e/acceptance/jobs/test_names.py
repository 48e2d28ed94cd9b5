"""The names of recurring jobs are unique, from the create to the cancel."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, unique

CREATORS = 3  # that want one name at the same time
ONE_TIME = {"schedule_type": "FUTURE", "schedule_time": "2099-01-01T00:00:00Z"}
INTERVAL = {"schedule_type": "INTERVAL", "interval_seconds": 86_400}


def create(api: Api, name: str, **fields: Json) -> httpx.Response:
    answer = api("POST", "/jobs", {"name": name, **(fields or NEVER_SOON)})
    if answer.status_code == 202:
        api.made.append(answer.json()["job_id"])
    return answer


def check_taken(answer: httpx.Response, job_id: str) -> None:
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert (problem["code"], problem["job_id"]) == ("NAME_TAKEN", job_id)


def test_second_recurring_job_with_a_name_is_a_conflict(api: Api) -> None:
    name = unique("name")
    job_id = api.create(name=name, **NEVER_SOON)["job_id"]
    check_taken(create(api, name), job_id)
    check_taken(create(api, name, **INTERVAL), job_id)
    listed = eventually(lambda: list(api.pages("/jobs", "jobs", name=name)))
    assert [job["job_id"] for job in listed] == [job_id]


def test_one_time_jobs_share_a_name(api: Api) -> None:
    name = unique("name")
    api.create(name=name, **NEVER_SOON)
    assert create(api, name, **ONE_TIME).status_code == 202
    assert create(api, name, **ONE_TIME).status_code == 202


def test_rename_takes_one_name_and_frees_the_other(api: Api) -> None:
    old, new = unique("old"), unique("new")
    first = api.create(name=old, **NEVER_SOON)["job_id"]
    second = api.create(name=new, **NEVER_SOON)["job_id"]
    check_taken(api("PATCH", f"/jobs/{first}", {"name": new}), second)
    assert api.get(f"/jobs/{first}")["name"] == old
    third = unique("third")
    assert api("PATCH", f"/jobs/{second}", {"name": third}).status_code == 200
    assert api("PATCH", f"/jobs/{first}", {"name": new}).status_code == 200
    again = create(api, old)
    assert again.status_code == 202, again.text
    check_taken(create(api, third), second)


def test_cancelled_job_frees_its_name_at_once(api: Api) -> None:
    name = unique("name")
    job_id = api.create(name=name, **NEVER_SOON)["job_id"]
    assert api("DELETE", f"/jobs/{job_id}").status_code in (200, 202)
    assert create(api, name).status_code == 202


def test_job_that_becomes_recurring_takes_its_name(api: Api) -> None:
    name = unique("name")
    one_time = api.create(name=name, **ONE_TIME)["job_id"]
    recurring = api.create(name=name, **NEVER_SOON)["job_id"]
    change = {"schedule_time": None, **INTERVAL}
    check_taken(api("PATCH", f"/jobs/{one_time}", change), recurring)
    assert api("DELETE", f"/jobs/{recurring}").status_code in (200, 202)
    assert api("PATCH", f"/jobs/{one_time}", change).status_code == 200
    check_taken(create(api, name), one_time)


def test_one_of_many_creators_gets_the_name(api: Api) -> None:
    name = unique("name")
    with ThreadPoolExecutor(CREATORS) as pool:
        answers = list(pool.map(lambda _: create(api, name), range(CREATORS)))
    winners = [answer.json()["job_id"] for answer in answers if answer.status_code == 202]
    assert len(winners) == 1
    for answer in answers:
        if answer.status_code != 202:
            check_taken(answer, winners[0])


def test_repeated_request_answers_with_its_job(api: Api) -> None:
    name, headers = unique("name"), {"Idempotency-Key": unique("key")}
    body = {"name": name, **NEVER_SOON}
    first = api("POST", "/jobs", body, headers=headers).json()
    api.made.append(first["job_id"])
    again = api("POST", "/jobs", body, headers=headers)
    assert again.status_code == 202, again.text
    assert again.json()["job_id"] == first["job_id"]
