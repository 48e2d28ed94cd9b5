"""Lists of jobs and runs: complete, without duplicates, filtered."""

import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    soon,
    unique,
)
from tests.support.acceptance.target import Target

NAMES = 23


@pytest.fixture(scope="module")
def prefix(shared: Api) -> str:
    prefix = unique("listed")
    kinds: list[Json] = [
        NEVER_SOON,
        {"schedule_type": "INTERVAL", "interval_seconds": 86_400},
        {"schedule_type": "FUTURE", "schedule_time": "2032-01-01T00:00:00Z"},
    ]
    for n in range(NAMES):
        tags = {"suite": prefix, "parity": "even" if n % 2 == 0 else "odd", "n": str(n)}
        shared.create(**kinds[n % 3] | {"name": f"{prefix}-{n:02}", "tags": tags})
    for job_id in shared.made[:4]:
        shared.order(job_id, "pause")
    shared("DELETE", f"/jobs/{shared.made[4]}")
    of_prefix = {"name_prefix": f"{prefix}-"}
    eventually(lambda: len(names(shared, **of_prefix)) == NAMES)
    eventually(lambda: len(names(shared, **of_prefix, status="PAUSED")) == 4)
    eventually(lambda: len(names(shared, **of_prefix, status="CANCELLED")) == 1)
    return prefix


def names(api: Api, **filters: object) -> list[str]:
    return [job["name"][-2:] for job in api.pages("/jobs", "jobs", **filters)]


@pytest.mark.parametrize("limit", [1, 2, 5, 22, 23, 24, 200])
def test_job_pages_are_complete_and_newest_first(api: Api, prefix: str, limit: int) -> None:
    expected = [f"{n:02}" for n in reversed(range(NAMES))]
    assert names(api, name_prefix=f"{prefix}-", limit=limit) == expected


def test_jobs_added_while_paging_hide_no_job(api: Api, prefix: str) -> None:
    page = api.get("/jobs", name_prefix=prefix, limit=10)
    api.create(**NEVER_SOON, name=f"{prefix}zz")
    names_seen = [job["name"] for job in page["jobs"]]
    while page["next_token"]:
        page = api.get("/jobs", name_prefix=prefix, limit=10, next_token=page["next_token"])
        names_seen += [job["name"] for job in page["jobs"]]
    assert names_seen == [f"{prefix}-{n:02}" for n in reversed(range(NAMES))]


def test_job_filters_combine(api: Api, prefix: str) -> None:
    everything = {"name_prefix": f"{prefix}-"}
    paused = names(api, **everything, status="PAUSED")
    assert paused == ["03", "02", "01", "00"]
    assert names(api, **everything, status="CANCELLED") == ["04"]
    both = names(api, **everything, status=["PAUSED", "CANCELLED"])
    assert both == ["04", "03", "02", "01", "00"]
    crons = [f"{n:02}" for n in reversed(range(0, NAMES, 3))]
    assert names(api, **everything, schedule_type="CRON") == crons
    assert names(api, tag=f"suite:{prefix}", schedule_type="CRON") == crons
    assert names(api, tag=[f"suite:{prefix}", "parity:odd"], status="PAUSED") == ["03", "01"]
    assert names(api, tag=[f"suite:{prefix}", "n:7"]) == ["07"]
    assert names(api, tag=f"suite:{prefix}x") == []
    creator = api.get(f"/jobs/{api.create(**NEVER_SOON)['job_id']}")["created_by"]
    assert len(names(api, **everything, created_by=creator)) == NAMES
    assert names(api, **everything, created_by="unknown-caller") == []
    assert names(api, name=f"{prefix}-07") == ["07"]
    assert names(api, name=f"{prefix}-0") == []
    assert names(api, text=f"{prefix}-1".upper()) == [f"{n}" for n in range(19, 9, -1)]
    assert names(api, text=f"SUITE:{prefix}", tag="n:7") == ["07"]
    assert len(names(api, **everything, health="NEVER_RAN")) == NAMES
    assert names(api, **everything, health="LATE") == []


def test_name_prefix_is_matched_literally(api: Api) -> None:
    base = unique("p")
    for name in (f"{base}%x", f"{base}_x", f"{base}*x", f"{base}X", f"{base}'x"):
        api.create(**NEVER_SOON, name=name)
    for sign in "%_*'":
        names_found = [job["name"] for job in api.get("/jobs", name_prefix=base + sign)["jobs"]]
        assert names_found == [f"{base}{sign}x"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": "x"},
        {"limit": "1e1"},
        {"limit": ""},
        {"status": "RUNNING"},
        {"status": "scheduled"},
        {"schedule_type": "DAILY"},
        {"name": ""},
        {"text": ""},
        {"text": "x" * 513},
        {"health": "ILL"},
        {"sort": "size"},
        {"tag": "no-colon"},
        {"next_token": "junk"},
        {"next_token": "\x00"},
        {"colour": "red"},
    ],
    ids=str,
)
def test_wrong_job_filter_is_named(api: Api, wrong: Json) -> None:
    answer = api("GET", "/jobs", **wrong)
    assert answer.status_code == 422, answer.text
    assert {error["field"] for error in answer.json()["errors"]} == set(wrong)


