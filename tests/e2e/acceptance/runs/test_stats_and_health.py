"""Stats and health."""

from datetime import timedelta

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    Json,
    a_client,
    eventually,
    instant,
    iso,
)
from tests.support.acceptance.target import Target

SKEW = timedelta(seconds=5)  # difference between the clocks of executors and installation

RUN_STATUSES = {
    *("WAITING", "QUEUED", "CLAIMED", "RUNNING", "SUCCESS", "FAILED"),
    *("TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"),
}


def test_health_describes_the_installation(api: Api) -> None:
    answer = api("GET", "/health")
    health = answer.json()
    assert answer.status_code in (200, 503)
    assert {
        *("status", "lateness_ms_p99", "watermark", "planner_heartbeat", "version", "tzdata"),
        *("task_types", "guarantee", "margin_seconds", "sandbox", "auth"),
    } <= set(health)
    assert health["sandbox"] in (None, "landlock", "bubblewrap", "none")
    assert health["sandbox"] is None or "script" in health["task_types"]
    auth = health["auth"]
    assert auth is None or (set(auth) == {"issuer", "client_id"} and auth["issuer"])
    assert health["status"] in {"ok", "late"}
    assert {"event", "http"} <= set(health["task_types"])
    margins = health["margin_seconds"]
    assert set(margins) == set(health["task_types"])
    assert {margins["event"], margins["http"]} == {2}


def test_live_and_ready_probes_return_ok(api: Api) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = api("GET", path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_health_needs_no_token(api: Api) -> None:
    with a_client(api.url, None) as stranger:
        assert Api(stranger)("GET", "/health").status_code in (200, 503)


def test_stats_count_jobs_and_runs(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30))["job_id"]
    api.in_status(api.run_now(job_id), "RUNNING")

    def load() -> Json:
        stats = api.get("/stats")
        return stats if stats["runs"].get("RUNNING") else {}

    stats = eventually(load)
    names = {"jobs", "runs", "last_hour", "lateness_ms", "queue", "limits"}
    names |= {"executors", "list_lag_ms"}
    assert set(stats) == names
    assert stats["jobs"]["SCHEDULED"] >= 1
    assert set(stats["jobs"]) <= {"SCHEDULED", "PAUSED", "CANCELLED", "COMPLETED"}
    assert set(stats["runs"]) <= RUN_STATUSES
    assert set(stats["lateness_ms"]) == {"p50", "p99", "max"}
    assert set(stats["queue"]) == {"depth", "oldest_seconds"}
    for minute in stats["last_hour"]:
        assert set(minute) == {"minute", "started", "succeeded", "failed", "lateness_ms"}


def test_stats_list_the_executor_of_a_long_run(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(60))["job_id"]
    running = api.in_status(api.run_now(job_id), "RUNNING")

    def load() -> list[Json]:
        executors = api.get("/stats")["executors"]
        return [
            executor for executor in executors if executor["executor_id"] == running["executor_id"]
        ]

    (executor,) = eventually(load)
    assert set(executor) == {"executor_id", "last_heartbeat", "running"}
    assert executor["running"] >= 1
    assert instant(executor["last_heartbeat"]) >= instant(running["start_time"]) - SKEW
    api("POST", f"/jobs/{job_id}/runs/{running['run_id']}/cancel")


def test_stats_reflect_ended_runs(api: Api, target: Target) -> None:
    def counts() -> tuple[int, int, int]:
        stats = api.get("/stats")
        hour = stats["last_hour"]
        return (
            stats["runs"].get("FAILED", 0),
            sum(minute["started"] for minute in hour),
            sum(minute["failed"] for minute in hour),
        )

    before = counts()
    job_id = api.create(**NEVER_SOON, task=target.task("/500"), max_retries=0)["job_id"]
    assert api.ended(api.run_now(job_id))["status"] == "FAILED"

    def grew() -> bool:
        return all(now > then for now, then in zip(counts(), before, strict=True))

    assert eventually(grew)


def test_stats_minute_reports_lateness(api: Api) -> None:
    run = api.only_run(api.create(schedule_type="IMMEDIATE")["job_id"])
    minute_of_start = iso(instant(run["start_time"]).replace(second=0, microsecond=0))

    def load() -> Json:
        hour = {minute["minute"]: minute for minute in api.get("/stats")["last_hour"]}
        minute = hour.get(minute_of_start, {"lateness_ms": {"max": None}})
        return minute if minute["lateness_ms"]["max"] is not None else None

    minute = eventually(load)
    late = minute["lateness_ms"]
    assert set(late) == {"p50", "p99", "max"}
    assert 0 <= late["p50"] <= late["p99"] <= late["max"]
    # AWS counts in logarithmic steps, exact to 5 %.
    assert late["max"] >= run["lateness_ms"] * 0.95 - 1
    assert api.get("/stats")["lateness_ms"]["max"] >= late["max"]


def test_cancelled_run_is_not_counted_as_failed(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30), max_retries=0)["job_id"]
    run = api.in_status(api.run_now(job_id), "RUNNING")
    before = sum(minute["failed"] for minute in api.get("/stats")["last_hour"])
    api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/cancel")
    api.ended(run)
    assert sum(minute["failed"] for minute in api.get("/stats")["last_hour"]) == before
