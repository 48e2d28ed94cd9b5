"""The change feed: from any cursor a client ends with what the lists show."""

from typing import Any

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, unique


class Follower:
    """Applies changes by their versions, as a client does."""

    def __init__(self, api: Api, **filters: Any) -> None:
        self._api = api
        self._filters = filters
        self._cursor = api.get("/changes")["next_cursor"]
        self._versions: dict[str, int] = {}
        self.jobs: dict[str, Json] = {}
        self.runs: dict[str, Json] = {}

    def read(self) -> list[Json]:
        page = self._api.get("/changes", after=self._cursor, **self._filters)
        assert page["gap"] is False
        self._cursor = page["next_cursor"]
        for change in page["changes"]:
            changed_id = change.get("run_id") or change["job_id"]
            if change["state_version"] < self._versions.get(changed_id, 0):
                continue
            self._versions[changed_id] = change["state_version"]
            shown = self.runs if change["kind"] == "run" else self.jobs
            shown[changed_id] = change[change["kind"]]
        return list(page["changes"])


def test_follower_of_a_job_ends_with_its_lists(api: Api) -> None:
    job = api.create(**NEVER_SOON, name=unique("followed"))
    follower = Follower(api, job_id=job["job_id"])
    runs = [api.ended(api.run_now(job["job_id"])) for _ in range(2)]
    api.order(job["job_id"], "pause", {"note": "a test"})

    def is_complete() -> bool:
        follower.read()
        shown = follower.jobs.get(job["job_id"]) or {}
        ended = {run_id for run_id, run in follower.runs.items() if run and run["end_time"]}
        return shown.get("status") == "PAUSED" and ended >= {run["run_id"] for run in runs}

    eventually(is_complete, 30)
    listed = {run["run_id"]: run["status"] for run in api.runs(job["job_id"])}
    assert {run_id: run["status"] for run_id, run in follower.runs.items()} == listed
    shown = follower.jobs[job["job_id"]]
    read = api.get(f"/jobs/{job['job_id']}")
    assert {name: shown[name] for name in ("name", "status", "version", "pause")} == {
        name: read[name] for name in ("name", "status", "version", "pause")
    }
    assert shown["live_run_ids"] == []


def test_filters_leave_out_other_changes(api: Api) -> None:
    first, second = (api.create(**NEVER_SOON, name=unique("followed")) for _ in range(2))
    follower = Follower(api, kind="job", job_id=first["job_id"])
    for job in (second, first):
        api.order(job["job_id"], "pause")
    eventually(lambda: follower.read() and first["job_id"] in follower.jobs, 30)
    assert set(follower.jobs) == {first["job_id"]}
    assert follower.runs == {}


@pytest.mark.parametrize("cursor", ["unknown", "eyJhIjoxfQ", "x" * 300])
def test_unknown_cursor_is_a_gap_with_a_cursor_of_now(api: Api, cursor: str) -> None:
    page = api.get("/changes", after=cursor)
    assert (page["changes"], page["gap"]) == ([], True)
    assert api.get("/changes", after=page["next_cursor"])["gap"] is False


@pytest.mark.parametrize(
    ("name", "value"), [("wait_seconds", "21"), ("kind", "token"), ("job_id", ""), ("limit", "5")]
)
def test_wrong_parameter_is_named(api: Api, name: str, value: str) -> None:
    parameters: dict[str, Any] = {name: value}
    answer = api("GET", "/changes", **parameters)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [name]


def test_call_without_changes_ends_after_its_time(api: Api) -> None:
    job = api.create(**NEVER_SOON, name=unique("quiet"))
    cursor = api.get("/changes")["next_cursor"]
    params = {"after": cursor, "job_id": job["job_id"], "kind": "operation", "wait_seconds": 1}
    page = api.get("/changes", **params)
    assert (page["changes"], page["gap"]) == ([], False)