def test_page_token_is_bound_to_its_filters_and_list(api: Api, prefix: str) -> None:
    token = api.get("/jobs", name_prefix=prefix, limit=2)["next_token"]
    assert token
    assert all(c.isalnum() or c in "-_.~" for c in token)
    assert api("GET", "/jobs", name_prefix=prefix[:-1], next_token=token).status_code == 422
    assert api("GET", "/runs", next_token=token).status_code == 422
    more = api("GET", "/jobs", name_prefix=prefix, next_token=token, limit=7)
    assert len(more.json()["jobs"]) == 7


def test_job_list_shows_last_outcomes_and_usual_duration(api: Api, ran: str) -> None:
    name = api.get(f"/jobs/{ran}")["name"]
    (job,) = api.get("/jobs", name=name, recent=30)["jobs"]
    runs = {run["run_id"]: run for run in api.runs(ran)}
    shown = [runs[run["run_id"]] for run in job["recent"]]
    assert len(shown) == len(runs)
    assert [run["status"] for run in job["recent"]] == [run["status"] for run in shown]
    times = [run["scheduled_time"] for run in job["recent"]]
    assert times == sorted(times, reverse=True)
    durations = [run["duration_ms"] for run in shown if run["status"] == "SUCCESS"]
    assert min(durations) <= job["usual_duration_ms"] <= max(durations)
    (newest,) = api.get("/jobs", name=name, recent=1)["jobs"]
    assert newest["recent"] == job["recent"][:1]


@pytest.fixture(scope="module")
def ran(shared: Api, target: Target) -> str:
    """Return a job with 7 run-now requests and 5 backfilled runs, of which one failed."""
    job = shared.create(
        name=unique("ran"),
        schedule_type="INTERVAL",
        interval_seconds=3600,
        start_time="2026-01-01T00:00:00Z",
        max_concurrency=4,
        max_retries=0,
        task=target.task("/404/200"),
    )
    runs = [shared.run_now(job["job_id"], payload=0)]
    shared.ended(runs[0])
    runs += [shared.run_now(job["job_id"], payload=n) for n in range(1, 7)]
    reach = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:00:00Z"}
    assert shared.order(job["job_id"], "backfill", reach) == {"runs": 5}
    for run in runs:
        shared.ended(run)

    def all_over() -> bool:
        runs = shared.runs(job["job_id"])
        return {run["status"] for run in runs} == {"SUCCESS", "FAILED"} and len(runs) == 12

    eventually(all_over)
    return str(job["job_id"])


@pytest.mark.parametrize("limit", [1, 5, 12, 50])
def test_runs_of_a_job_are_paged(api: Api, ran: str, limit: int) -> None:
    runs = list(api.pages(f"/jobs/{ran}/runs", "runs", limit=limit))
    assert len({run["run_id"] for run in runs}) == len(runs) == 12
    assert all("attempts" not in run for run in runs)
    failed = [run for run in runs if run["status"] == "FAILED"]
    assert [run["trigger"] for run in failed] == ["RUN_NOW"]
    assert "404" in failed[0]["error_message"]


def test_runs_are_filtered(api: Api, ran: str) -> None:
    def count(**filters: object) -> int:
        return len(api.runs(ran, **filters))

    assert count(status="FAILED") == 1
    assert count(status=["FAILED", "SUCCESS"]) == 12
    assert count(status="MISSED") == 0
    assert count(trigger="RUN_NOW") == 7
    assert count(trigger="BACKFILL") == 5
    assert count(trigger="BACKFILL", status="FAILED") == 0
    hours = {"from_": "2026-01-01T01:00:00Z", "to": "2026-01-01T03:00:00Z"}
    assert count(**hours) == 2
    assert count(**hours, limit=1) == 2
    assert count(from_="2026-01-01T01:00:00Z", to="2026-01-01T01:00:00.001Z") == 1
    assert count(to="2026-02-01T00:00:00+02:00") == 5
    assert count(from_=soon(3600)) == 0


