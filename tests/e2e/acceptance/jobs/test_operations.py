"""One action on many jobs or runs, with its preview, its progress, and its cancel."""

from typing import Any

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, unique

FAILING_TASK = {"type": "event", "detail_type": "{{secret:missing}}"}


def tagged_jobs(api: Api, count: int = 3, **fields: Any) -> tuple[Json, list[str]]:
    """Create jobs with a tag of their own. Return the filter when the list shows all of them."""
    team = unique("team")
    jobs = [
        api.create(**{**NEVER_SOON, "tags": {"team": team}, **fields})["job_id"]
        for _ in range(count)
    ]
    eventually(lambda: len(api.get("/jobs", tag=f"team:{team}")["jobs"]) == count)
    return {"tag": [f"team:{team}"]}, jobs


def bulk(api: Api, action: str, filter_json: Json, status: int = 202, **fields: Any) -> Json:
    answer = api("POST", "/jobs/bulk", {"action": action, "filter": filter_json, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def ended(api: Api, operation: Json) -> Json:
    def load() -> Json:
        found = api.get(f"/operations/{operation['operation_id']}")
        return found if found["status"] != "RUNNING" else None

    return eventually(load, within=60)


def counts(operation: Json) -> tuple[str, int, int, int]:
    return operation["status"], operation["matched"], operation["done"], operation["failed"]


def test_dry_run_names_the_jobs_and_changes_none(api: Api) -> None:
    wanted, jobs = tagged_jobs(api)
    preview = bulk(api, "pause", wanted, 200, dry_run=True)
    assert preview["matched"] == 3
    assert {item["job_id"] for item in preview["first"]} == set(jobs)
    assert all(api.get(f"/jobs/{job}")["status"] == "SCHEDULED" for job in jobs)


def test_jobs_paused_by_tag_are_resumed_by_their_operation(api: Api) -> None:
    wanted, jobs = tagged_jobs(api)
    api.order(jobs[0], "pause")  # it is not the operation's, and stays paused
    eventually(lambda: bulk(api, "pause", wanted, 200, dry_run=True)["matched"] == 2)
    paused = ended(api, bulk(api, "pause", wanted, note="a move"))
    assert counts(paused) == ("DONE", 2, 2, 0)
    assert paused["errors"] == []
    assert all(api.get(f"/jobs/{job}")["status"] == "PAUSED" for job in jobs)
    by_operation = {"paused_by": paused["operation_id"]}
    eventually(lambda: bulk(api, "resume", by_operation, 200, dry_run=True)["matched"] == 2)
    assert counts(ended(api, bulk(api, "resume", by_operation))) == ("DONE", 2, 2, 0)
    statuses = [api.get(f"/jobs/{job}")["status"] for job in jobs]
    assert statuses == ["PAUSED", "SCHEDULED", "SCHEDULED"]


def test_run_now_of_many_jobs_starts_one_run_of_each(api: Api) -> None:
    wanted, jobs = tagged_jobs(api)
    operation = ended(api, bulk(api, "run_now", wanted, payload={"over": 1}))
    assert counts(operation) == ("DONE", 3, 3, 0)
    for job in jobs:
        run = api.ended(api.only_run(job))
        assert (run["status"], run["trigger"], run["payload"]) == (
            "SUCCESS",
            "RUN_NOW",
            {"over": 1},
        )


def test_retry_by_filter_makes_a_new_run_of_each_failed_one(api: Api) -> None:
    wanted, jobs = tagged_jobs(api, 2, task=FAILING_TASK, max_retries=0)
    failed = {job: api.ended(api.run_now(job)) for job in jobs}
    assert {run["status"] for run in failed.values()} == {"FAILED"}
    eventually(lambda: bulk(api, "retry", wanted, 200, dry_run=True)["matched"] == 2)
    assert counts(ended(api, bulk(api, "retry", wanted))) == ("DONE", 2, 2, 0)
    for job in jobs:
        retries = [run for run in api.runs(job) if run["retried_from"]]
        assert [run["retried_from"] for run in retries] == [failed[job]["run_id"]]


def test_cancel_of_an_operation_ends_it(api: Api) -> None:
    wanted, jobs = tagged_jobs(api)
    operation = bulk(api, "pause", wanted)
    answer = api("POST", f"/operations/{operation['operation_id']}/cancel")
    assert answer.status_code == 200
    cancelled = ended(api, operation)
    assert cancelled["status"] in ("CANCELLED", "DONE")  # it may have ended before
    paused = [job for job in jobs if api.get(f"/jobs/{job}")["status"] == "PAUSED"]
    assert len(paused) >= cancelled["done"]
    listed = [found["operation_id"] for found in api.get("/operations")["operations"]]
    assert operation["operation_id"] in listed
