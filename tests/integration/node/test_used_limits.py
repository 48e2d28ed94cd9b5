"""`GET /stats` of a node shows each limit of the tenant with what is used of it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.commands.jobs import Submission
from punctual.engine.quotas.used_limits import (
    COUNTED_ARTIFACTS_PAGE_SIZE,
    MAX_COUNTED_ARTIFACTS,
    ArtifactUses,
    UsedLimits,
)
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world
from tests.support.simulation.small_ports import MemoryArtifacts

SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}
SHARED = {"artifacts", "artifact_mb", "script_memory_mb"}
LIMITS = TenantLimits(
    calls_per_second=10, jobs=5, runs_per_minute=4, concurrent_runs=3, lane_percent=50
)


def shown(world: World, tenant: str = T) -> dict[str, tuple[float, float]]:
    limits = world.do(lambda: world.node.search.stats(tenant)).limits
    return {limit["limit"]: (limit["allowed"], limit["used"]) for limit in limits}


def submit(world: World, count: int, **fields: Any) -> None:
    document = {"name": "a job", "schedule_type": "IMMEDIATE", **fields}
    world.do(lambda: world.node.jobs.submit(T, "me", [Submission(document)] * count))


def test_each_limit_of_the_tenant_is_shown_with_its_use(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON), lambda _: LIMITS) as world:
        assert set(shown(world)) - SHARED == {
            *("calls_per_second", "jobs", "runs_per_minute", "concurrent_runs", "lane_percent")
        }
        assert {used for _, used in shown(world).values()} == {0}
        submit(world, 2, task=SCRIPT)
        submit(world, 1, schedule_type="INTERVAL", interval_seconds=3_600)
        world.node.step()
        for _ in range(4):
            world.node.quotas.check_call(T)
        limits = shown(world)
        assert limits["jobs"] == (5, 3)
        assert limits["runs_per_minute"] == (4, 2)
        assert limits["concurrent_runs"] == (3, 2)
        assert 0 < limits["lane_percent"][1] <= 100
        assert limits["calls_per_second"] == (10, 2)
        world.clock.advance(timedelta(seconds=61))
        limits = shown(world)
        assert (limits["runs_per_minute"], limits["calls_per_second"]) == ((4, 0), (10, 0))


def test_limit_that_is_not_set_is_not_shown(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        assert set(shown(world)) == SHARED
        assert shown(world)["artifacts"] == (1_000, 0)


def test_use_of_another_tenant_is_not_shown(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON), lambda _: LIMITS) as world:
        submit(world, 2, task=SCRIPT)
        world.node.step()
        assert {
            used for name, (_, used) in shown(world, "other").items() if name not in SHARED
        } == {0}


class Page:
    """An artifact that counts, with a megabyte."""

    counts = True
    size = 1024 * 1024
    artifact_id = "a"


class CountedRows(MemoryArtifacts):
    """Rows without an end, which count how often they are read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pages = 0

    def page(self, _tenant: str, _after: str | None, limit: int) -> Any:
        self.pages += 1
        count = min(limit, self.number - (self.pages - 1) * limit)
        return [Page()] * count


def test_artifacts_are_counted_once_a_minute_up_to_a_bound() -> None:
    clock = ManualClock(NOON)
    rows = CountedRows(COUNTED_ARTIFACTS_PAGE_SIZE + 50)
    read = UsedLimits(lambda _: TenantLimits(artifacts=300), [ArtifactUses(rows)])
    expected = [
        {"limit": "artifacts", "allowed": 300, "used": 250},
        {"limit": "artifact_mb", "allowed": 20_480, "used": 250},
    ]
    assert read("acme", clock()) == read("acme", clock()) == expected
    assert rows.pages == 2
    rows.pages, rows.number = 0, 10 * MAX_COUNTED_ARTIFACTS
    clock.advance(timedelta(minutes=1))
    assert read("acme", clock()) == []
    assert rows.pages == MAX_COUNTED_ARTIFACTS // COUNTED_ARTIFACTS_PAGE_SIZE
