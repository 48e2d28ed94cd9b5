"""The node's health and statistics after a restart, and while it shuts down."""

from datetime import timedelta
from pathlib import Path

from punctual.engine.ports.monitor import Health, Stats
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}


def health(world: World) -> Health:
    result: Health = world.do(world.node.search.health)
    return result


def stats(world: World) -> Stats:
    result: Stats = world.do(lambda: world.node.search.stats(T))
    return result


def due_in(world: World, seconds: float) -> str:
    at = world.clock.now + timedelta(seconds=seconds)
    return world.submit(schedule_type="FUTURE", schedule_time=at.isoformat())


def test_runs_due_while_the_node_was_down_do_not_make_it_late(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job = due_in(world, 60)
        world.submit(schedule_type="CRON", cron_expression="* * * * *")
    with a_world(tmp_path, ManualClock(NOON + timedelta(minutes=30))) as world:
        world.until(30 * 60 + 10)
        (view,) = world.runs(job)
        assert view.run.lateness is not None
        assert view.run.lateness >= timedelta(minutes=29)
        assert health(world).status == "ok"
        max_lateness_ms = stats(world).lateness_ms["max"]
        assert max_lateness_ms is not None
        assert max_lateness_ms >= 29 * 60_000, "the lateness of the run is in the statistics"


def test_late_run_due_after_the_start_makes_the_node_late(
    tmp_path: Path,
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        due_in(world, 5)
        world.clock.advance(timedelta(seconds=40))  # the thread hangs
        world.node.step()
        world.until(45)
        assert health(world).status == "late"


def test_machine_sleep_does_not_make_the_node_late(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        due_in(world, 60)
        world.clock.jump(timedelta(minutes=10))
        world.until(605)
        assert stats(world).runs["SUCCESS"] == 1
        assert health(world).status == "ok"


def test_statistics_of_the_last_hour_survive_a_restart(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(schedule_type="CRON", cron_expression="* * * * *")
        world.submit(schedule_type="FUTURE", schedule_time="2026-11-18T12:02:30Z")
        world.until(200)
        before = stats(world)
        assert sum(minute["succeeded"] for minute in before.last_hour) == 4
    with a_world(tmp_path, ManualClock(NOON + timedelta(seconds=210))) as world:
        after = stats(world)
        assert after.last_hour == before.last_hour
        assert after.lateness_ms == before.lateness_ms
    with a_world(tmp_path, ManualClock(NOON + timedelta(hours=3))) as world:
        assert world.store.minutes.load_since(NOON) != {}
        assert [entry["minute"] for entry in stats(world).last_hour if entry["minute"] < NOON] == []


def test_statistics_before_the_last_hour_are_removed(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(schedule_type="CRON", cron_expression="* * * * *")
        world.until(2 * 3_600)
        minutes = world.store.minutes.load_since(NOON)
    assert 60 <= len(minutes) <= 63


def test_unreadable_statistics_do_not_stop_the_start(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(schedule_type="CRON", cron_expression="* * * * *")
        world.until(200)
        with world.store.transaction():
            world.store._transaction.begin()
            world.store._db.execute("UPDATE minutes SET counted = x'00ff00'")
    with a_world(tmp_path, ManualClock(NOON + timedelta(seconds=210))) as world:
        assert stats(world).last_hour == []


def test_closing_node_reports_down_while_its_run_goes_on(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(task=SCRIPT)
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
        assert health(world).status == "ok"
        world.node.close()
        assert health(world).status == "down"
