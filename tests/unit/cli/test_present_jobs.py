"""`punctual apply` reads the jobs that its files declare, and no others."""

import threading
from typing import Any

import httpx
import pytest

from punctual.client import Punctual
from punctual_cli.apply import present_jobs
from punctual_cli.apply.file import ALL_FEATURES, Source, load_groups
from punctual_cli.apply.plan import make_plan
from punctual_cli.apply.present_jobs import MAX_PARALLEL_READS, read_present_jobs
from tests.support.client.kinds import URL, a_problem
from tests.unit.cli.test_apply_plan import NOW, a_file
from tests.unit.cli.test_apply_plan import a_job as a_planned_job

OTHER_JOBS = 5_000


def an_id(number: int) -> str:
    return f"01a1f03b-abb9-7019-9650-{number:012d}"


def a_job(number: int, name: str, **fields: Any) -> dict[str, Any]:
    return a_planned_job(name, **{"set_name": None, "job_id": an_id(number), **fields})


class Tenant:
    """A tenant with many jobs behind `GET /jobs`. It counts the calls and the jobs it sends."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        others = [a_job(10_000 + number, f"other {number}") for number in range(OTHER_JOBS)]
        self._jobs = [*jobs, *others]
        self._lock, self._open_calls = threading.Lock(), 0
        self.calls = self.sent_jobs = self.max_open_calls = 0
        self.barrier: threading.Barrier | None = None

    def read(self, text: str) -> list[dict[str, Any]]:
        with Punctual(URL, transport=httpx.MockTransport(self._answer)) as client:
            groups = load_groups([Source("jobs.yaml", text)])
            return [job.raw for job in read_present_jobs(client, groups)]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.calls += 1
            self._open_calls += 1
            self.max_open_calls = max(self.max_open_calls, self._open_calls)
        if self.barrier is not None:
            self.barrier.wait(timeout=10)
        try:
            return self._list(request)
        finally:
            with self._lock:
                self._open_calls -= 1

    def _list(self, request: httpx.Request) -> httpx.Response:
        job_id = request.url.path.removeprefix("/v1/jobs").removeprefix("/")
        wanted = request.url.params
        if job_id:
            found = [job for job in self._jobs if job["job_id"] == job_id]
            return httpx.Response(200, json=found[0]) if found else a_problem(404, "NOT_FOUND")
        start, limit = int(wanted.get("next_token", 0)), int(wanted["limit"])
        matching = [job for job in self._jobs if self._matches(job, wanted)]
        page = matching[start : start + limit]
        self.sent_jobs += len(page)
        token = str(start + limit) if len(matching) > start + limit else None
        return httpx.Response(200, json={"jobs": page, "next_token": token})

    def _matches(self, job: dict[str, Any], wanted: httpx.QueryParams) -> bool:
        statuses, tags = wanted.get_list("status"), wanted.get_list("tag")
        return (
            wanted.get("name", job["name"]) == job["name"]
            and (not statuses or job["status"] in statuses)
            and {*tags} <= {f"{name}:{value}" for name, value in job["tags"].items()}
        )


def names(jobs: list[dict[str, Any]]) -> set[str]:
    return {job["name"] for job in jobs}


def test_names_without_a_set_take_a_call_each() -> None:
    tenant = Tenant(a_job(1, "a"), a_job(2, "b"), a_job(3, "a2"))
    jobs = tenant.read(a_file("a", "b", "new", set_name=None))
    assert names(jobs) == {"a", "b"}
    assert (tenant.calls, tenant.sent_jobs) == (3, 2)


def test_set_is_read_in_pages_and_only_new_names_take_a_call() -> None:
    of_set = [a_job(n, f"job {n}", set_name="s") for n in range(450)]
    tenant = Tenant(*of_set, a_job(900, "adopted"))
    declared = [f"job {n}" for n in range(400)]
    jobs = tenant.read(a_file(*declared, "adopted", "new"))
    assert len(jobs) == 451
    assert (tenant.calls, tenant.sent_jobs) == (3 + 2, 451)
    plan, faults = make_plan(
        load_groups([Source("jobs.yaml", a_file(*declared, "adopted", "new"))]),
        jobs,
        True,
        NOW,
        ALL_FEATURES,
    )
    assert faults == []
    assert [create.declared.name for create in plan.creates] == ["new"]
    assert [change.declared.name for change in plan.changes] == ["adopted"]
    assert (len(plan.unchanged), len(plan.prunes)) == (400, 50)


def test_ids_are_read_by_id() -> None:
    tenant = Tenant(a_job(1, "a"), a_job(2, "a"))
    file = a_file("a", more=f"    job_id: {an_id(2)}\n", set_name=None)
    assert [job["job_id"] for job in tenant.read(file)] == [an_id(2)]
    assert tenant.calls == 1
    unknown = a_file("a", more=f"    job_id: {an_id(7)}\n", set_name=None)
    assert tenant.read(unknown) == []


def test_live_job_behind_many_ended_ones_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(present_jobs, "MAX_JOBS_OF_NAME", 20)
    ended = [a_job(n, "a", status="COMPLETED") for n in range(1, 300)]
    tenant = Tenant(*ended, a_job(900, "a"))
    jobs = tenant.read(a_file("a", set_name=None))
    assert an_id(900) in {job["job_id"] for job in jobs}
    assert (tenant.calls, tenant.sent_jobs) == (2, 21)


def test_finished_job_of_a_set_is_found_by_its_name() -> None:
    jobs = [a_job(1, "a", set_name="s", status="COMPLETED"), a_job(2, "a", set_name="other")]
    tenant = Tenant(*jobs)
    assert {job["job_id"] for job in tenant.read(a_file("a"))} == {an_id(1), an_id(2)}


def test_job_that_ran_at_once_does_not_hide_another_of_its_name() -> None:
    at_once = a_job(1, "a", set_name="s", schedule_type="IMMEDIATE", status="PAUSED")
    tenant = Tenant(at_once, a_job(2, "a"))
    assert an_id(2) in {job["job_id"] for job in tenant.read(a_file("a"))}


def test_calls_are_parallel_up_to_a_bound() -> None:
    tenant = Tenant()
    tenant.barrier = threading.Barrier(MAX_PARALLEL_READS)
    tenant.read(a_file(*(f"n{n}" for n in range(4 * MAX_PARALLEL_READS)), set_name=None))
    assert tenant.max_open_calls == MAX_PARALLEL_READS