def test_runs_of_a_job_are_filtered_by_the_selected_time(api: Api, ran: str) -> None:
    runs = api.runs(ran)
    backfilled = {run["run_id"] for run in runs if run["trigger"] == "BACKFILL"}
    long_ago: Json = {"to": "2026-02-01T00:00:00Z"}
    assert {run["run_id"] for run in api.runs(ran, **long_ago, by="scheduled")} == backfilled
    for by, field in (("started", "start_time"), ("ended", "end_time")):
        assert api.runs(ran, **long_ago, by=by) == []
        times = sorted(run[field] for run in runs)
        first, last = times[2], times[8]
        filtered = api.runs(ran, from_=first, to=last, by=by, limit=2)
        assert sorted(run[field] for run in filtered) == [at for at in times if first <= at < last]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "GONE"},
        {"trigger": "CRON"},
        {"from": "yesterday"},
        {"to": "2026-01-01"},
        {"by": "created"},
        {"reason": "NONE"},
        {"duration_ms": "1000"},
        {"duration_ms": "2..1"},
        {"limit": 201},
        {"next_token": "junk"},
    ],
    ids=str,
)
def test_wrong_run_filter_is_named(api: Api, ran: str, wrong: Json) -> None:
    for path in (f"/jobs/{ran}/runs", "/runs"):
        answer = api("GET", path, **wrong)
        assert answer.status_code == 422
        assert {error["field"] for error in answer.json()["errors"]} == set(wrong)


def test_runs_of_all_jobs_are_filtered_by_job_reason_and_duration(api: Api, target: Target) -> None:
    name, tag = unique("filtered"), unique("tag")
    quick = api.create(**NEVER_SOON, name=name, tags={"suite": tag}, task=target.task("/200"))
    slow = api.create(**NEVER_SOON, tags={"suite": tag}, task=target.hold(1.2))
    quick_run = api.ended(api.run_now(quick["job_id"]))
    slow_run = api.ended(api.run_now(slow["job_id"]))
    assert (quick_run["job_name"], quick_run["task_type"]) == (name, "http")
    assert quick_run["duration_ms"] < 1_000 < slow_run["duration_ms"]

    def found(**filters: object) -> list[str]:
        return [run["run_id"] for run in api.pages("/runs", "runs", **filters)]

    both = [slow_run["run_id"], quick_run["run_id"]]
    eventually(lambda: found(tag=f"suite:{tag}") == both)
    assert found(job_name=name) == both[1:]
    assert found(job_name=name[:-1]) == []
    assert found(tag=f"suite:{tag}", duration_ms="1000..") == both[:1]
    assert found(tag=f"suite:{tag}", duration_ms="..999") == both[1:]
    assert found(tag=[f"suite:{tag}", "suite:x"]) == []
    assert found(tag=f"suite:{tag}", reason="LOST") == []
    ended = {"by": "ended", "from_": slow_run["end_time"]}
    assert found(tag=f"suite:{tag}", **ended) == both[:1]
    path = f"/jobs/{quick['job_id']}/runs"
    assert [run["run_id"] for run in api.pages(path, "runs", duration_ms="..999")] == both[1:]
    assert fields_of(api("GET", path, job_name=name, tag="a:b")) == {"job_name", "tag"}


def test_run_list_covers_all_jobs(api: Api, target: Target, ran: str) -> None:
    hold = api.create(**NEVER_SOON, task=target.hold(30))["job_id"]
    running = api.in_status(api.run_now(hold), "RUNNING")
    now = list(api.pages("/runs", "runs", status="RUNNING", limit=1))
    assert running["run_id"] in {run["run_id"] for run in now}
    assert {run["status"] for run in now} == {"RUNNING"}
    run_ids = {run["run_id"] for run in api.runs(ran)}
    listed = [run["run_id"] for run in api.pages("/runs", "runs", limit=40)]
    assert len(listed) == len(set(listed))
    assert run_ids <= set(listed)
    backfilled = list(api.pages("/runs", "runs", trigger="BACKFILL", to="2026-01-01T05:00:00Z"))
    assert run_ids >= {run["run_id"] for run in backfilled if run["job_id"] == ran}


def test_status_names_the_latest_run(api: Api, ran: str) -> None:
    status = api.get(f"/jobs/{ran}/status")
    assert set(status) == {"job_id", "status", "latest_run", "next_run_time"}
    assert status["status"] == "SCHEDULED"
    assert status["latest_run"]["run_id"] in {run["run_id"] for run in api.runs(ran)}
    run = api.ended(api.run_now(ran))
    assert api.get(f"/jobs/{ran}/status")["latest_run"]["run_id"] == run["run_id"]
    fresh = api.create(**NEVER_SOON)
    status = api.get(f"/jobs/{fresh['job_id']}/status")
    assert status["latest_run"] is None
    assert status["next_run_time"] == fresh["next_run_time"]


def test_empty_filter_is_refused(api: Api) -> None:
    for path, name in (("/jobs", "created_by"), ("/jobs", "status"), ("/audit", "caller")):
        filters: Json = {name: ""}
        assert fields_of(api("GET", path, **filters)) == {name}


def test_time_range_must_be_ascending(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    late, early = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
    for path in ("/runs", f"/jobs/{job_id}/runs", "/audit", "/schedules/upcoming"):
        for to in (early, late):
            backward: Json = {"from_": late, "to": to}
            assert fields_of(api("GET", path, **backward)) == {"to"}, path
