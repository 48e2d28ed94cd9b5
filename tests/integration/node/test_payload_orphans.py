"""Old payloads that no row references are removed. Payloads of jobs and runs stay."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import NotFound
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.rows import JobKey
from punctual.node.files import orphans
from tests.support.builders import ManualClock, an_id
from tests.support.node.node_world import NOON, T, World, a_world
from tests.support.scripts.descriptor_faults import Openings, openings_failing

LARGE = "x" * 20_000
HOUR = 3_600


def payload_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "blobs" / "payloads").rglob("*") if path.is_file())


def make_old(paths: Sequence[Path], seconds: float) -> None:
    at = NOON.timestamp() - seconds
    for path in paths:
        os.utime(path, (at, at))


def put(world: World, *keys: tuple[JobKey, str]) -> None:
    for key, given_by in keys:
        world.store.blobs.put(payload_name(key, given_by), b'"left"', "application/json")


def restart_and_walk(folder: Path, seconds: float = 120) -> list[int]:
    """Restart the node, and return how many payloads each step of its walk removes."""
    with a_world(folder, ManualClock(NOON)) as world:
        world.until(seconds)
        log_lines = world.lines
    return [
        facts["payloads"] for event, facts in log_lines if event == "payloads_without_row_removed"
    ]


def test_start_removes_only_payloads_without_a_row(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        http = {"type": "http", "url": "http://127.0.0.1/"}
        world.gate.open.set()
        job = world.submit(payload=LARGE, task=http)
        world.node.step()
        world.settle()
        other = world.submit(schedule_type="CRON", cron_expression="0 0 1 1 *", task=http)
        world.do(lambda: world.node.jobs.run_now(T, other, LARGE))
        world.node.step()
        world.settle()
        assert world.statuses(job) == world.statuses(other) == ["SUCCESS"]
        expected = payload_files(tmp_path)
        assert len(expected) == 2
        missing = JobKey(T, an_id(77))
        put(world, (missing, "1-abc"), (missing, an_id(5)), (JobKey(T, job), an_id(6)))
    make_old(payload_files(tmp_path), 2 * HOUR)
    assert sum(restart_and_walk(tmp_path)) == 3
    assert payload_files(tmp_path) == expected


def test_waiting_run_keeps_its_payload(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        http = {"type": "http", "url": "http://127.0.0.1/"}
        job = world.submit(schedule_type="CRON", cron_expression="0 0 1 1 *", task=http)
        for _ in range(3):  # one runs, two are in the wait queue
            world.do(lambda: world.node.jobs.run_now(T, job, LARGE))
        expected = payload_files(tmp_path)
        assert len(expected) == 3
        make_old(expected, 2 * HOUR)
        world.until(120)
        assert payload_files(tmp_path) == expected
        assert "payloads_without_row_removed" not in world.events


def test_young_payload_without_a_row_is_kept(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        put(world, (JobKey(T, an_id(77)), "1-abc"))
    make_old(payload_files(tmp_path), HOUR - 300)
    assert restart_and_walk(tmp_path) == []
    assert len(payload_files(tmp_path)) == 1


def test_payload_walk_removes_all_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "PAYLOAD_PAGE_SIZE", 2)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        put(world, *((JobKey(T, an_id(n)), "1-abc") for n in range(600)))
    make_old(payload_files(tmp_path), 2 * HOUR)
    removed = restart_and_walk(tmp_path)
    assert (sum(removed), max(removed)) == (600, 2)
    assert payload_files(tmp_path) == []


def test_payload_walk_runs_each_day(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        world.until(60)
        put(world, (JobKey(T, an_id(77)), "1-abc"))
        make_old(payload_files(tmp_path), 0)
        clock.advance(timedelta(days=1, minutes=1))
        world.node.step()
        assert payload_files(tmp_path) == []


def test_run_now_of_a_missing_job_stores_no_payload(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        with pytest.raises(NotFound):
            world.do(lambda: world.node.jobs.run_now(T, an_id(77), LARGE))
        assert payload_files(tmp_path) == []


def test_payload_walk_that_cannot_read_the_folder_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        with openings_failing(monkeypatch, Openings(1, 100)):
            world.until(5)
        assert world.events.count("payloads_not_walked") == 1
        put(world, (JobKey(T, an_id(77)), "1-abc"))
        make_old(payload_files(tmp_path), 2 * HOUR)
        world.until(120)
        assert payload_files(tmp_path) == []
