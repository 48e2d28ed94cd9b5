"""A node that is started anew: what it started and was ordered in the last minute still counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import TenantLimits
from punctual.node.clock import ManualClock
from punctual.node.sqlite.recent_starts import START_KIND, SqliteStarts
from punctual.node.sqlite.store import Store
from tests.support.node.node_world import NOON, T, World

TEN = TenantLimits(runs_per_minute=10)


@contextmanager
def started(folder: Path, clock: ManualClock) -> Iterator[World]:
    world = World(folder, clock, lambda tenant: TEN if tenant == T else TenantLimits())
    try:
        yield world
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()


def began(world: World) -> list[float]:
    found = (view.run.started_at for view in world.runs(None))
    return sorted((at - NOON).total_seconds() for at in found if at is not None)


def test_no_minute_over_a_restart_has_more_starts_than_may_be(tmp_path: Path) -> None:
    at = (NOON + timedelta(seconds=1)).isoformat()
    clock = ManualClock(NOON)
    with started(tmp_path, clock) as world:
        for _ in range(35):
            world.submit(schedule_type="FUTURE", schedule_time=at)
        world.until(1)
        assert began(world) == [1.0] * 10
    clock.set(NOON + timedelta(seconds=30))
    with started(tmp_path, clock) as world:
        world.until(60)
        assert began(world) == [1.0] * 10
        world.until(61)
        assert began(world) == [1.0] * 10 + [61.0] * 10
    clock.set(NOON + timedelta(seconds=90))
    with started(tmp_path, clock) as world:
        world.until(300)
        assert began(world) == [1.0] * 10 + [61.0] * 10 + [121.0] * 10 + [181.0] * 5


def test_orders_count_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with started(tmp_path, clock) as world:
        job = world.submit(schedule_type="INTERVAL", interval_seconds=3600)
        for _ in range(10):
            world.do(lambda: world.node.jobs.run_now(T, job))
    clock.set(NOON + timedelta(seconds=59))
    with started(tmp_path, clock) as world:
        with pytest.raises(LimitExceeded) as refused:
            world.do(lambda: world.node.jobs.run_now(T, job))
        assert refused.value.retry_after_seconds == 1
        clock.set(NOON + timedelta(seconds=60))
        world.do(lambda: world.node.jobs.run_now(T, job))


def test_who_is_not_limited_writes_nothing_and_what_is_old_goes(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with started(tmp_path, clock) as world:
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


def test_what_a_tenant_started_that_starts_no_more_is_removed(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))
    try:
        for tenant in ("a", "b", "c"):
            store.starts.add(START_KIND, tenant, NOON, 3, NOON - timedelta(minutes=1))
        store.starts.add(START_KIND, "late", NOON + SECOND, 1, NOON)
        while store.purge(NOON + timedelta(minutes=1), 2):
            pass
        left = [
            tenant
            for tenant in "abc"
            if store.starts.times_since(START_KIND, tenant, NOON - SECOND)
        ]
        assert left == []
        assert len(store.starts.times_since(START_KIND, "late", NOON)) == 1
    finally:
        store.close()


SECOND = timedelta(seconds=1)
