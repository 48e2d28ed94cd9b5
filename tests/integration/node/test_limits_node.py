"""Limits on the node, exact: calls, jobs, orders, payloads, starts, and what they leave alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
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
from punctual.node.clock import ManualClock
from punctual.node.limits import NodeQuotas
from punctual.node.limits_config import LIMITS_FILE, LimitsFile, NodeLimitsError, defaults_from
from tests.support.node.node_world import NOON, T, World
from tests.support.web_client import Client

SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}


class Forgets:
    """Nothing outlives a restart."""

    def add(self, *_: Any) -> None:
        """Not kept."""

    def times_since(self, *_: Any) -> list[datetime]:
        return []


def quotas_of(limits: TenantLimits, clock: ManualClock) -> NodeQuotas:
    return NodeQuotas(lambda _: limits, lambda _: {}, clock, clock.monotonic, Forgets())


@contextmanager
def limited(folder: Path, **fields: int) -> Iterator[World]:
    """Only the tenant `local` has limits."""
    clock = ManualClock(NOON)
    limits = TenantLimits(**fields)
    world = World(folder, clock, lambda tenant: limits if tenant == T else TenantLimits())
    try:
        yield world
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()


def submitted(world: World, count: int = 1, tenant: str = T, **fields: Any) -> list[Any]:
    document = {"name": "a job", "schedule_type": "IMMEDIATE", **fields}
    return list(
        world.do(lambda: world.node.jobs.submit(tenant, "me", [Submission(document)] * count))
    )


def due_at_noon(world: World, count: int, tenant: str = T, **fields: Any) -> list[str]:
    at = (NOON + timedelta(seconds=1)).isoformat()
    views = submitted(world, count, tenant, schedule_type="FUTURE", schedule_time=at, **fields)
    return [view.head.job_id for view in views]


def starts(world: World) -> list[float]:
    """Seconds after noon at which the runs of the limited tenant began, in order."""
    found = (view.run.started_at for view in world.runs(None))
    return sorted((at - NOON).total_seconds() for at in found if at is not None)


def most_in_a_minute(moments: list[float]) -> int:
    return max(sum(at <= one < at + 60 for one in moments) for at in moments)


def test_twice_the_rate_for_a_minute_is_accepted_to_the_call() -> None:
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


def test_a_refused_call_succeeds_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock(NOON)
    quotas = NodeQuotas(
        lambda _: TenantLimits(calls_per_second=1, burst=1),
        lambda _: {},
        clock,
        clock.monotonic,
        Forgets(),
    )
    quotas.check_call("acme")
    quotas.check_call("other")  # has tokens of its own
    with pytest.raises(LimitExceeded) as refused:
        quotas.check_call("acme")
    clock.advance(timedelta(seconds=refused.value.retry_after_seconds - 0.001))
    with pytest.raises(LimitExceeded):
        quotas.check_call("acme")
    clock.advance(timedelta(seconds=0.001))
    quotas.check_call("acme")


def test_jobs_are_counted_one_by_one_also_within_a_batch(tmp_path: Path) -> None:
    with limited(tmp_path, jobs=3) as world:
        hour: dict[str, Any] = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
        answers = submitted(world, 5, **hour)
        assert [isinstance(one, JobView) for one in answers] == [True] * 3 + [False] * 2
        assert isinstance(answers[4], LimitExceeded)
        assert "cancel some" in answers[4].message
        assert len(submitted(world, 2, tenant="other", **hour)) == 2
        world.do(lambda: world.node.jobs.cancel(T, answers[0].head.job_id))
        again = submitted(world, 2, **hour)
        assert [isinstance(one, JobView) for one in again] == [True, False]


def test_a_job_that_completed_makes_room(tmp_path: Path) -> None:
    with limited(tmp_path, jobs=1) as world:
        assert isinstance(submitted(world)[0], JobView)
        world.until(1)
        assert isinstance(submitted(world)[0], JobView)


def test_a_key_that_made_its_job_is_answered_at_the_quota_too(tmp_path: Path) -> None:
    with limited(tmp_path, jobs=1) as world:
        document = {"name": "a job", "schedule_type": "INTERVAL", "interval_seconds": 60}
        once, other = Submission(document, "k1", "f"), Submission(document, "k2", "f")

        def ask(one: Submission) -> Any:
            return world.do(lambda: world.node.jobs.submit(T, "me", [one]))[0]

        made = ask(once)
        assert isinstance(ask(other), LimitExceeded)
        assert ask(once).head.job_id == made.head.job_id
        world.do(lambda: world.node.jobs.cancel(T, made.head.job_id))
        assert isinstance(ask(other), JobView)  # the refusal used up no key


def test_orders_are_counted_over_any_minute(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=3) as world:
        (job,) = submitted(world, 1, schedule_type="INTERVAL", interval_seconds=3600)
        job_id = job.head.job_id
        submitted(world, 1)  # IMMEDIATE: an order too
        world.clock.set(NOON + timedelta(seconds=30))
        for _ in range(2):
            world.do(lambda: world.node.jobs.run_now(T, job_id))
        with pytest.raises(LimitExceeded) as refused:
            world.do(lambda: world.node.jobs.run_now(T, job_id))
        assert refused.value.retry_after_seconds == 30
        answers = submitted(world, 2)
        assert all(isinstance(one, LimitExceeded) for one in answers)
        world.clock.set(NOON + timedelta(seconds=60))
        world.do(lambda: world.node.jobs.run_now(T, job_id))
        with pytest.raises(LimitExceeded):
            world.do(lambda: world.node.jobs.run_now(T, job_id))


def test_a_change_that_runs_a_job_at_once_is_an_order(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=2) as world:
        views = submitted(world, 3, schedule_type="INTERVAL", interval_seconds=3600)
        one, two, three = (view.head.job_id for view in views)
        once: dict[str, Any] = {"name": "a job", "schedule_type": "IMMEDIATE"}
        now = {"name": "a job", "schedule_type": "FUTURE", "schedule_time": NOON.isoformat()}

        def change(job_id: str, document: dict[str, Any]) -> None:
            world.do(lambda: world.node.jobs.change(T, job_id, lambda _: document))

        change(one, once)
        change(two, now)
        for job_id, document in ((three, once), (three, now)):
            with pytest.raises(LimitExceeded, match="runs_per_minute"):
                change(job_id, document)
        change(one, {**once, "name": "renamed"})  # runs nothing
        change(two, {**now, "name": "renamed"})
        change(three, {**now, "schedule_time": (NOON + timedelta(hours=1)).isoformat()})
        assert isinstance(submitted(world, 1, **now)[0], LimitExceeded)
        assert len(world.runs(None)) == 2


def test_a_backfill_is_ordered_whole_or_not_at_all(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=5) as world:
        (job,) = submitted(
            world,
            1,
            schedule_type="INTERVAL",
            interval_seconds=60,
            start_time=(NOON - timedelta(hours=1)).isoformat(),
        )

        def fill(minutes: int) -> Any:
            start = NOON - timedelta(minutes=minutes)
            jobs = world.node.jobs
            return world.do(lambda: finish(jobs.backfill(T, job.head.job_id, start, NOON, False)))

        with pytest.raises(Invalid):  # it would never be allowed: not a matter of waiting
            fill(6)
        assert len(fill(3)) == 3
        with pytest.raises(LimitExceeded) as refused:
            fill(6)  # three are made already, and three more are too many
        assert refused.value.retry_after_seconds == 60


def test_events_over_the_limit_wait_queued_and_none_is_lost(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=10) as world:
        due_at_noon(world, 35)
        due_at_noon(world, 20, "other")
        world.until(1)
        assert len(starts(world)) == 10
        waiting = [view for view in world.runs(None) if view.run.status is RunStatus.QUEUED]
        assert len(waiting) == 25
        other = world.do(lambda: world.store.count_runs("other"))
        assert other["SUCCESS"] == 20
        world.until(300)
        assert starts(world) == [1.0] * 10 + [61.0] * 10 + [121.0] * 10 + [181.0] * 5
        assert most_in_a_minute(starts(world)) == 10


def test_what_was_fired_ahead_and_left_out_of_memory_starts_at_its_time(tmp_path: Path) -> None:
    """More than is kept of a limited tenant, some of it not due yet when room is made."""
    with limited(tmp_path, runs_per_minute=1_000_000) as world:
        for count, seconds in ((900, 10), (300, 11.5)):
            at = (NOON + timedelta(seconds=seconds)).isoformat()
            for _ in range(count // 100):
                submitted(world, 100, schedule_type="FUTURE", schedule_time=at)
        world.until(11.4)
        assert world.do(lambda: world.store.count_runs(T))["SUCCESS"] >= 833
        world.until(13)
        assert world.do(lambda: world.store.count_runs(T)) == {"SUCCESS": 1_200}


def test_what_may_start_goes_by_priority(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=2) as world:
        low = due_at_noon(world, 3, priority="LOW")
        world.until(1)
        high = due_at_noon(world, 1, priority="HIGH")
        world.until(59)
        assert world.statuses(high[0]) == ["QUEUED"]
        world.until(61.5)
        assert world.statuses(high[0]) == ["SUCCESS"]
        assert sum(world.statuses(one) == ["SUCCESS"] for one in low) == 3
        late = due_at_noon(world, 1, priority="LOW")
        assert world.statuses(late[0]) == ["QUEUED"] or world.statuses(late[0]) == []


def test_no_more_run_together_than_may_and_the_next_starts_with_an_end(tmp_path: Path) -> None:
    with limited(tmp_path, concurrent_runs=2) as world:
        for _ in range(4):
            submitted(world, 1, task=SCRIPT)
        event = due_at_noon(world, 1)
        others = submitted(world, 1, "other", task=SCRIPT)
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


def test_a_start_that_was_undone_counts_not(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=2, concurrent_runs=2) as world:
        for _ in range(2):
            submitted(world, 1, task=SCRIPT)

        def claim_and_fail() -> None:
            with world.node._transaction():
                world.node._start_runs(world.clock())
                raise RuntimeError("the disk is gone")

        with pytest.raises(RuntimeError):
            claim_and_fail()
        world.node.step()
        assert [view.run.status for view in world.runs(None)] == [RunStatus.RUNNING] * 2


class FullDisk:
    """From so many additions on, no more can be written, until there is space again."""

    def __init__(self, world: World, after: int) -> None:
        self._starts = world.store.starts
        self.left = after

    def times_since(self, *asked: Any) -> Any:
        return self._starts.times_since(*asked)

    def add(self, *added: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unavailable("The disk is full.")
        self._starts.add(*added)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_where_a_start_cannot_be_written_none_has_begun_and_none_is_forgotten(
    tmp_path: Path, written: int
) -> None:
    clock = ManualClock(NOON)
    world = World(tmp_path, clock, lambda _: TenantLimits(runs_per_minute=2, concurrent_runs=2))
    tenants = ("a", "b", "c")
    begun = [0, 0, 0]
    try:
        world.gate.open.set()
        for tenant in tenants:
            submitted(world, 1, tenant, task=SCRIPT)
        world.node.step()
        while len(world.node.running_tasks):
            world.settle()
        world.gate.open.clear()
        for _ in tenants:
            assert world.gate.begun.acquire(timeout=10)
        clock.advance(timedelta(seconds=10))
        for tenant in tenants:
            submitted(world, 1, tenant, task=SCRIPT)
        world.node._admission._starts._starts = disk = FullDisk(world, written)
        with pytest.raises(Unavailable):
            world.node.step()
        assert len(world.node.running_tasks) == 0
        disk.left = 1_000
        clock.advance(timedelta(seconds=1))
        for _ in range(9):
            world.node.step()
        for _ in range(3):
            assert world.gate.begun.acquire(timeout=10)
        assert len(world.node.running_tasks) == 3
        begun = [len(world.node._admission._starts.window_of(one, clock())) for one in tenants]
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()
    assert begun == [2, 2, 2]
    assert len(world.gate.attempts) == 6


def test_an_order_that_was_undone_counts_not(tmp_path: Path) -> None:
    with limited(tmp_path, runs_per_minute=1) as world:
        job = world.submit(schedule_type="INTERVAL", interval_seconds=3600)

        def fail() -> None:
            with world.store.transaction():
                raise Unavailable("The disk is full.")

        with pytest.raises(Unavailable):
            world.node.perform([lambda: world.node.jobs.run_now(T, job), fail])
        world.do(lambda: world.node.jobs.run_now(T, job))
        with pytest.raises(LimitExceeded):
            world.do(lambda: world.node.jobs.run_now(T, job))


def test_a_hundred_low_wait_and_one_high_starts_next(tmp_path: Path) -> None:
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
            if all(world.statuses(one) == ["SUCCESS"] for one in (high, low[-1])):
                break
        begun = {view.run.run_id: view.run.started_at for view in world.runs(None)}
        mine = world.runs(high)[0].run.started_at
        assert mine is not None
        before = [at for at in begun.values() if at is not None and at < mine]
        assert len(before) == 4  # those that filled the lane, and none of the hundred
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()


def test_limits_of_one_tenant_are_read_again_after_a_minute(tmp_path: Path) -> None:
    clock, told = ManualClock(NOON), list[str]()
    path = tmp_path / LIMITS_FILE
    path.write_text(json.dumps({"acme": {"jobs": 5, "burst": None}}))
    known = LimitsCache(
        TenantLimits(jobs=1, burst=2),
        LimitsFile(path),
        clock,
        lambda event, **_: told.append(event),
    )
    assert (known.limits_of("acme"), known.limits_of("other")) == (
        TenantLimits(jobs=5),
        TenantLimits(jobs=1, burst=2),
    )
    path.write_text("{")
    clock.advance(timedelta(seconds=59))
    assert known.limits_of("acme").jobs == 5
    assert told == []
    clock.advance(timedelta(seconds=1))
    assert known.limits_of("acme").jobs == 5  # what was last known, and somebody is told
    assert told == ["limits_unread"]
    path.unlink()
    clock.advance(timedelta(seconds=5))
    assert known.limits_of("acme").jobs == 1


def test_what_an_operator_wrote_is_checked_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / LIMITS_FILE
    LimitsFile(path).check()
    for text in ("{", "[]", '{"acme": 3}', '{"acme": {"jobs": -1}}', '{"acme": {"job": 1}}'):
        path.write_text(text)
        with pytest.raises(NodeLimitsError, match=r"limits\.json"):
            LimitsFile(path).check()
    for text in ("jobs", "jobs=x", "jobs=0", "job=1"):
        with pytest.raises(NodeLimitsError, match="PUNCTUAL_LIMITS"):
            defaults_from({"PUNCTUAL_LIMITS": text})


def test_over_http_a_refusal_says_when_to_come_again() -> None:
    clock, rate = ManualClock(NOON), TenantLimits(calls_per_second=1, burst=2)
    quotas = quotas_of(rate, clock)
    client = Client(quotas=quotas, limits_of=lambda _: TenantLimits(payload_bytes=50))
    sent = {"name": "a", "schedule_type": "IMMEDIATE", "payload": "x" * 60}
    refused = client.post("/v1/jobs", sent)
    assert (refused.status, list(refused.fields)) == (422, ["payload"])
    assert "50 bytes" in refused.fields["payload"]
    assert client.post("/v1/jobs", {**sent, "payload": "x" * 40}).status == 202
    for target in ("/v1/jobs", "/v1/whoami", "/v1/nothing"):
        over = client.get(target)
        assert (over.status, over.json["code"]) == (429, "LIMIT_EXCEEDED")
        assert over.headers["retry-after"] == "1"
    assert client.get("/v1/health").status in (200, 503)
    assert client.get("/v1/openapi.json").status == 200
    clock.advance(timedelta(seconds=1))
    assert client.get("/v1/jobs").status == 200


def test_a_clock_that_is_set_back_holds_nothing_for_longer_than_a_minute() -> None:
    clock = ManualClock(NOON + timedelta(hours=1))
    quotas = quotas_of(TenantLimits(runs_per_minute=2), clock)
    assert quotas.take_orders("acme", 2).number == 2
    clock.set(NOON)
    refused = quotas.take_orders("acme", 1)
    assert (refused.number, refused.retry_after_seconds) == (0, 60)
    clock.advance(timedelta(seconds=59))
    assert quotas.take_orders("acme", 1).number == 0
    clock.advance(timedelta(seconds=1))
    assert quotas.take_orders("acme", 3).number == 2


def test_a_job_that_is_over_takes_a_place_again_when_it_gets_a_new_time(tmp_path: Path) -> None:
    with limited(tmp_path, jobs=1) as world:
        jobs, tomorrow = world.node.jobs, (NOON + timedelta(days=1)).isoformat()
        over = [view.head.job_id for view in submitted(world)]
        world.until(2)
        over += [view.head.job_id for view in submitted(world)]
        world.until(4)
        later = {"schedule_type": "FUTURE", "schedule_time": tomorrow}

        def change(job_id: str, **fields: Any) -> str:
            view = world.do(lambda: jobs.change(T, job_id, lambda present: {**present, **fields}))
            return str(view.head.state)

        assert change(over[0], name="renamed") == "COMPLETED"
        assert change(over[0], **later) == "SCHEDULED"
        with pytest.raises(LimitExceeded, match="jobs"):
            change(over[1], **later)
        assert change(over[1], name="renamed") == "COMPLETED"
        assert change(over[0], name="renamed") == "SCHEDULED"
        world.do(lambda: jobs.cancel(T, over[0]))
        assert change(over[1], **later) == "SCHEDULED"


def test_runs_of_one_tenant_hold_a_part_of_a_lanes_slots_and_the_others_wait(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON)
    limits = {T: TenantLimits(lane_percent=1)}
    world = World(tmp_path, clock, lambda tenant: limits.get(tenant, TenantLimits()))
    try:
        for _ in range(3):
            submitted(world, 1, task=SCRIPT)
        submitted(world, 1, "other", task=SCRIPT)
        world.node.step()
        statuses = [view.run.status for view in world.runs(None)]
        assert statuses.count(RunStatus.RUNNING) == 1
        assert statuses.count(RunStatus.QUEUED) == 2
        assert world.do(lambda: world.store.count_runs("other"))["RUNNING"] == 1
    finally:
        world.gate.open.set()
