"""A restarted node counts the starts and the requested runs of the last minute."""

from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import TenantLimits
from punctual.node.sqlite.recent_starts import START_KIND, SqliteStarts
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

TEN = TenantLimits(runs_per_minute=10)


def a_limited_world(folder: Path, clock: ManualClock) -> AbstractContextManager[World]:
    return a_world(folder, clock, lambda tenant: TEN if tenant == T else TenantLimits())


def started_seconds(world: World) -> list[float]:
    started_times = (view.run.started_at for view in world.runs(None))
    return sorted((at - NOON).total_seconds() for at in started_times if at is not None)


def test_restart_keeps_starts_within_the_limit_in_any_minute(tmp_path: Path) -> None:
    at = (NOON + timedelta(seconds=1)).isoformat()
    clock = ManualClock(NOON)
    with a_limited_world(tmp_path, clock) as world:
        for _ in range(35):
            world.submit(schedule_type="FUTURE", schedule_time=at)
        world.until(1)
        assert started_seconds(world) == [1.0] * 10
    clock.set(NOON + timedelta(seconds=30))
    with a_limited_world(tmp_path, clock) as world:
        world.until(60)
        assert started_seconds(world) == [1.0] * 10
        world.until(61)
        assert started_seconds(world) == [1.0] * 10 + [61.0] * 10
    clock.set(NOON + timedelta(seconds=90))
    with a_limited_world(tmp_path, clock) as world:
        world.until(300)
        assert started_seconds(world) == [1.0] * 10 + [61.0] * 10 + [121.0] * 10 + [181.0] * 5


def test_requested_runs_before_a_restart_count(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_limited_world(tmp_path, clock) as world:
        job = world.submit(schedule_type="INTERVAL", interval_seconds=3600)
        for _ in range(10):
            world.do(lambda: world.node.jobs.run_now(T, job))
    clock.set(NOON + timedelta(seconds=59))
    with a_limited_world(tmp_path, clock) as world:
        with pytest.raises(LimitExceeded) as refused:
            world.do(lambda: world.node.jobs.run_now(T, job))
        assert refused.value.retry_after_seconds == 1
        clock.set(NOON + timedelta(seconds=60))
        world.do(lambda: world.node.jobs.run_now(T, job))


def test_node_stores_no_starts_of_unlimited_tenants_and_drops_old_ones(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_limited_world(tmp_path, clock) as world:
        world.do(lambda: world.store.starts.add(START_KIND, "old", NOON, 3, NOON))
        later = NOON + timedelta(seconds=61)
        world.do(lambda: world.store.starts.add(START_KIND, "old", later, 2, NOON + SECOND))
        assert world.store.starts.times_since(START_KIND, "old", NOON - SECOND) == [later] * 2
    store = Store.open(tmp_path, clock)
    try:
        assert isinstance(store.starts, SqliteStarts)
        assert store.starts.times_since(START_KIND, "old", NOON) == [later] * 2
        assert store.starts.times_since(START_KIND, "other", NOON - timedelta(days=1)) == []
    finally:
        store.close()


def test_purge_removes_old_starts_of_idle_tenants(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))
    try:
        for tenant in ("a", "b", "c"):
            store.starts.add(START_KIND, tenant, NOON, 3, NOON - timedelta(minutes=1))
        store.starts.add(START_KIND, "late", NOON + SECOND, 1, NOON)
        while store.purge(NOON + timedelta(minutes=1), 2):
            pass
        remaining = [
            tenant
            for tenant in "abc"
            if store.starts.times_since(START_KIND, tenant, NOON - SECOND)
        ]
        assert remaining == []
        assert len(store.starts.times_since(START_KIND, "late", NOON)) == 1
    finally:
        store.close()


SECOND = timedelta(seconds=1)
