"""The audit has an entry for each change, which admins can list soon after it."""

from typing import Any

import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    Json,
    eventually,
    fields_of,
    instant,
    unique,
)

CALLER_FIELDS = ("caller", "token_id", "address")
UNKNOWN_ID = "01939f6a-7b12-7000-8000-000000000000"


def of_job(api: Api, job_id: str, **filters: Any) -> list[Json]:
    """Return all entries of a job, the oldest first."""
    entries = list(api.pages("/audit", "entries", job_id=job_id, **filters))
    assert all(entry["job_id"] == job_id for entry in entries)
    return entries[::-1]


def entries_of(api: Api, job_id: str, *actions: str) -> list[Json]:
    """Wait for the entries of these actions, and check that there are no others."""

    def load() -> list[Json]:
        entries = of_job(api, job_id)
        return entries if len(entries) >= len(actions) else []

    entries = eventually(load)
    assert [entry["action"] for entry in entries] == list(actions)
    return entries


def test_each_job_change_is_recorded_with_caller_values_and_time(api: Api) -> None:
    job = api.create(**NEVER_SOON, tags={"team": "data"}, payload={"order": 4711})
    path = f"/jobs/{job['job_id']}"
    assert api("PATCH", path, {"priority": "HIGH", "tags": {}}).status_code == 200
    api.order(job["job_id"], "pause")
    api.order(job["job_id"], "resume", {"missed": "SKIP"})
    assert api("DELETE", path).status_code == 200
    actions = ("job.create", "job.update", "job.pause", "job.resume", "job.cancel")
    created, updated, paused, resumed, cancelled = entries = entries_of(
        api, job["job_id"], *actions
    )
    assert created["before"] is None
    assert created["after"]["name"] == job["name"]
    assert created["after"]["payload"] == {"order": 4711}
    assert updated["before"] == {"priority": "NORMAL", "tags": {"team": "data"}}
    assert updated["after"] == {"priority": "HIGH", "tags": {}}
    assert (paused["before"], paused["after"]) == ({"status": "SCHEDULED"}, {"status": "PAUSED"})
    assert resumed["before"] == {"status": "PAUSED"}
    assert resumed["after"] == {"missed": "SKIP", "status": "SCHEDULED"}
    assert cancelled["after"] == {"status": "CANCELLED"}
    me = api.get("/whoami")
    assert {(entry["caller"], entry["token_id"]) for entry in entries} == {
        (me["name"], me["token_id"])
    }
    assert all(entry["address"] for entry in entries)
    assert len({entry["request_id"] for entry in entries}) == len(entries)
    moments = [instant(entry["at"]) for entry in entries]
    assert moments == sorted(moments)
    assert [entry["audit_id"] for entry in entries] == sorted(
        entry["audit_id"] for entry in entries
    )


def test_run_entries_name_the_run_without_its_payload(api: Api) -> None:
    job = api.create(**NEVER_SOON)
    secret = unique("secret")
    run = api.ended(api.run_now(job["job_id"], payload={"text": secret}))
    retry = api.order(job["job_id"], f"runs/{run['run_id']}/retry")
    created, ordered, retried = entries_of(
        api, job["job_id"], "job.create", "run.order", "run.retry"
    )
    assert (ordered["run_id"], ordered["after"]) == (run["run_id"], {"payload_given": True})
    assert (retried["run_id"], retried["after"]) == (
        retry["run_id"],
        {"retried_from": run["run_id"], "payload_given": False},
    )
    assert secret not in str([created, ordered, retried])


def test_refused_or_empty_change_records_no_entry(api: Api) -> None:
    key = {"Idempotency-Key": unique("audit")}
    name = unique("audit")
    job = api.create(key, name=name, **NEVER_SOON)
    assert api.create(key, name=name, **NEVER_SOON)["job_id"] == job["job_id"]
    path = f"/jobs/{job['job_id']}"
    assert api("PATCH", path, {}).status_code == 200
    same = api("PATCH", path, {"name": name})
    assert (same.status_code, same.json()["version"]) == (200, 1)
    assert api("PATCH", path, {"priority": "URGENT"}).status_code == 422
    assert api("PATCH", path, {"priority": "LOW"}, headers={"If-Match": '"7"'}).status_code == 412
    api.order(job["job_id"], "pause")
    api.order(job["job_id"], "pause")
    for _ in range(2):
        assert api("DELETE", path).status_code == 200
    assert api("POST", f"{path}/pause").status_code == 409
    entries_of(api, job["job_id"], "job.create", "job.pause", "job.cancel")


