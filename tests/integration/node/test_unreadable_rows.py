"""An unreadable row of any table affects only what it belongs to."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import Token
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.audit_log import Actor, AuditFilters
from punctual.engine.ports.lists.job_index import JobQuery
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey, Receipt, RunKey
from punctual.engine.queries.slices import finish
from punctual.node.files.data_folder import DATABASE
from tests.integration.contract.test_contract_notifications import a_notification
from tests.support.builders import ManualClock, an_id
from tests.support.node.node_world import NOON, T, World, a_world

EACH_SECOND = {"schedule_type": "CRON", "cron_expression": "* * * * * *"}
SCRIPT = {"type": "script", "runtime": "bash", "code": "echo"}
BROKEN = ("", "text", b"", b"\x00\xff\x00", b"{}", b"\xc1", 7)


def change(folder: Path, statement: str, *values: Any) -> None:
    """Change the database file as a damaged disk or the SQLite shell does."""
    db = sqlite3.connect(folder / DATABASE)
    with db:
        assert db.execute(statement, values).rowcount > 0
    db.close()


@contextmanager
def restart(folder: Path, seconds: float = 0) -> Iterator[World]:
    with a_world(folder, ManualClock(NOON + timedelta(seconds=seconds))) as world:
        yield world


def two_jobs(folder: Path, **fields: Any) -> tuple[str, str]:
    with a_world(folder, ManualClock(NOON)) as world:
        job_ids = [world.submit(name=name, **{**EACH_SECOND, **fields}) for name in ("bad", "good")]
    return job_ids[0], job_ids[1]


def damage_state(folder: Path, job_id: str, value: Any = b"\x00\xff\x00") -> None:
    change(folder, "UPDATE heads SET head = ? WHERE job_id = ?", value, job_id)


def count(world: World, event: str) -> int:
    return world.events.count(event)


def watermark_of(world: World) -> datetime:
    """Return the watermark. All earlier buckets are done."""
    mark = world.store.partitions.watermark()
    assert mark is not None
    return mark


def reported_rows(world: World) -> list[tuple[str, str]]:
    """Return table and key of each row that the log names."""
    return [(f["table"], f["row"]) for event, f in world.lines if event == "row_unreadable"]


@pytest.mark.parametrize("value", BROKEN)
def test_unreadable_state_stops_only_its_job(tmp_path: Path, value: Any) -> None:
    bad, good = two_jobs(tmp_path)
    damage_state(tmp_path, bad, value)
    with restart(tmp_path) as world:
        world.until(60)
        assert len(set(world.statuses(good))) == 1
        assert len(world.statuses(good)) == 60
        assert reported_rows(world) == [("heads", f"{T}/{bad}")]
        assert 1 <= count(world, "look_failed") <= 4


def test_calls_on_a_job_with_unreadable_state_fail_and_others_succeed(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    damage_state(tmp_path, bad)
    with restart(tmp_path) as world:
        jobs, search = world.node.jobs, world.node.search
        document = {"name": "new", "schedule_type": "IMMEDIATE"}
        answers: list[Any] = world.node.perform(
            [
                lambda: search.job(T, bad),
                lambda: jobs.submit(T, "me", [Submission(document)]),
                lambda: jobs.pause(T, bad),
                lambda: jobs.pause(T, good),
                lambda: jobs.cancel(T, bad),
                lambda: jobs.run_now(T, bad, "me"),
                lambda: finish(search.runs(T, bad, RunFilters(), 10, None)),
                lambda: finish(search.jobs(T, JobQuery(), 10, None)),
            ]
        )
        refused = [answers[n] for n in (0, 2, 4, 5, 6, 7)]
        assert {type(answer) for answer in refused} == {Unreadable}
        assert all(bad in str(answer) for answer in refused)
        (view,) = answers[1]
        assert world.do(lambda: search.job(T, view.state.job_id)).state.job_id == view.state.job_id
        assert world.do(lambda: search.job(T, good)).state.status.value == "PAUSED"


def test_health_counts_an_unreadable_row_once(tmp_path: Path) -> None:
    bad, _ = two_jobs(tmp_path)
    damage_state(tmp_path, bad)
    with restart(tmp_path) as world:
        world.until(3)
        for _ in range(3):
            with pytest.raises(Unreadable):
                world.do(lambda: world.node.search.job(T, bad))
        health = world.node.search.health()
        assert health.status == "ok"
        (warning,) = health.warnings
        assert (warning.code, warning.text.split(":")[1].split(".")[0]) == ("ROWS_UNREADABLE", " 1")
        assert count(world, "row_unreadable") == 1


def test_bucket_of_an_unreadable_state_is_closed_in_the_end(tmp_path: Path) -> None:
    bad, _ = two_jobs(tmp_path)
    damage_state(tmp_path, bad)
    with restart(tmp_path) as world:
        world.until(1_500)
        assert count(world, "look_set_aside") == 1
        assert watermark_of(world) >= NOON + timedelta(seconds=1_380)


def test_damaged_state_of_a_running_job_does_not_stop_the_start(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad = world.submit(task=SCRIPT)
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
    damage_state(tmp_path, bad)
    with restart(tmp_path) as world:
        good = world.submit(task=SCRIPT)
        world.gate.open.set()
        world.node.step()
        world.settle()
        assert world.statuses(good) == ["SUCCESS"]


def test_queued_runs_of_damaged_states_block_no_slot(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        queued = [world.submit(task=SCRIPT) for _ in range(6)]  # four run, two wait for a slot
        world.node.step()
    for job_id in queued:
        damage_state(tmp_path, job_id)
    with restart(tmp_path) as world:
        good = world.submit(task=SCRIPT)
        world.gate.open.set()
        world.node.step()
        world.settle()
        world.until(120)
        assert world.statuses(good) == ["SUCCESS"]
        assert count(world, "row_unreadable") == 6


def damage_and_clear_cache(world: World, job_id: str) -> None:
    """Damage a job state under a running node, and clear the node's cache."""
    damage_state(world.folder, job_id)
    world.store.job_states._cache._cache.clear()


