"""Guarantees of repeated, conditional and paged calls: keys, versions and page tokens."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, soon, unique

T = TypeVar("T")
TWINS = 20
HOURLY = {
    "schedule_type": "INTERVAL",
    "interval_seconds": 3600,
    "start_time": "2026-01-01T00:30:00Z",
}
REACH = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T06:00:00Z"}


def at_once(work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(TWINS) as pool:
        return list(pool.map(work, range(TWINS)))


def listed_jobs(api: Api, prefix: str, count: int) -> list[str]:
    """Return the jobs of a prefix, once the list shows so many. On AWS it follows in seconds."""

    def load() -> list[str] | None:
        listed = [job["job_id"] for job in api.pages("/jobs", "jobs", name_prefix=prefix)]
        return listed if len(listed) >= count else None

    return eventually(load) or []


def test_20_submissions_with_one_key_create_one_job(api: Api) -> None:
    key = {"Idempotency-Key": unique("twenty")}
    name = unique("twin")
    body = {"name": name, **NEVER_SOON, "payload": {"n": 1}}
    answers = at_once(lambda _: api("POST", "/jobs", body, headers=key))
    assert {answer.status_code for answer in answers} == {202}
    (job_id,) = {answer.json()["job_id"] for answer in answers}
    api.made.append(job_id)
    assert len({answer.headers["Location"] for answer in answers}) == 1
    assert listed_jobs(api, name, 1) == [job_id]


def test_20_requests_with_one_key_start_one_run_and_one_retry(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    key = {"Idempotency-Key": unique("twenty")}
    path = f"/jobs/{job_id}/runNow"
    answers = at_once(lambda n: api("POST", path, {"payload": 1}, headers=key))
    assert {answer.status_code for answer in answers} == {202}
    (run_id,) = {answer.json()["run_id"] for answer in answers}
    assert [run["run_id"] for run in api.runs(job_id)] == [run_id]
    ended = api.ended(answers[0].json())
    assert ended["attempt_number"] == 1
    key = {"Idempotency-Key": unique("twenty")}
    retry_path = f"/jobs/{job_id}/runs/{run_id}/retry"
    answers = at_once(lambda n: api("POST", retry_path, headers=key))
    assert {answer.status_code for answer in answers} == {202}
    (retry_id,) = {answer.json()["run_id"] for answer in answers}
    api.ended(answers[0].json())
    assert [run["run_id"] for run in api.runs(job_id)] == [run_id, retry_id]


def test_20_batches_with_one_key_create_each_job_once(api: Api) -> None:
    key, name = {"Idempotency-Key": unique("twenty")}, unique("batch")
    jobs: list[Json] = [{"name": f"{name}-{n}", **NEVER_SOON} for n in range(5)]
    jobs.insert(2, {"name": f"{name}-x"})
    answers = at_once(lambda n: api("POST", "/jobs/batch", {"jobs": jobs}, headers=key))
    assert {answer.status_code for answer in answers} == {207}
    created = {tuple(result.get("job_id") for result in a.json()["results"]) for a in answers}
    (ids,) = created
    api.made += [job_id for job_id in ids if job_id]
    assert [bool(job_id) for job_id in ids] == [True, True, False, True, True, True]
    assert set(listed_jobs(api, name, 5)) == {job_id for job_id in ids if job_id}


def test_idempotency_key_belongs_to_one_call(api: Api) -> None:
    """The key is refused for another job and for another kind of call, with any body."""
    job_id, other = api.create(**NEVER_SOON)["job_id"], api.create(**NEVER_SOON)["job_id"]
    key = {"Idempotency-Key": unique("k")}
    first = api("POST", f"/jobs/{job_id}/runNow", {}, headers=key)
    assert first.status_code == 202
    run = f"/jobs/{job_id}/runs/{first.json()['run_id']}"
    api.ended(first.json())
    for path in (f"/jobs/{other}/runNow", f"{run}/retry", "/jobs"):
        body: Json = {"name": unique("n"), **NEVER_SOON} if path == "/jobs" else {}
        answer = api("POST", path, body, headers=key)
        assert answer.status_code == 422, path
        assert [error["field"] for error in answer.json()["errors"]] == ["Idempotency-Key"]
    assert api.runs(other) == []


def test_refused_request_does_not_use_its_key(api: Api) -> None:
    key = {"Idempotency-Key": unique("k")}
    assert api("POST", "/jobs", {"name": 5, **NEVER_SOON}, headers=key).status_code == 422
    assert api.create(key, **NEVER_SOON)["version"] == 1


CONDITIONAL: list[tuple[str, str, Json]] = [
    ("PUT", "", {"priority": "LOW"}),
    ("PATCH", "", {"priority": "HIGH"}),
    ("PATCH", "", {}),
    ("POST", "/pause", None),
    ("POST", "/resume", {}),
    ("DELETE", "", None),
]


def _known(call: tuple[str, str, Json]) -> str:
    return f"{call[0]}{call[1]}{json.dumps(call[2])}"


@pytest.mark.parametrize("call", CONDITIONAL, ids=_known)
def test_if_match_applies_to_each_call_that_changes_a_job(
    api: Api, call: tuple[str, str, Json]
) -> None:
    method, path, body = call
    job_id = api.create(**NEVER_SOON)["job_id"]
    api("PATCH", f"/jobs/{job_id}", {"name": "second"})
    response = api("GET", f"/jobs/{job_id}")
    tag = response.headers["ETag"]
    assert tag == f'"{response.json()["version"]}"' == '"2"'

    def ask(condition: str) -> int:
        answer = api(method, f"/jobs/{job_id}{path}", body, headers={"If-Match": condition})
        if answer.status_code == 200:
            assert answer.headers["ETag"] == f'"{answer.json()["version"]}"'
        return answer.status_code

    for stale in ('"1"', '"3"', f"W/{tag}", '"02"', '""', '"1", "3"', '"abc"'):
        assert ask(stale) == 412, stale
    for wrong in ("2", "'2'", "", '"2', '"2" "3"'):
        assert ask(wrong) == 422, wrong
    assert api.get(f"/jobs/{job_id}") == response.json()
    assert ask(f'"1", {tag}') == 200
    assert ask("*") == 200
    unknown = "/jobs/01890000-0000-7000-8000-000000000000"
    for condition in (tag, "*"):
        gone = api(method, f"{unknown}{path}", body, headers={"If-Match": condition})
        assert gone.status_code == 404


def test_job_list_is_complete_while_jobs_change_and_end(api: Api) -> None:
    """Jobs that exist during the whole listing appear once, despite changes between pages."""
    prefix = unique("moving")
    job_ids = [api.create(**NEVER_SOON, name=f"{prefix}-{n}")["job_id"] for n in range(12)]
    listed_jobs(api, prefix, len(job_ids))
    listed: list[str] = []
    token: dict[str, str] = {}
    for number in range(100):
        page = api.get("/jobs", name_prefix=prefix, limit=2, **token)
        listed += [job["job_id"] for job in page["jobs"]]
        if page["next_token"] is None:
            break
        token = {"next_token": page["next_token"]}
        if number < 4:
            api("DELETE", f"/jobs/{job_ids[number]}")
            api("PATCH", f"/jobs/{job_ids[11 - number]}", {"priority": "LOW"})
            api.create(**NEVER_SOON, name=f"{prefix}-new-{number}")
    assert listed == list(reversed(job_ids))


def test_run_lists_are_complete_while_runs_are_added(api: Api) -> None:
    job_id = api.create(**HOURLY, max_concurrency=4)["job_id"]
    assert api.order(job_id, "backfill", REACH) == {"runs": 6}
    first = {api.ended(run)["run_id"] for run in api.runs(job_id)}

    def all_listed() -> bool:
        listed = {run["run_id"] for run in api.pages("/runs", "runs", trigger="BACKFILL", **REACH)}
        return first <= listed

    eventually(all_listed)
    for path in (f"/jobs/{job_id}/runs", "/runs"):
        run_ids_seen: list[str] = []
        token: dict[str, str] = {}
        for number in range(500):
            page = api.get(path, trigger="BACKFILL", limit=1, **REACH, **token)
            run_ids = [run["run_id"] for run in page["runs"] if run["job_id"] == job_id]
            run_ids_seen += run_ids
            if page["next_token"] is None:
                break
            token = {"next_token": page["next_token"]}
            if number < 3:
                api.run_now(job_id)
        assert page["next_token"] is None
        assert len(run_ids_seen) == len(set(run_ids_seen)) == 6
        assert set(run_ids_seen) == first


def test_upcoming_is_complete_while_jobs_are_added_and_fire(api: Api) -> None:
    name = unique("coming")
    reach = {"from": soon(86_400), "to": soon(86_400 + 7_200)}
    job_ids = [
        api.create(
            name=f"{name}-{n}",
            schedule_type="INTERVAL",
            interval_seconds=600,
            start_time=soon(60 + n),
        )["job_id"]
        for n in range(3)
    ]

    def load() -> list[tuple[str, str]] | None:
        times = [
            (time["job_id"], time["utc"])
            for time in api.pages("/schedules/upcoming", "times", **reach, limit=200)
            if time["job_id"] in job_ids
        ]
        return times if len(times) >= 3 * 11 else None

    expected = eventually(load)
    listed: list[tuple[str, str]] = []
    token: dict[str, str] = {}
    for number in range(500):
        page = api.get("/schedules/upcoming", **reach, limit=7, **token)
        listed += [(time["job_id"], time["utc"]) for time in page["times"]]
        if page["next_token"] is None:
            break
        token = {"next_token": page["next_token"]}
        if number < 2:
            api.create(**HOURLY, name=f"{name}-new-{number}")
            api.run_now(job_ids[0])
    times = [at for _, at in listed]
    assert times == sorted(times)
    assert len(listed) == len(set(listed))
    assert [time for time in listed if time[0] in job_ids] == expected


@pytest.mark.parametrize("listed", ["jobs", "runs of a job", "runs", "upcoming"])
def test_page_token_is_valid_for_its_list_and_filters_only(api: Api, listed: str) -> None:
    job_id = api.create(**HOURLY, max_concurrency=4)["job_id"]
    other = api.create(**HOURLY)["job_id"]
    api.order(job_id, "backfill", REACH)
    path, filters, else_where = {
        "jobs": ("/jobs", {"schedule_type": "INTERVAL"}, "/runs"),
        "runs of a job": (f"/jobs/{job_id}/runs", {"trigger": "BACKFILL"}, f"/jobs/{other}/runs"),
        "runs": ("/runs", {"trigger": "BACKFILL", **REACH}, f"/jobs/{job_id}/runs"),
        "upcoming": ("/schedules/upcoming", {"from": soon(60), "to": soon(86_400)}, "/jobs"),
    }[listed]
    token = eventually(lambda: api.get(path, **filters, limit=1)["next_token"])
    assert all(sign.isalnum() or sign in "-_" for sign in token)

    def refused(path: str, **params: Any) -> bool:
        answer = api("GET", path, **params)
        return answer.status_code == 422 and [e["field"] for e in answer.json()["errors"]] == [
            "next_token"
        ]

    assert refused(path, next_token=token)  # without the filters
    assert refused(else_where, next_token=token)
    for spoiled in (token[:-1], token + "A", token.swapcase(), token[::-1], "x", token + "="):
        assert refused(path, **filters, next_token=spoiled), spoiled
    assert api.get(path, **filters, limit=1, next_token=token) is not None
    assert api.get(path, **filters, limit=200, next_token=token) is not None


def test_empty_page_token_means_first_page_and_last_page_has_none(api: Api) -> None:
    name = unique("one")
    job_id = api.create(**NEVER_SOON, name=name)["job_id"]
    listed_jobs(api, name, 1)
    page = api.get("/jobs", name_prefix=name, next_token="")
    listed = [job["job_id"] for job in page["jobs"]]
    while page["next_token"] is not None:  # a page reads a bounded number of jobs
        page = api.get("/jobs", name_prefix=name, next_token=page["next_token"])
        listed += [job["job_id"] for job in page["jobs"]]
    assert listed == [job_id]


def test_runs_from_a_time_come_in_one_page_despite_older_runs(api: Api) -> None:
    """The client does not page through the whole history with empty pages."""
    job_id = api.create(**HOURLY, max_concurrency=10)["job_id"]
    api.order(job_id, "backfill", {**REACH, "to": "2026-01-04T00:00:00Z"})
    page = api.get(f"/jobs/{job_id}/runs", from_=soon(3_600), limit=1)
    assert page == {"runs": [], "next_token": None}
    late = {"from": "2026-01-03T22:00:00Z", "limit": 5, "trigger": "BACKFILL"}
    page = api.get(f"/jobs/{job_id}/runs", **late)
    assert len(page["runs"]) == 2
    assert page["next_token"] is None
