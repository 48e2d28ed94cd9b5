"""A pause with a time and a note. The job resumes by itself."""

from tests.support.acceptance.contract import EVERY_SECOND, NEVER_SOON, Api, fields_of, soon


def test_job_paused_until_a_time_resumes_by_itself(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND)["job_id"]
    api.first_run(job_id, status="SUCCESS")
    until = soon(3)
    paused = api.order(job_id, "pause", {"until": until, "note": "a move"})
    assert (paused["status"], paused["next_run_time"]) == ("PAUSED", None)
    assert (paused["pause"]["until"], paused["pause"]["note"]) == (until, "a move")
    resumed = api.job_in(job_id, "SCHEDULED")
    assert resumed["pause"] is None
    assert resumed["version"] == paused["version"]
    assert api.first_run(job_id, status="SUCCESS", **{"from": until})


def test_pause_is_audited_with_its_time_and_note(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    body = {"until": soon(3_600), "note": "a move"}
    api.order(job_id, "pause", body)
    (entry,) = api.get("/audit", job_id=job_id, action="job.pause")["entries"]
    assert entry["after"] == {**body, "status": "PAUSED"}


def test_pause_until_a_past_time_is_an_error(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    answer = api("POST", f"/jobs/{job_id}/pause", {"until": "2020-01-01T00:00:00Z"})
    assert answer.status_code == 422
    assert fields_of(answer) == {"until"}
