"""Limits on the node are exact: calls, jobs, requested runs, payloads and starts."""

import json
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.errors import Invalid, LimitExceeded, Unavailable
from punctual.domain.run import RunStatus
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.commands.jobs import Submission
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import LimitsCache
from punctual.node.limits import NodeQuotas
from punctual.node.limits_config import LIMITS_FILE, LimitsFile, NodeLimitsError, defaults_from
from tests.support.builders import ManualClock
from tests.support.names.own_names import own_name
from tests.support.node.node_world import NOON, T, World, a_world
from tests.support.web_client import Client

SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}


class NoStoredStarts:
    """Store of starts that keeps nothing."""

    def add(self, *_: Any) -> None:
        """Drop the start."""

    def times_since(self, *_: Any) -> list[datetime]:
        return []


def quotas_of(limits: TenantLimits, clock: ManualClock) -> NodeQuotas:
    return NodeQuotas(lambda _: limits, lambda _: {}, clock, clock.monotonic, NoStoredStarts())


def a_limited_world(folder: Path, **fields: int) -> AbstractContextManager[World]:
    """Return a world in which only the tenant `local` has limits."""
    limits = TenantLimits(**fields)
    return a_world(
        folder, ManualClock(NOON), lambda tenant: limits if tenant == T else TenantLimits()
    )


def submit_jobs(world: World, count: int = 1, tenant: str = T, **fields: Any) -> list[Any]:
    documents = [
        {"name": own_name("a job"), "schedule_type": "IMMEDIATE", **fields} for _ in range(count)
    ]
    submissions = [Submission(document) for document in documents]
    return list(world.do(lambda: world.node.jobs.submit(tenant, "me", submissions)))


def submit_due_at_noon(world: World, count: int, tenant: str = T, **fields: Any) -> list[str]:
    at = (NOON + timedelta(seconds=1)).isoformat()
    views = submit_jobs(world, count, tenant, schedule_type="FUTURE", schedule_time=at, **fields)
    return [view.state.job_id for view in views]


def starts(world: World) -> list[float]:
    """Return the seconds after noon at which the limited tenant's runs began, in order."""
    started_times = (view.run.started_at for view in world.runs(None))
    return sorted((at - NOON).total_seconds() for at in started_times if at is not None)


def max_starts_in_a_minute(times: list[float]) -> int:
    return max(sum(at <= start < at + 60 for start in times) for at in times)


def test_node_accepts_exactly_burst_and_rate_of_calls_in_a_minute() -> None:
    clock = ManualClock(NOON)
    limits = TenantLimits(calls_per_second=50, burst=100)
    quotas = quotas_of(limits, clock)
    accepted, waits = 0, list[float]()
    for _ in range(60 * 100):
        try:
            quotas.check_call("acme")
            accepted += 1
        except LimitExceeded as refusal:
            waits.append(refusal.retry_after_seconds)
        clock.advance(timedelta(seconds=0.01))
    assert accepted == 100 + 50 * 60 - 1  # the last call comes 10 ms before the minute is over
    assert 0 < min(waits) <= max(waits) <= 1 / 50


def test_refused_call_succeeds_exactly_after_its_retry_after() -> None:
    clock = ManualClock(NOON)
    quotas = NodeQuotas(
        lambda _: TenantLimits(calls_per_second=1, burst=1),
        lambda _: {},
        clock,
        clock.monotonic,
        NoStoredStarts(),
    )
    quotas.check_call("acme")
    quotas.check_call("other")  # another tenant has its own tokens
    with pytest.raises(LimitExceeded) as refused:
        quotas.check_call("acme")
    clock.advance(timedelta(seconds=refused.value.retry_after_seconds - 0.001))
    with pytest.raises(LimitExceeded):
        quotas.check_call("acme")
    clock.advance(timedelta(seconds=0.001))
    quotas.check_call("acme")


def test_job_quota_counts_each_job_of_a_batch(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, jobs=3) as world:
        hour: dict[str, Any] = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
        answers = submit_jobs(world, 5, **hour)
        assert [isinstance(answer, JobView) for answer in answers] == [True] * 3 + [False] * 2
        assert isinstance(answers[4], LimitExceeded)
        assert "cancel some" in answers[4].message
        assert len(submit_jobs(world, 2, tenant="other", **hour)) == 2
        world.do(lambda: world.node.jobs.cancel(T, answers[0].state.job_id))
        second_answers = submit_jobs(world, 2, **hour)
        assert [isinstance(answer, JobView) for answer in second_answers] == [True, False]


