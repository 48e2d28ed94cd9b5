"""Crashes of the job service or the status function. Each change has one audit entry."""

from collections import Counter
from typing import Any

import pytest

from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}
NEVER_SOON = {"schedule_type": "CRON", "cron_expression": "0 0 29 2 *", "task": EVENT}
CHANGES: list[tuple[str, str, Any]] = [
    ("PATCH", "", {"priority": "HIGH"}),
    ("POST", "/pause", None),
    ("POST", "/runNow", None),
]


def audit_entries(api: Gateway) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    token = ""
    while True:
        answer = api.get(f"/audit?limit=5&next_token={token}")
        assert answer.status == 200, answer.body
        entries += answer.json["entries"]
        token = answer.json["next_token"]
        if not token:
            return entries


def change_jobs(world: World, api: Gateway) -> None:
    submit_job(api, **NEVER_SOON)
    for job in [job["job_id"] for job in api.get("/jobs").json["jobs"]]:
        for method, target, value in CHANGES:
            api.call(method, f"/jobs/{job}{target}", value)
            world.run(MINUTE / 6)


def stored_changes(api: Gateway) -> Counter[tuple[str, bool]]:
    """Count the changes of each job, and separately its requested runs."""
    counts: Counter[tuple[str, bool]] = Counter()
    for job in api.get("/jobs").json["jobs"]:
        counts[job["job_id"], True] = job["version"]
        counts[job["job_id"], False] = len(api.get(f"/jobs/{job['job_id']}/runs").json["runs"])
    return +counts


def audited_changes(api: Gateway) -> Counter[tuple[str, bool]]:
    return Counter(
        (line["job_id"], line["action"].startswith("job.")) for line in audit_entries(api)
    )


def crash_at_call(short: str, number: int) -> tuple[int, Counter[str]]:
    """Crash a function at one of its calls. Return its number of calls, and the failures."""
    with a_world() as world:
        api = open_api(world)
        submit_job(api, **NEVER_SOON)
        world.run(MINUTE)
        seen = 0

        def dies(moment: Moment) -> BaseException | None:
            nonlocal seen
            if moment.role != world.name(short) or moment.service != "dynamodb":
                return None
            seen += 1
            return Killed("out of time or memory") if seen == number else None

        world.faults.plan = dies
        try:
            change_jobs(world, api)
        except AssertionError:
            assert short == "job-service", "only a crash of the job service refuses a submission"
            change_jobs(world, api)
        world.faults.plan = None
        world.run(5 * MINUTE)
        stand = stored_changes(api)
        assert audited_changes(api) == stand, (short, number)
        assert len(stand) >= 2
        return seen, Counter(name for name, _ in world.failures)


def test_each_change_has_one_audit_entry_without_faults() -> None:
    seen, failures = crash_at_call("job-service", 0)
    assert (seen > 20, failures) == (True, Counter())


@pytest.mark.parametrize("number", range(1, 30, 5))
def test_crash_of_job_service_leaves_no_change_without_audit_entry(number: int) -> None:
    seen, failures = crash_at_call("job-service", number)
    assert seen >= number, "the call that crashes was made"
    assert sum(failures.values()) == 1


@pytest.mark.parametrize("number", [1, 2, 4])
def test_crash_of_status_leaves_no_change_without_audit_entry(number: int) -> None:
    _, failures = crash_at_call("status", number)
    assert sum(failures.values()) == 1
