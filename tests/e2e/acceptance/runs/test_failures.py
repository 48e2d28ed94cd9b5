"""What failed and has not succeeded since, and the acknowledgement by a person."""

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, script


def of_job(api: Api, job_id: str) -> list[Json]:
    return list(api.pages("/failures", "failures", job_id=job_id))


@pytest.mark.needs("script")
def test_failure_is_open_until_a_run_succeeds(api: Api) -> None:
    job_id = api.create(**NEVER_SOON, task=script("exit 3"), max_retries=0)["job_id"]
    first = api.ended(api.run_now(job_id))
    (failure,) = eventually(lambda: of_job(api, job_id))
    assert (failure["count"], failure["last_run_id"]) == (1, first["run_id"])
    path = f"/failures/{failure['failure_id']}/acknowledge"
    known = api("POST", path, {"note": "a disk is on its way"}).json()
    assert known["acknowledged"]["note"] == "a disk is on its way"
    assert known in api.pages("/failures", "failures")
    api.ended(api.run_now(job_id))
    (again,) = eventually(lambda: [one for one in of_job(api, job_id) if one["count"] == 2])
    assert again["acknowledged"] == known["acknowledged"]
    assert api("PATCH", f"/jobs/{job_id}", {"task": script("true")}).status_code == 200
    api.ended(api.run_now(job_id))
    eventually(lambda: not of_job(api, job_id))
    assert api("POST", path, {}).status_code == 404


def test_overview_is_one_sentence_of_its_facts(api: Api) -> None:
    api.create(**NEVER_SOON)
    overview = api.get("/overview")
    assert overview["sentence"] == " ".join(fact["text"] for fact in overview["facts"])
    jobs = next(fact for fact in overview["facts"] if fact["code"] == "JOBS")
    assert jobs["text"].startswith(f"{jobs['count']:,} job")
    assert (overview["since"] is None) >= (overview["verdict"] == "OK")