def test_completed_job_frees_job_quota(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, jobs=1) as world:
        assert isinstance(submit_jobs(world)[0], JobView)
        world.until(1)
        assert isinstance(submit_jobs(world)[0], JobView)


def test_used_idempotency_key_is_answered_at_full_job_quota(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, jobs=1) as world:
        document = {"name": "a job", "schedule_type": "INTERVAL", "interval_seconds": 60}
        first_submission, other_submission = (
            Submission(document, "k1", "f"),
            Submission(document, "k2", "f"),
        )

        def submit_view(submission: Submission) -> Any:
            return world.do(lambda: world.node.jobs.submit(T, "me", [submission]))[0]

        view = submit_view(first_submission)
        assert isinstance(submit_view(other_submission), LimitExceeded)
        assert submit_view(first_submission).state.job_id == view.state.job_id
        world.do(lambda: world.node.jobs.cancel(T, view.state.job_id))
        assert isinstance(submit_view(other_submission), JobView)  # the refusal used up no key


def test_runs_per_minute_limits_requested_runs_in_any_minute(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=3) as world:
        (job,) = submit_jobs(world, 1, schedule_type="INTERVAL", interval_seconds=3600)
        job_id = job.state.job_id
        submit_jobs(world, 1)  # IMMEDIATE counts as a requested run
        world.clock.set(NOON + timedelta(seconds=30))
        for _ in range(2):
            world.do(lambda: world.node.jobs.run_now(T, job_id))
        with pytest.raises(LimitExceeded) as refused:
            world.do(lambda: world.node.jobs.run_now(T, job_id))
        assert refused.value.retry_after_seconds == 30
        answers = submit_jobs(world, 2)
        assert all(isinstance(answer, LimitExceeded) for answer in answers)
        world.clock.set(NOON + timedelta(seconds=60))
        world.do(lambda: world.node.jobs.run_now(T, job_id))
        with pytest.raises(LimitExceeded):
            world.do(lambda: world.node.jobs.run_now(T, job_id))


def test_update_that_runs_a_job_at_once_counts_as_requested_run(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=2) as world:
        views = submit_jobs(world, 3, schedule_type="INTERVAL", interval_seconds=3600)
        first_id, second_id, third_id = (view.state.job_id for view in views)
        immediate: dict[str, Any] = {"name": "a job", "schedule_type": "IMMEDIATE"}
        due_now = {"name": "a job", "schedule_type": "FUTURE", "schedule_time": NOON.isoformat()}

        def change(job_id: str, document: dict[str, Any]) -> None:
            world.do(lambda: world.node.jobs.change(T, job_id, lambda _: document))

        change(first_id, immediate)
        change(second_id, due_now)
        for job_id, document in ((third_id, immediate), (third_id, due_now)):
            with pytest.raises(LimitExceeded, match="runs_per_minute"):
                change(job_id, document)
        change(first_id, {**immediate, "name": "renamed"})  # runs nothing
        change(second_id, {**due_now, "name": "renamed"})
        change(third_id, {**due_now, "schedule_time": (NOON + timedelta(hours=1)).isoformat()})
        assert isinstance(submit_jobs(world, 1, **due_now)[0], LimitExceeded)
        assert len(world.runs(None)) == 2


def test_backfill_over_limit_requests_no_run(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=5) as world:
        (job,) = submit_jobs(
            world,
            1,
            schedule_type="INTERVAL",
            interval_seconds=60,
            start_time=(NOON - timedelta(hours=1)).isoformat(),
        )

        def fill(minutes: int) -> Any:
            start = NOON - timedelta(minutes=minutes)
            jobs = world.node.jobs
            return world.do(lambda: finish(jobs.backfill(T, job.state.job_id, start, NOON, False)))

        with pytest.raises(Invalid):  # over the limit at any time, so a wait does not help
            fill(6)
        assert len(fill(3)) == 3
        with pytest.raises(LimitExceeded) as refused:
            fill(6)  # three exist, and three more exceed the limit
        assert refused.value.retry_after_seconds == 60