def test_each_job_of_a_batch_has_an_entry(api: Api) -> None:
    name = unique("batch")
    new_job = {"name": name, **NEVER_SOON}
    other_job = {**new_job, "name": f"{name}-2"}
    batch = {"jobs": [new_job, {"name": name}, other_job]}
    results = api("POST", "/jobs/batch", batch).json()["results"]
    jobs = [result["job_id"] for result in results if result["status"] == 202]
    api.made.extend(jobs)
    assert len(jobs) == 2
    first, second = (entries_of(api, job, "job.create")[0] for job in jobs)
    assert first["request_id"] == second["request_id"]
    assert first["audit_id"] != second["audit_id"]


def test_audit_pages_are_complete_without_duplicates_while_entries_are_added(api: Api) -> None:
    job = api.create(**NEVER_SOON)["job_id"]
    actions = ["job.create"]
    for action in ("pause", "resume") * 3:
        api.order(job, action)
        actions.append(f"job.{action}")
    before = [entry["audit_id"] for entry in entries_of(api, job, *actions)]
    entries: list[Json] = []
    page = api.get("/audit", job_id=job, limit=2)
    while True:
        assert len(page["entries"]) <= 2
        entries += page["entries"]
        if page["next_token"] is None:
            break
        api.order(job, "pause" if len(entries) % 4 else "resume")
        page = api.get("/audit", job_id=job, limit=2, next_token=page["next_token"])
    ids = [entry["audit_id"] for entry in entries]
    assert ids == sorted(set(ids), reverse=True)
    assert set(before) <= set(ids)


def test_filters_combine(api: Api) -> None:
    job = api.create(**NEVER_SOON)["job_id"]
    api.order(job, "pause")
    created, paused = entries_of(api, job, "job.create", "job.pause")
    assert of_job(api, job, action="job.pause") == [paused]
    assert of_job(api, job, caller=created["caller"]) == [created, paused]
    assert of_job(api, job, caller=unique("nobody")) == []
    assert of_job(api, job, from_=paused["at"]) in ([paused], [created, paused])
    assert paused not in of_job(api, job, to=paused["at"])
    assert of_job(api, job, action="job.pause", to=created["at"]) == []
    assert of_job(api, UNKNOWN_ID) == []


def test_wrong_filters_are_named(api: Api) -> None:
    filters: dict[str, Any] = {
        "action": "job.delete",
        "job_id": "x",
        "from": "soon",
        "limit": 0,
        "who": "me",
    }
    assert fields_of(api("GET", "/audit", **filters)) == set(filters)


def test_token_creation_and_revocation_are_recorded(api: Api) -> None:
    name = unique("audit")
    answer = api("POST", "/tokens", {"name": name, "role": "viewer", "expires_at": None})
    assert answer.status_code == 201, answer.text
    token = answer.json()
    for _ in range(2):
        assert api("DELETE", f"/tokens/{token['token_id']}").status_code == 200

    def load() -> list[Json]:
        page = api.get("/audit", limit=100)["entries"]
        entries = [entry for entry in page if entry["subject_token_id"] == token["token_id"]]
        return entries if len(entries) > 1 else []

    revoked, created = eventually(load)
    assert (created["action"], revoked["action"]) == ("token.create", "token.revoke")
    assert (created["after"]["name"], created["after"]["role"]) == (name, "viewer")
    assert revoked["before"] == {"revoked_at": None}
    assert token["token"] not in str([created, revoked])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_audit_entry_cannot_be_changed(api: Api, method: str) -> None:
    answer = api(method, "/audit", {} if method != "DELETE" else None)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
