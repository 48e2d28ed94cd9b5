"""Scripts of a node share its memory: what does not fit waits, and each end makes room."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.queries.slices import finish
from punctual.node.script_memory import SCRIPT_MEMORY_LIMIT
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World

TOTAL_MB = 1_024


@contextmanager
def a_small_world(folder: Path, clock: ManualClock, total_mb: int = TOTAL_MB) -> Iterator[World]:
    world = World(folder, clock, script_memory_mb=total_mb)
    try:
        yield world
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_small_world(tmp_path / "data", ManualClock(NOON)) as world:
        yield world


def submit(world: World, memory_mb: int | None = None, **fields: Any) -> str:
    task: dict[str, Any] = {"type": "script", "runtime": "bash", "code": "true"}
    if memory_mb is not None:
        task["resources"] = {"memory_mb": memory_mb}
    job_id = world.submit(task=task, max_retries=0, **fields)
    world.clock.advance(timedelta(seconds=1))  # so that later jobs are due later
    step(world)
    return job_id


def step(world: World) -> None:
    """Step as the event loop does: again while the node asks for it at once."""
    world.node.step()
    for _ in range(20):
        if world.node.next_step_steady() > world.clock.monotonic():
            return
        world.node.step()
    raise AssertionError("the node does not come to rest")


def end(world: World, job_id: str) -> None:
    world.gate.open_jobs.add(job_id)
    world.settle()
    step(world)


def limits(world: World) -> list[dict[str, Any]]:
    shown = [dict(limit) for limit in world.do(lambda: world.node.search.stats(T)).limits]
    return [limit for limit in shown if limit["limit"] == SCRIPT_MEMORY_LIMIT]


def used_mb(world: World) -> int:
    (limit,) = limits(world)
    used: int = limit["used"]
    return used


def statuses(world: World, *job_ids: str) -> list[str]:
    return [status for job_id in job_ids for status in world.statuses(job_id)]


def test_script_that_does_not_fit_waits_for_resources(world: World) -> None:
    first, second = submit(world, 700), submit(world, 400)
    (view,) = world.runs(second)
    assert (view.run.status, view.run.reason) == ("WAITING", "RESOURCES")
    stats = world.do(lambda: world.node.search.stats(T))
    assert stats.runs == {"RUNNING": 1, "WAITING": 1}
    assert limits(world) == [{"limit": "script_memory_mb", "allowed": 1_024, "used": 700}]
    end(world, first)
    assert statuses(world, first, second) == ["SUCCESS", "RUNNING"]
    assert used_mb(world) == 400
    end(world, second)
    assert used_mb(world) == 0


def test_waiting_script_is_found_by_its_status_and_explained(world: World) -> None:
    submit(world, 1_024)
    waiting = submit(world)
    for status, expected in (("WAITING", [waiting]), ("QUEUED", [])):
        filters = RunFilters(status=frozenset({status}))
        page = world.do(lambda f=filters: finish(world.node.search.runs(T, None, f, 9, None)))
        assert [view.job_id for view in page.items] == expected
    explanation = world.do(lambda: finish(world.node.search.explain(T, waiting, None)))
    assert (explanation.outcome, explanation.reason) == (
        "WAITING",
        "It waits for room: earlier runs use the memory, places or processors.",
    )


def test_small_scripts_do_not_pass_a_large_one_that_waits(world: World) -> None:
    first, large, small = submit(world, 512), submit(world, 1_000), submit(world, 64)
    assert statuses(world, first, large, small) == ["RUNNING", "WAITING", "WAITING"]
    end(world, first)
    assert statuses(world, large, small) == ["RUNNING", "WAITING"]
    end(world, large)
    assert statuses(world, large, small) == ["SUCCESS", "RUNNING"]


def test_small_script_of_higher_priority_starts_first(world: World) -> None:
    submit(world, 512)
    large, small = submit(world, 1_000), submit(world, 64, priority="HIGH")
    assert statuses(world, large, small) == ["WAITING", "RUNNING"]


def test_other_task_passes_the_scripts_that_wait(world: World) -> None:
    submit(world, 1_000)
    waiting = [submit(world, 500) for _ in range(6)]
    long_call = world.submit(task={"type": "http", "url": "http://x/"}, timeout_seconds=900)
    step(world)
    assert statuses(world, long_call) == ["RUNNING"]
    assert set(statuses(world, *waiting)) == {"WAITING"}


@pytest.mark.parametrize("cancelled", ["job", "run"])
def test_next_script_starts_when_the_first_waiting_one_is_cancelled(
    world: World, cancelled: str
) -> None:
    submit(world, 512)
    large, small = submit(world, 1_000), submit(world, 64)
    assert world.node.next_step_steady() > world.clock.monotonic()
    if cancelled == "job":
        world.do(lambda: world.node.jobs.cancel(T, large))
    else:
        run_id = world.runs(large)[0].run.run_id
        world.do(lambda: world.node.jobs.cancel_run(T, large, run_id))
    assert world.node.next_step_steady() <= world.clock.monotonic()
    step(world)
    assert statuses(world, large, small) == ["CANCELLED", "RUNNING"]


@pytest.mark.parametrize("ending", ["success", "failure", "retry", "cancel"])
def test_memory_is_free_however_a_run_ends(world: World, ending: str) -> None:
    payload = "fail" if ending in ("failure", "retry") else None
    retries = {"max_retries": 1, "retry": {"backoff_seconds": 1}} if ending == "retry" else {}
    task = {"type": "script", "runtime": "bash", "code": "x", "resources": {"memory_mb": 1_024}}
    first = world.submit(**{"task": task, "payload": payload, "max_retries": 0, **retries})
    step(world)
    assert used_mb(world) == 1_024
    if ending == "cancel":
        world.do(lambda: world.node.jobs.cancel(T, first))
    end(world, first)
    assert used_mb(world) == 0
    if ending == "retry":
        world.clock.advance(timedelta(seconds=2))
        step(world)
        world.settle()
        step(world)
    expected = {"success": "SUCCESS", "cancel": "CANCELLED"}.get(ending, "FAILED")
    assert statuses(world, first) == [expected]
    assert used_mb(world) == 0


def test_failed_commit_reserves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> None:
        raise OSError("disk")

    world.submit(task={"type": "script", "runtime": "bash", "code": "x"})
    with monkeypatch.context() as patch:
        patch.setattr(world.node.monitor, "write", fail)  # the last call of a step's transaction
        with pytest.raises(OSError, match="disk"):
            world.node.step()
    assert used_mb(world) == 0
    step(world)
    assert used_mb(world) == 512


def test_restart_frees_the_memory_of_the_node_before(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    folder = tmp_path / "data"
    with a_small_world(folder, clock) as world:
        first, second = submit(world, 1_000), submit(world, 1_000)
        assert statuses(world, first, second) == ["RUNNING", "WAITING"]
        world.node.close()
        world.settle()
        step(world)
    clock.advance(timedelta(seconds=60))
    with a_small_world(folder, clock) as world:
        step(world)
        assert sorted(statuses(world, first, second)) == ["RUNNING", "WAITING"]
        assert used_mb(world) == 1_000
        world.gate.open.set()
        for _ in range(2):
            world.settle()
            step(world)
        assert used_mb(world) == 0


def test_script_beyond_a_lowered_total_does_not_block_the_others(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_small_world(tmp_path / "data", clock) as world:
        submit(world, 1_000)
        large = submit(world, 1_000)
        world.node.close()
        world.settle()
        step(world)
    with a_small_world(tmp_path / "data", clock, total_mb=600) as world:
        small = submit(world, 600)
        assert statuses(world, large, small) == ["RUNNING", "RUNNING"]  # the task then refuses it
        assert used_mb(world) == 600