def test_state_damaged_after_submit_stops_only_its_job(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad, good = (world.submit(name=name) for name in ("bad", "good"))
        damage_and_clear_cache(world, bad)
        world.until(30)
        assert world.statuses(good) == ["SUCCESS"]
        assert reported_rows(world) == [("heads", f"{T}/{bad}")]


def test_state_damaged_after_firing_ahead_stops_only_its_job(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad, good = (world.submit(name=name, **EACH_SECOND) for name in ("bad", "good"))
        world.until(5)
        damage_and_clear_cache(world, bad)
        world.until(30)
        assert len(world.statuses(good)) == 30
        assert count(world, "look_failed") <= 3


def test_unreadable_lease_stops_only_its_job(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(task=SCRIPT)
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
    change(tmp_path, "UPDATE leases SET token = 'x'")
    with restart(tmp_path) as world:
        good = world.submit(**EACH_SECOND)
        world.until(5)
        assert len(world.statuses(good)) == 5


@pytest.mark.parametrize("task", [{"type": "event"}, SCRIPT], ids=["event", "script"])
def test_unreadable_definition_stops_only_its_job(tmp_path: Path, task: dict[str, Any]) -> None:
    bad, good = two_jobs(tmp_path, task={"type": "event"})
    with restart(tmp_path) as world:
        other = world.submit(**EACH_SECOND, name="other", task=task)
    for job_id in (bad, other):
        change(tmp_path, "UPDATE bodies SET body = x'00ff' WHERE job_id = ?", job_id)
    with restart(tmp_path) as world:
        world.until(150)
        assert world.statuses(good) == ["SUCCESS"] * 150
        assert watermark_of(world) >= NOON + timedelta(seconds=60)
        with pytest.raises(Unavailable, match="definition cannot be read"):
            world.do(lambda: world.node.search.job(T, bad))
        assert count(world, "row_unreadable") == 2


def test_damaged_large_payload_stops_only_its_job(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    with restart(tmp_path) as world:
        large = world.submit(name="large", **EACH_SECOND, payload="x" * 20_000)
        (name,) = [
            row[0]
            for row in world.store._db.execute(
                "SELECT json_extract(body, '$.payload_blob') FROM bodies WHERE job_id = ?", (large,)
            )
        ]
        world.store.blobs.put(name, b'"xxx', "application/json")
        world.until(20)
        assert world.statuses(good) == ["SUCCESS"] * 20
        assert bad
        with pytest.raises(Unreadable, match="payload is damaged"):
            world.do(lambda: world.node.search.job(T, large))


def job_with_runs(folder: Path) -> tuple[str, str]:
    """Return the id of a job with three ended runs, and the id of the second run."""
    with a_world(folder, ManualClock(NOON)) as world:
        job_id = world.submit(**EACH_SECOND)
        world.until(3)
        world.do(lambda: world.node.jobs.pause(T, job_id))
        return job_id, world.runs(job_id)[1].run.run_id


def test_run_with_unreadable_row_is_listed_with_an_error(tmp_path: Path) -> None:
    job_id, run_id = job_with_runs(tmp_path)
    change(tmp_path, "UPDATE runs SET row = x'00ff' WHERE run_id = ?", run_id)
    with restart(tmp_path, 4) as world:
        for listed in (world.runs(job_id), world.runs(None)):
            assert len(listed) == 3
            assert [view.run.run_id for view in listed][1] == run_id
            assert listed[1].detail.error == "The result of the run cannot be read."
            assert listed[1].run.scheduled_at == NOON + timedelta(seconds=2)
        view = world.do(lambda: world.node.search.run(T, job_id, run_id))
        assert (view.run.status.value, view.run.ended_at) == ("SUCCESS", listed[1].run.ended_at)
        assert NOON < view.run.ended_at <= NOON + timedelta(seconds=4)


def test_unreadable_attempt_row_is_left_out_of_its_run(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job_id = world.submit(task=SCRIPT, payload="fail", max_retries=1)
        world.gate.open.set()
        world.node.step()
        world.settle()
        (view,) = world.runs(job_id)
        run_view = world.do(lambda: world.node.search.run(T, job_id, view.run.run_id))
        assert len(run_view.attempts) == 1
    change(tmp_path, "UPDATE attempts SET row = x'00ff'")
    with restart(tmp_path) as world:
        run_view = world.do(lambda: world.node.search.run(T, job_id, view.run.run_id))
        assert (list(run_view.attempts), run_view.run.attempt) == ([], 2)


TIMER_ASSIGNMENTS = {
    "a version that is text": "version = 'x'",
    "a tenant that is not text": "tenant = x'00ff'",
    "a tenant that is not UTF-8": "tenant = CAST(x'ff6c' AS TEXT)",
    "a job that is not UTF-8": "job_id = CAST(x'ff6c' AS TEXT)",
    "a time before all times": "at = -9223372036854775808",
    "a time with a fraction": "at = at + 0.5",
}


@pytest.mark.parametrize("assignment", TIMER_ASSIGNMENTS.values(), ids=TIMER_ASSIGNMENTS.keys())
def test_unreadable_timer_is_removed_and_replaced(tmp_path: Path, assignment: str) -> None:
    bad, good = two_jobs(tmp_path, cron_expression="*/10 * * * * *")
    change(tmp_path, f"UPDATE timers SET {assignment} WHERE job_id = ?", bad)
    with restart(tmp_path) as world:
        world.until(900)
        assert len(world.statuses(good)) == 90
        assert len(world.statuses(bad)) >= 40  # the reconciler found it without a timer
        assert count(world, "row_unreadable") == 1
        assert watermark_of(world) >= NOON + timedelta(seconds=780)


def test_error_of_an_unreadable_audit_row_names_its_time_range(tmp_path: Path) -> None:
    actor = Actor("me", request_id="r")
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for second in (0, 100, 200):
            world.clock.set(NOON + timedelta(seconds=second))
            document = {"name": f"at {second}", "schedule_type": "IMMEDIATE"}
            world.do(
                lambda document=document: world.node.jobs.submit(
                    T, "me", [Submission(document)], actor
                )
            )
    change(tmp_path, "UPDATE audit SET noted = x'00ff' WHERE id = 2")
    with restart(tmp_path, 300) as world:
        audit = world.node.search.audit

        def page(**filters: Any) -> Any:
            return audit.page(T, AuditFilters(**filters), 10, None, world.clock())

        with pytest.raises(Unreadable, match=r"from 2026-11-18T12:01:40\.000Z to 2026"):
            world.do(page)
        edge = NOON + timedelta(seconds=100)
        before = world.do(lambda: page(end=edge))
        after = world.do(lambda: page(start=edge + timedelta(milliseconds=1)))
        assert [line.entry.note.at for line in (*after.items, *before.items)] == [
            NOON + timedelta(seconds=200),
            NOON,
        ]
        assert world.submit()  # a new entry can still be written


def a_token(number: int, role: Role = Role.ADMIN) -> Token:
    return Token(an_id(number), T, f"token {number}", role, NOON, "me")


def test_unreadable_token_is_refused_and_hides_no_other_token(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for number in range(4):
            world.store.tokens.put(a_token(number), f"hash {number}")
    change(tmp_path, "UPDATE tokens SET role = 'x' WHERE token_id = ?", an_id(2))
    with restart(tmp_path) as world:
        tokens = world.store.tokens
        with pytest.raises(Unreadable, match=an_id(2)):
            tokens.find("hash 2")
        with pytest.raises(Unreadable, match=an_id(2)):
            tokens.get(T, an_id(2), NOON)
        assert tokens.find("hash 1") == a_token(1)
        first = tokens.page(T, None, 2, NOON)
        rest = tokens.page(T, first[-1].token_id, 2, NOON)
        assert [*first, *rest] == [a_token(3), a_token(1), a_token(0)]


def test_unreadable_receipt_refuses_only_its_request(tmp_path: Path) -> None:
    receipt = Receipt("print", "made", NOON, NOON + timedelta(days=1))
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.receipts.claim(T, [("bad", receipt), ("good", receipt)], NOON)
    change(tmp_path, "UPDATE receipts SET receipt = x'00ff' WHERE name = 'bad'")
    with restart(tmp_path) as world:
        receipts = world.store.receipts
        other = Receipt("print", "other", NOON, NOON + timedelta(days=1))
        answers = world.node.perform(
            [
                lambda: receipts.claim(T, [("new", other), ("bad", other)], NOON),
                lambda: receipts.claim(T, [("good", other), ("newer", other)], NOON),
            ]
        )
        assert isinstance(answers[0], Unreadable)
        assert answers[1] == [receipt, other]
        assert set(receipts.find(T, ["new", "newer"], NOON)) == {"newer"}


def test_unreadable_notification_is_read_again_after_an_hour(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.notifications.put([a_notification()])
    change(tmp_path, "UPDATE notices SET notice = x'00ff'")
    with restart(tmp_path) as world:
        good = world.submit(**EACH_SECOND)
        world.until(20)
        assert len(world.statuses(good)) == 20
        assert world.store.notifications.next_at(()) == NOON + timedelta(hours=1)


def test_events_around_an_unreadable_row_are_read(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for number in range(3):
            world.store.feed.publish([{"n": number}])
    change(tmp_path, "UPDATE feed SET event = x'00ff' WHERE seq = 2")
    with restart(tmp_path) as world:
        assert world.store.feed.read(0, 10) == [(1, {"n": 0}), (3, {"n": 2})]


@pytest.mark.parametrize(
    "assignment", ["token = 'x'", "until = 'x'", "done = 'x'", "look = x'00'", "owner = x'00'"]
)
def test_bucket_with_unreadable_row_is_leased_again(tmp_path: Path, assignment: str) -> None:
    _, good = two_jobs(tmp_path)
    change(tmp_path, f"UPDATE buckets SET {assignment}")
    with restart(tmp_path) as world:
        world.until(120)
        assert len(world.statuses(good)) == 120
        assert watermark_of(world) >= NOON


def test_unreadable_start_does_not_count(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.starts.add("start", T, NOON, 2, NOON - timedelta(minutes=1))
        later = NOON + timedelta(seconds=1)
        world.store.starts.add("start", T, later, 1, NOON - timedelta(minutes=1))
    change(tmp_path, "UPDATE starts SET n = 'x' WHERE n = 2")
    with restart(tmp_path) as world:
        since = world.store.starts.times_since("start", T, NOON - timedelta(seconds=1))
        assert since == [NOON + timedelta(seconds=1)]


def test_unreadable_rows_expire(tmp_path: Path) -> None:
    job_id, run_id = job_with_runs(tmp_path)
    with restart(tmp_path, 5) as world:
        world.do(lambda: world.node.jobs.cancel(T, job_id))
        world.until(6)
    for table, column in (("heads", "head"), ("bodies", "body"), ("runs", "row")):
        change(tmp_path, f"UPDATE {table} SET {column} = x'00ff'")
    later = (HISTORY_RETENTION + timedelta(days=1)).total_seconds()
    with restart(tmp_path, later) as world:
        world.until(later + 300)
        for table in ("heads", "bodies", "runs"):
            (row_count,) = world.store._db.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert (table, row_count) == (table, 0)
        assert world.store.count_jobs(T) == {}
        assert world.store.history.recorded_keys([RunKey(T, job_id, run_id)]) == frozenset()
        assert JobKey(T, job_id) not in world.store.job_states.load([JobKey(T, job_id)])


def test_reconciler_walks_past_an_unreadable_state(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    damage_state(tmp_path, bad)
    with restart(tmp_path) as world:
        walk = world.store.job_states.walk(None, 1)
        assert (walk.states, [key for key, _ in walk.unreadable]) == ([], [JobKey(T, bad)])
        following = world.store.job_states.walk(walk.cursor, 10)
        assert [head.job_id for head in following.states] == [good]