def test_events_over_limit_stay_queued_and_all_start_later(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=10) as world:
        submit_due_at_noon(world, 35)
        submit_due_at_noon(world, 20, "other")
        world.until(1)
        assert len(starts(world)) == 10
        waiting = [view for view in world.runs(None) if view.run.status is RunStatus.QUEUED]
        assert len(waiting) == 25
        other = world.do(lambda: world.store.count_runs("other"))
        assert other["SUCCESS"] == 20
        world.until(300)
        assert starts(world) == [1.0] * 10 + [61.0] * 10 + [121.0] * 10 + [181.0] * 5
        assert max_starts_in_a_minute(starts(world)) == 10


def test_limited_runs_fired_ahead_start_at_their_due_time(tmp_path: Path) -> None:
    """More than is kept of a limited tenant, some of it not due yet when room is made."""
    with a_limited_world(tmp_path, runs_per_minute=1_000_000) as world:
        for count, seconds in ((900, 10), (300, 11.5)):
            at = (NOON + timedelta(seconds=seconds)).isoformat()
            for _ in range(count // 100):
                submit_jobs(world, 100, schedule_type="FUTURE", schedule_time=at)
        world.until(11.4)
        assert world.do(lambda: world.store.count_runs(T))["SUCCESS"] >= 833
        world.until(13)
        assert world.do(lambda: world.store.count_runs(T)) == {"SUCCESS": 1_200}


def test_limited_runs_start_by_priority(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=2) as world:
        low = submit_due_at_noon(world, 3, priority="LOW")
        world.until(1)
        high = submit_due_at_noon(world, 1, priority="HIGH")
        world.until(59)
        assert world.statuses(high[0]) == ["QUEUED"]
        world.until(61.5)
        assert world.statuses(high[0]) == ["SUCCESS"]
        assert sum(world.statuses(job_id) == ["SUCCESS"] for job_id in low) == 3
        late = submit_due_at_noon(world, 1, priority="LOW")
        assert world.statuses(late[0]) == ["QUEUED"] or world.statuses(late[0]) == []


def test_concurrent_runs_limit_starts_next_run_when_one_ends(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, concurrent_runs=2) as world:
        for _ in range(4):
            submit_jobs(world, 1, task=SCRIPT)
        event = submit_due_at_noon(world, 1)
        others = submit_jobs(world, 1, "other", task=SCRIPT)
        world.node.step()
        world.clock.advance(timedelta(seconds=2))
        world.node.step()
        running = [view for view in world.runs(None) if view.run.status is RunStatus.RUNNING]
        assert len(running) == 2
        assert world.statuses(event[0]) == ["QUEUED"]
        assert isinstance(others[0], JobView)
        assert world.do(lambda: world.store.count_runs("other"))["RUNNING"] == 1
        world.gate.open.set()
        for _ in range(20):
            done = [view for view in world.runs(None) if view.run.status is RunStatus.SUCCESS]
            if len(done) == 5:
                break
            if len(world.node.running_tasks):
                world.settle()
            world.node.step()
        assert len(done) == 5


def test_rolled_back_start_does_not_count(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=2, concurrent_runs=2) as world:
        for _ in range(2):
            submit_jobs(world, 1, task=SCRIPT)

        def claim_and_fail() -> None:
            with world.node._transaction():
                world.node._start_runs(world.clock())
                raise RuntimeError("the disk is gone")

        with pytest.raises(RuntimeError):
            claim_and_fail()
        world.node.step()
        assert [view.run.status for view in world.runs(None)] == [RunStatus.RUNNING] * 2


class FullDisk:
    """Fail every addition after the first `after`, until `writes_left` is raised."""

    def __init__(self, world: World, after: int) -> None:
        self._starts = world.store.starts
        self.writes_left = after

    def times_since(self, *args: Any) -> Any:
        return self._starts.times_since(*args)

    def add(self, *row: Any) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise Unavailable("The disk is full.")
        self._starts.add(*row)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_unwritable_start_begins_no_run_and_loses_no_count(tmp_path: Path, writes: int) -> None:
    clock = ManualClock(NOON)
    world = World(tmp_path, clock, lambda _: TenantLimits(runs_per_minute=2, concurrent_runs=2))
    tenants = ("a", "b", "c")
    begun = [0, 0, 0]
    try:
        world.gate.open.set()
        for tenant in tenants:
            submit_jobs(world, 1, tenant, task=SCRIPT)
        world.node.step()
        while len(world.node.running_tasks):
            world.settle()
        world.gate.open.clear()
        for _ in tenants:
            assert world.gate.begun.acquire(timeout=10)
        clock.advance(timedelta(seconds=10))
        for tenant in tenants:
            submit_jobs(world, 1, tenant, task=SCRIPT)
        world.node._admission._starts._starts = disk = FullDisk(world, writes)
        with pytest.raises(Unavailable):
            world.node.step()
        assert len(world.node.running_tasks) == 0
        disk.writes_left = 1_000
        clock.advance(timedelta(seconds=1))
        for _ in range(9):
            world.node.step()
        for _ in range(3):
            assert world.gate.begun.acquire(timeout=10)
        assert len(world.node.running_tasks) == 3
        begun = [len(world.node._admission._starts.window_of(name, clock())) for name in tenants]
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()
    assert begun == [2, 2, 2]
    assert len(world.gate.attempts) == 6


def test_rolled_back_run_request_does_not_count(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, runs_per_minute=1) as world:
        job = world.submit(schedule_type="INTERVAL", interval_seconds=3600)

        def fail() -> None:
            with world.store.transaction():
                raise Unavailable("The disk is full.")

        with pytest.raises(Unavailable):
            world.node.perform([lambda: world.node.jobs.run_now(T, job), fail])
        world.do(lambda: world.node.jobs.run_now(T, job))
        with pytest.raises(LimitExceeded):
            world.do(lambda: world.node.jobs.run_now(T, job))


def test_high_run_starts_before_a_hundred_queued_low_runs(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    world = World(tmp_path, clock)
    try:
        for _ in range(4):
            world.submit(task=SCRIPT)
        world.node.step()
        low = [world.submit(task=SCRIPT, priority="LOW") for _ in range(100)]
        high = world.submit(task=SCRIPT, priority="HIGH")
        world.node.step()
        assert world.statuses(high) == ["QUEUED"]
        world.gate.open.set()
        for _ in range(200):
            world.clock.advance(timedelta(seconds=0.001))
            if len(world.node.running_tasks):
                world.settle()
            else:
                world.node.step()
            if all(world.statuses(job_id) == ["SUCCESS"] for job_id in (high, low[-1])):
                break
        started_times = {view.run.run_id: view.run.started_at for view in world.runs(None)}
        high_started_at = world.runs(high)[0].run.started_at
        assert high_started_at is not None
        earlier = [at for at in started_times.values() if at is not None and at < high_started_at]
        assert len(earlier) == 4  # the four that filled the lane, none of the hundred
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()


def test_limits_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock, events = ManualClock(NOON), list[str]()
    path = tmp_path / LIMITS_FILE
    path.write_text(json.dumps({"acme": {"jobs": 5, "burst": None}}))
    limits_cache = LimitsCache(
        TenantLimits(jobs=1, burst=2),
        LimitsFile(path),
        clock,
        lambda event, **_: events.append(event),
    )
    assert (limits_cache.limits_of("acme"), limits_cache.limits_of("other")) == (
        TenantLimits(jobs=5),
        TenantLimits(jobs=1, burst=2),
    )
    path.write_text("{")
    clock.advance(timedelta(seconds=59))
    assert limits_cache.limits_of("acme").jobs == 5
    assert events == []
    clock.advance(timedelta(seconds=1))
    assert limits_cache.limits_of("acme").jobs == 5  # the last known limits, and a log event
    assert events == ["limits_unread"]
    path.unlink()
    clock.advance(timedelta(seconds=5))
    assert limits_cache.limits_of("acme").jobs == 1


def test_invalid_limits_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / LIMITS_FILE
    LimitsFile(path).check()
    for text in ("{", "[]", '{"acme": 3}', '{"acme": {"jobs": -1}}', '{"acme": {"job": 1}}'):
        path.write_text(text)
        with pytest.raises(NodeLimitsError, match=r"limits\.json"):
            LimitsFile(path).check()
    for text in ("jobs", "jobs=x", "jobs=0", "job=1"):
        with pytest.raises(NodeLimitsError, match="PUNCTUAL_LIMITS"):
            defaults_from({"PUNCTUAL_LIMITS": text})


def test_http_refusal_has_retry_after() -> None:
    clock, rate = ManualClock(NOON), TenantLimits(calls_per_second=1, burst=2)
    quotas = quotas_of(rate, clock)
    client = Client(quotas=quotas, limits_of=lambda _: TenantLimits(payload_bytes=50))
    document = {"name": "a", "schedule_type": "IMMEDIATE", "payload": "x" * 60}
    refused = client.post("/v1/jobs", document)
    assert (refused.status, list(refused.fields)) == (422, ["payload"])
    assert "50 bytes" in refused.fields["payload"]
    assert client.post("/v1/jobs", {**document, "payload": "x" * 40}).status == 202
    for target in ("/v1/jobs", "/v1/whoami", "/v1/nothing"):
        answer = client.get(target)
        assert (answer.status, answer.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert answer.headers["retry-after"] == "1"
    assert client.get("/v1/health").status in (200, 503)
    assert client.get("/v1/openapi.json").status == 200
    clock.advance(timedelta(seconds=1))
    assert client.get("/v1/jobs").status == 200


def test_clock_set_back_delays_requested_runs_at_most_a_minute() -> None:
    clock = ManualClock(NOON + timedelta(hours=1))
    quotas = quotas_of(TenantLimits(runs_per_minute=2), clock)
    assert quotas.take_run_requests("acme", 2).number == 2
    clock.set(NOON)
    refused = quotas.take_run_requests("acme", 1)
    assert (refused.number, refused.retry_after_seconds) == (0, 60)
    clock.advance(timedelta(seconds=59))
    assert quotas.take_run_requests("acme", 1).number == 0
    clock.advance(timedelta(seconds=1))
    assert quotas.take_run_requests("acme", 3).number == 2


def test_ended_job_with_new_schedule_counts_in_job_quota(tmp_path: Path) -> None:
    with a_limited_world(tmp_path, jobs=1) as world:
        jobs, tomorrow = world.node.jobs, (NOON + timedelta(days=1)).isoformat()
        job_ids = [view.state.job_id for view in submit_jobs(world)]
        world.until(2)
        job_ids += [view.state.job_id for view in submit_jobs(world)]
        world.until(4)
        tomorrow_schedule = {"schedule_type": "FUTURE", "schedule_time": tomorrow}

        def change(job_id: str, **fields: Any) -> str:
            view = world.do(lambda: jobs.change(T, job_id, lambda document: {**document, **fields}))
            return str(view.state.status)

        assert change(job_ids[0], name="renamed") == "COMPLETED"
        assert change(job_ids[0], **tomorrow_schedule) == "SCHEDULED"
        with pytest.raises(LimitExceeded, match="jobs"):
            change(job_ids[1], **tomorrow_schedule)
        assert change(job_ids[1], name="renamed") == "COMPLETED"
        assert change(job_ids[0], name="renamed") == "SCHEDULED"
        world.do(lambda: jobs.cancel(T, job_ids[0]))
        assert change(job_ids[1], **tomorrow_schedule) == "SCHEDULED"


def test_lane_percent_limits_slots_of_one_tenant(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON)
    limits = {T: TenantLimits(lane_percent=1)}
    world = World(tmp_path, clock, lambda tenant: limits.get(tenant, TenantLimits()))
    try:
        for _ in range(3):
            submit_jobs(world, 1, task=SCRIPT)
        submit_jobs(world, 1, "other", task=SCRIPT)
        world.node.step()
        statuses = [view.run.status for view in world.runs(None)]
        assert statuses.count(RunStatus.RUNNING) == 1
        assert statuses.count(RunStatus.QUEUED) == 2
        assert world.do(lambda: world.store.count_runs("other"))["RUNNING"] == 1
    finally:
        world.gate.open.set()
