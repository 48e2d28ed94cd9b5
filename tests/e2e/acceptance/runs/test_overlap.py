"""Overlapping runs: policies, wait queues, limits, priorities and pauses."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.support.acceptance.contract import (
    ENDED,
    EVERY_SECOND,
    NEVER_SOON,
    PATIENCE,
    Api,
    Json,
    eventually,
    instant,
    soon,
    unique,
)
from tests.support.acceptance.target import Target

EACH = 24


@pytest.fixture(scope="module")
def job_ids(shared: Api, target: Target) -> dict[str, str]:
    hold = target.hold(1.2)
    jobs: dict[str, Json] = {
        "queue": {"task": hold},
        "skip": {"task": hold, "overlap_policy": "SKIP"},
        "replace": {"task": target.hold(3), "overlap_policy": "REPLACE"},
        "full": {"task": target.hold(30), "max_waiting": 2},
        "two": {"task": hold, "max_concurrency": 2},
    }
    return {name: shared.create(**EVERY_SECOND, **job)["job_id"] for name, job in jobs.items()}


def has(api: Api, job_id: str, count: int, **filters: Json) -> list[Json]:
    def load() -> list[Json]:
        runs = api.runs(job_id, **filters)
        return runs if len(runs) >= count else []

    return eventually(load, 20)


def spans(runs: list[Json]) -> list[tuple[datetime, datetime]]:
    return [(instant(run["start_time"]), instant(run["end_time"])) for run in runs]


def most_at_once(runs: list[Json]) -> int:
    ends = spans(runs)
    return max((sum(start <= at < end for start, end in ends) for at, _ in ends), default=0)


def test_queue_policy_runs_in_order(api: Api, job_ids: dict[str, str]) -> None:
    done = has(api, job_ids["queue"], 3, status="SUCCESS")
    assert most_at_once(done) == 1
    assert [run["scheduled_time"] for run in done] == sorted(r["scheduled_time"] for r in done)
    gaps = {instant(b["scheduled_time"]) - instant(a["scheduled_time"]) for a, b in pairwise(done)}
    assert gaps == {timedelta(seconds=1)}
    waiting = has(api, job_ids["queue"], 1, status="WAITING")
    assert {run["reason"]["code"] for run in waiting} == {"CONCURRENCY"}


def test_skip_policy_skips_overlapping_runs(api: Api, job_ids: dict[str, str]) -> None:
    skipped = has(api, job_ids["skip"], 2, status="SKIPPED")
    assert {run["reason"]["code"] for run in skipped} == {"OVERLAP"}
    done = has(api, job_ids["skip"], 2, status="SUCCESS")
    assert most_at_once(done) == 1
    assert api.runs(job_ids["skip"], status="WAITING") == []


def test_replace_policy_cancels_the_oldest_run(api: Api, job_ids: dict[str, str]) -> None:
    """Running runs get a cancel request. Waiting runs are cancelled without a start."""
    gone = has(api, job_ids["replace"], 2, status="CANCELLED")
    assert {run["reason"]["code"] for run in gone} == {"REPLACED"}
    began = [run for run in gone if run["start_time"]]
    assert most_at_once(began) <= 1

    def newer() -> list[Json]:
        runs = api.runs(job_ids["replace"], status="RUNNING")
        return [run for run in runs if run["scheduled_time"] > gone[1]["scheduled_time"]]

    started = instant(eventually(newer, 20)[0]["start_time"])
    before = [run for run in began if run["scheduled_time"] <= gone[1]["scheduled_time"]]
    assert all(instant(run["end_time"]) <= started for run in before)


def test_full_wait_queue_skips_runs(api: Api, job_ids: dict[str, str]) -> None:
    skipped = has(api, job_ids["full"], 1, status="SKIPPED")
    assert {run["reason"]["code"] for run in skipped} == {"QUEUE_FULL"}
    assert len(api.runs(job_ids["full"], status="WAITING")) == 2
    ordered = api.run_now(job_ids["full"])
    assert api.run(job_ids["full"], ordered["run_id"])["status"] == "WAITING"


def test_max_concurrency_two_runs_two_at_a_time(api: Api, job_ids: dict[str, str]) -> None:
    done = has(api, job_ids["two"], 4, status="SUCCESS")
    assert most_at_once(done) == 2


def test_lowered_max_concurrency_stops_no_run_and_raised_one_applies_now(
    api: Api, target: Target
) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30), max_concurrency=2)["job_id"]
    path = f"/jobs/{job_id}"
    runs = [api.run_now(job_id) for _ in range(4)]
    for run in runs[:2]:
        api.in_status(run, "RUNNING")
    api("PATCH", path, {"max_concurrency": 1})
    assert len(api.runs(job_id, status="RUNNING")) == 2
    api("PATCH", path, {"max_concurrency": 3})
    api.in_status(runs[2], "RUNNING", within=5)
    assert api.run(job_id, runs[3]["run_id"])["status"] == "WAITING"
    assert api.run(job_id, runs[2]["run_id"])["job_version"] == 1


def test_runs_start_in_order_of_priority(api: Api, target: Target) -> None:
    """All runs have one due time, exceed the node's places, and the highest priority is last."""
    due = soon(1.5)
    name = unique("prio")
    kinds = ["LOW"] * EACH + ["NORMAL"] * EACH + ["HIGH"] * EACH
    task = target.hold(0.1)
    once = {"schedule_type": "FUTURE", "schedule_time": due, "task": task}
    body = {"jobs": [{"name": name, "priority": kind, **once} for kind in kinds]}
    ids = [result["job_id"] for result in api("POST", "/jobs/batch", body).json()["results"]]
    order = dict(zip(ids, kinds, strict=True))

    def started() -> list[Json]:
        runs = [
            run
            for run in api.pages("/runs", "runs", from_=due, to=soon(60), limit=200)
            if run["job_id"] in order and run["start_time"]
        ]
        return runs if len(runs) == len(ids) else []

    starts: dict[str, list[datetime]] = {kind: [] for kind in kinds}
    for run in eventually(started, 40):
        starts[order[run["job_id"]]].append(instant(run["start_time"]))
    middle = {kind: sorted(times)[EACH // 2] for kind, times in starts.items()}
    if not api.is_local:  # it may have places for all runs at once
        assert middle["HIGH"] <= middle["LOW"] + timedelta(seconds=0.5 * PATIENCE)
        return
    assert middle["HIGH"] < middle["NORMAL"] < middle["LOW"]
    late_high = sum(time > min(starts["LOW"]) for time in starts["HIGH"])
    assert late_high <= 5, late_high


MISSED = ("SKIP", "RUN_ONCE", "RUN_ALL")


@pytest.fixture(scope="module")
def resumed(shared: Api) -> tuple[dict[str, str], datetime, datetime]:
    """Return jobs paused over at least four occurrences, and the times of pause and resume."""
    jobs = {missed: shared.create(**EVERY_SECOND)["job_id"] for missed in MISSED}
    other = shared.create(**EVERY_SECOND)["job_id"]
    for job_id in jobs.values():
        has(shared, job_id, 1, status="SUCCESS")
        shared.order(job_id, "pause")
    paused = instant(soon(0))
    has(shared, other, len(shared.runs(other)) + 5)
    shared("DELETE", f"/jobs/{other}")
    for job_id in jobs.values():
        # Runs that were due but not claimed at the pause wait.
        assert {run["status"] for run in shared.runs(job_id)} <= {"SUCCESS", "WAITING"}
    until = instant(soon(0))
    for missed, job_id in jobs.items():
        shared.order(job_id, "resume", {"missed": missed})
    return jobs, paused, until


@pytest.mark.parametrize("missed", MISSED)
def test_resume_applies_the_missed_policy(
    api: Api, resumed: tuple[dict[str, str], datetime, datetime], missed: str
) -> None:
    jobs, paused, until = resumed
    job_id = jobs[missed]

    def settled() -> list[Json]:
        """Return the ended runs up to the first one after the resume. Queued runs end later."""
        runs = api.runs(job_id, trigger="SCHEDULE")
        for at, run in enumerate(runs):
            if run["status"] == "SUCCESS" and instant(run["scheduled_time"]) > until:
                past = runs[: at + 1]
                return past if all(r["status"] in ENDED for r in past) else []
        return []

    runs = eventually(settled)
    # Runs due at the resume may still start, so two seconds are excluded.
    sure = until - timedelta(seconds=2)
    since = paused - timedelta(seconds=PATIENCE)  # a due occurrence without a run counts as missed
    missing = [run for run in runs if since < instant(run["scheduled_time"]) < sure]
    if missed == "RUN_ALL":
        assert {run["status"] for run in missing} == {"SUCCESS"}
        assert len(missing) >= 3
    else:
        assert {run["status"] for run in missing} <= {"SKIPPED", "SUCCESS"}
        (bulk,) = [run for run in missing if run["status"] == "SKIPPED"]
        assert bulk["reason"]["code"] == {"SKIP": "PAUSED", "RUN_ONCE": "COALESCED"}[missed]
        assert bulk["count"] >= 2
        at = bulk["scheduled_time"]
        assert api.get(f"/jobs/{job_id}/explain", at=at)["outcome"] == "SKIPPED"
    times = [instant(run["scheduled_time"]) for run in runs]
    assert len(times) == len(set(times))
    assert sum(run["count"] for run in runs) == (max(times) - min(times)).total_seconds() + 1


def test_paused_job_keeps_its_wait_queue_and_accepts_run_now(api: Api, target: Target) -> None:
    """The job fires faster than it runs, so from the second run on one always waits."""
    job_id = api.create(**EVERY_SECOND, task=target.hold(2.5))["job_id"]
    has(api, job_id, 1, status="WAITING")
    running = has(api, job_id, 1, status="RUNNING")[0]
    api.order(job_id, "pause")
    waiting = has(api, job_id, 1, status="WAITING")
    assert {run["reason"]["code"] for run in waiting} == {"PAUSED"}
    ordered = api.run_now(job_id)
    assert api.ended(ordered)["status"] == "SUCCESS"
    assert api.ended(running)["status"] == "SUCCESS"
    assert {api.run(job_id, run["run_id"])["status"] for run in waiting} == {"WAITING"}
    api.order(job_id, "resume", {"missed": "SKIP"})
    assert api.ended(waiting[-1])["status"] == "SUCCESS"


def test_paused_one_time_job_runs_after_resume(api: Api) -> None:
    names = ("RUN_ONCE", "SKIP")
    jobs = {}
    for policy in names:
        once = {"schedule_type": "FUTURE", "schedule_time": soon(1), "misfire_policy": policy}
        jobs[policy] = api.create(**once, misfire_grace_seconds=0)["job_id"]
        api.order(jobs[policy], "pause")
    clock = api.create(schedule_type="FUTURE", schedule_time=soon(1.5))["job_id"]
    api.job_in(clock, "COMPLETED")
    for policy in names:
        assert api.get(f"/jobs/{jobs[policy]}")["status"] == "PAUSED"
        api.order(jobs[policy], "resume")
    assert api.only_run(jobs["RUN_ONCE"])["status"] == "SUCCESS"
    skipped = api.only_run(jobs["SKIP"])
    assert (skipped["status"], skipped["reason"]["code"]) == ("SKIPPED", "PAUSED")
    api.job_in(jobs["SKIP"], "COMPLETED")
