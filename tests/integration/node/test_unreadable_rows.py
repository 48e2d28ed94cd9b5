"""A row that cannot be read is passed over: it alone, whatever table it is in."""

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
from punctual.engine.ports.rows import JobKey, Receipt, RunKey
from punctual.engine.queries.jobs import JobFilters, RunFilters
from punctual.engine.queries.slices import finish
from punctual.node.clock import ManualClock
from punctual.node.sqlite.store import DATABASE_FILE
from tests.integration.contract.test_contract_notices import a_notice
from tests.support.builders import an_id
from tests.support.node.node_world import NOON, T, World, a_world

EACH_SECOND = {"schedule_type": "CRON", "cron_expression": "* * * * * *"}
SCRIPT = {"type": "script", "runtime": "bash", "code": "echo"}
BROKEN = ("", "text", b"", b"\x00\xff\x00", b"{}", b"\xc1", 7)


def change(folder: Path, statement: str, *values: Any) -> None:
    """As a damaged disk, or a person with SQLite's own shell, changes the file."""
    db = sqlite3.connect(folder / DATABASE_FILE)
    with db:
        assert db.execute(statement, values).rowcount > 0
    db.close()


@contextmanager
def restarted(folder: Path, seconds: float = 0) -> Iterator[World]:
    with a_world(folder, ManualClock(NOON + timedelta(seconds=seconds))) as world:
        yield world


def two_jobs(folder: Path, **fields: Any) -> tuple[str, str]:
    with a_world(folder, ManualClock(NOON)) as world:
        found = [world.submit(name=name, **{**EACH_SECOND, **fields}) for name in ("bad", "good")]
    return found[0], found[1]


def damage_head(folder: Path, job_id: str, value: Any = b"\x00\xff\x00") -> None:
    change(folder, "UPDATE heads SET head = ? WHERE job_id = ?", value, job_id)


def count(world: World, event: str) -> int:
    return world.events.count(event)


def closed(world: World) -> datetime:
    """All minutes before this one are done."""
    mark = world.store.partitions.watermark()
    assert mark is not None
    return mark


def told(world: World) -> list[tuple[str, str]]:
    """Table and key of each row that the log names."""
    return [(f["table"], f["row"]) for event, f in world.lines if event == "row_unreadable"]


@pytest.mark.parametrize("value", BROKEN)
def test_a_head_that_cannot_be_read_stops_its_own_job_only(tmp_path: Path, value: Any) -> None:
    bad, good = two_jobs(tmp_path)
    damage_head(tmp_path, bad, value)
    with restarted(tmp_path) as world:
        world.until(60)
        assert len(set(world.statuses(good))) == 1
        assert len(world.statuses(good)) == 60
        assert told(world) == [("heads", f"{T}/{bad}")]
        assert 1 <= count(world, "look_failed") <= 4


def test_calls_on_its_job_name_it_and_their_neighbours_are_answered(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    damage_head(tmp_path, bad)
    with restarted(tmp_path) as world:
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
                lambda: finish(search.jobs(T, JobFilters(), 10, None)),
            ]
        )
        refused = [answers[n] for n in (0, 2, 4, 5, 6, 7)]
        assert {type(answer) for answer in refused} == {Unreadable}
        assert all(bad in str(answer) for answer in refused)
        (made,) = answers[1]
        assert world.do(lambda: search.job(T, made.head.job_id)).head.job_id == made.head.job_id
        assert world.do(lambda: search.job(T, good)).head.state.value == "PAUSED"


def test_health_counts_it_once_however_often_it_is_met(tmp_path: Path) -> None:
    bad, _ = two_jobs(tmp_path)
    damage_head(tmp_path, bad)
    with restarted(tmp_path) as world:
        world.until(3)
        for _ in range(3):
            with pytest.raises(Unreadable):
                world.do(lambda: world.node.search.job(T, bad))
        health = world.node.search.health()
        assert health.status == "ok"
        (warning,) = health.warnings
        assert (warning.code, warning.text.split(":")[1].split(".")[0]) == ("ROWS_UNREADABLE", " 1")
        assert count(world, "row_unreadable") == 1


def test_its_minute_is_closed_in_the_end(tmp_path: Path) -> None:
    bad, _ = two_jobs(tmp_path)
    damage_head(tmp_path, bad)
    with restarted(tmp_path) as world:
        world.until(1_500)
        assert count(world, "look_set_aside") == 1
        assert closed(world) >= NOON + timedelta(seconds=1_380)


def test_a_job_that_ran_when_its_head_was_damaged_stops_no_start(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad = world.submit(task=SCRIPT)
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
    damage_head(tmp_path, bad)
    with restarted(tmp_path) as world:
        good = world.submit(task=SCRIPT)
        world.gate.open.set()
        world.node.step()
        world.settle()
        assert world.statuses(good) == ["SUCCESS"]


def test_a_queued_run_of_a_damaged_head_keeps_no_other_from_its_slot(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        queued = [world.submit(task=SCRIPT) for _ in range(6)]  # four run, two wait for a slot
        world.node.step()
    for job_id in queued:
        damage_head(tmp_path, job_id)
    with restarted(tmp_path) as world:
        good = world.submit(task=SCRIPT)
        world.gate.open.set()
        world.node.step()
        world.settle()
        world.until(120)
        assert world.statuses(good) == ["SUCCESS"]
        assert count(world, "row_unreadable") == 6


def read_again(world: World, job_id: str) -> None:
    """Damage a head under a node that runs, and let the node forget what it remembers of it."""
    damage_head(world.folder, job_id)
    world.store.job_states._cache._cache.clear()


def test_a_run_that_is_queued_in_memory_when_its_head_is_damaged(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad, good = (world.submit(name=name) for name in ("bad", "good"))
        read_again(world, bad)
        world.until(30)
        assert world.statuses(good) == ["SUCCESS"]
        assert told(world) == [("heads", f"{T}/{bad}")]


def test_a_run_that_is_held_ahead_of_its_time_when_its_head_is_damaged(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        bad, good = (world.submit(name=name, **EACH_SECOND) for name in ("bad", "good"))
        world.until(5)
        read_again(world, bad)
        world.until(30)
        assert len(world.statuses(good)) == 30
        assert count(world, "look_failed") <= 3


def test_a_lease_that_cannot_be_read_is_its_jobs_matter(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.submit(task=SCRIPT)
        world.node.step()
        assert world.gate.begun.acquire(timeout=10)
    change(tmp_path, "UPDATE leases SET token = 'x'")
    with restarted(tmp_path) as world:
        good = world.submit(**EACH_SECOND)
        world.until(5)
        assert len(world.statuses(good)) == 5


@pytest.mark.parametrize("task", [{"type": "event"}, SCRIPT], ids=["event", "script"])
def test_a_definition_that_cannot_be_read_stops_its_own_job_only(
    tmp_path: Path, task: dict[str, Any]
) -> None:
    bad, good = two_jobs(tmp_path, task={"type": "event"})
    with restarted(tmp_path) as world:
        other = world.submit(**EACH_SECOND, name="other", task=task)
    for job_id in (bad, other):
        change(tmp_path, "UPDATE bodies SET body = x'00ff' WHERE job_id = ?", job_id)
    with restarted(tmp_path) as world:
        world.until(150)
        assert world.statuses(good) == ["SUCCESS"] * 150
        assert closed(world) >= NOON + timedelta(seconds=60)
        with pytest.raises(Unavailable, match="definition cannot be read"):
            world.do(lambda: world.node.search.job(T, bad))
        assert count(world, "row_unreadable") == 2


def test_a_large_payload_that_is_damaged_stops_its_own_job_only(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    with restarted(tmp_path) as world:
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


def ran(folder: Path) -> tuple[str, str]:
    """A job with three runs that ended, and the id of the second."""
    with a_world(folder, ManualClock(NOON)) as world:
        job_id = world.submit(**EACH_SECOND)
        world.until(3)
        world.do(lambda: world.node.jobs.pause(T, job_id))
        return job_id, world.runs(job_id)[1].run.run_id


def test_a_run_whose_row_cannot_be_read_is_listed_as_such(tmp_path: Path) -> None:
    job_id, run_id = ran(tmp_path)
    change(tmp_path, "UPDATE runs SET row = x'00ff' WHERE run_id = ?", run_id)
    with restarted(tmp_path, 4) as world:
        for listed in (world.runs(job_id), world.runs(None)):
            assert len(listed) == 3
            assert [view.run.run_id for view in listed][1] == run_id
            assert listed[1].detail.error == "What the run left behind cannot be read."
            assert listed[1].run.scheduled_at == NOON + timedelta(seconds=2)
        view = world.do(lambda: world.node.search.run(T, job_id, run_id))
        assert (view.run.status.value, view.run.ended_at) == ("SUCCESS", listed[1].run.ended_at)
        assert NOON < view.run.ended_at <= NOON + timedelta(seconds=4)


def test_an_attempt_whose_row_cannot_be_read_is_left_out_of_its_run(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job_id = world.submit(task=SCRIPT, payload="fail", max_retries=1)
        world.gate.open.set()
        world.node.step()
        world.settle()
        (view,) = world.runs(job_id)
        found = world.do(lambda: world.node.search.run(T, job_id, view.run.run_id))
        assert len(found.attempts) == 1
    change(tmp_path, "UPDATE attempts SET row = x'00ff'")
    with restarted(tmp_path) as world:
        found = world.do(lambda: world.node.search.run(T, job_id, view.run.run_id))
        assert (list(found.attempts), found.run.attempt) == ([], 2)


TIMERS = {
    "a version that is text": "version = 'x'",
    "a tenant that is no text": "tenant = x'00ff'",
    "a tenant that is not UTF-8": "tenant = CAST(x'ff6c' AS TEXT)",
    "a job that is not UTF-8": "job_id = CAST(x'ff6c' AS TEXT)",
    "a time before all times": "at = -9223372036854775808",
    "a time with a fraction": "at = at + 0.5",
}


@pytest.mark.parametrize("what", TIMERS.values(), ids=TIMERS.keys())
def test_a_timer_that_cannot_be_read_is_removed_and_its_job_gets_another(
    tmp_path: Path, what: str
) -> None:
    bad, good = two_jobs(tmp_path, cron_expression="*/10 * * * * *")
    change(tmp_path, f"UPDATE timers SET {what} WHERE job_id = ?", bad)
    with restarted(tmp_path) as world:
        world.until(900)
        assert len(world.statuses(good)) == 90
        assert len(world.statuses(bad)) >= 40  # the reconciler found it without a timer
        assert count(world, "row_unreadable") == 1
        assert closed(world) >= NOON + timedelta(seconds=780)


def test_an_audit_row_that_cannot_be_read_says_how_to_read_around_it(tmp_path: Path) -> None:
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
    with restarted(tmp_path, 300) as world:
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
        assert world.submit()  # and what is noted now can be noted


def a_token(number: int, role: Role = Role.ADMIN) -> Token:
    return Token(an_id(number), T, f"token {number}", role, NOON, "me")


def test_a_token_that_cannot_be_read_lets_nobody_in_and_hides_no_other(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for number in range(4):
            world.store.tokens.put(a_token(number), f"hash {number}")
    change(tmp_path, "UPDATE tokens SET role = 'x' WHERE token_id = ?", an_id(2))
    with restarted(tmp_path) as world:
        tokens = world.store.tokens
        with pytest.raises(Unreadable, match=an_id(2)):
            tokens.find("hash 2")
        with pytest.raises(Unreadable, match=an_id(2)):
            tokens.get(T, an_id(2), NOON)
        assert tokens.find("hash 1") == a_token(1)
        first = tokens.page(T, None, 2, NOON)
        rest = tokens.page(T, first[-1].token_id, 2, NOON)
        assert [*first, *rest] == [a_token(3), a_token(1), a_token(0)]


def test_a_receipt_that_cannot_be_read_refuses_its_own_request_only(tmp_path: Path) -> None:
    receipt = Receipt("print", "made", NOON, NOON + timedelta(days=1))
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.receipts.claim(T, [("bad", receipt), ("good", receipt)], NOON)
    change(tmp_path, "UPDATE receipts SET receipt = x'00ff' WHERE name = 'bad'")
    with restarted(tmp_path) as world:
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


def test_a_notice_that_cannot_be_read_is_looked_at_seldom(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.notifications.put([a_notice()])
    change(tmp_path, "UPDATE notices SET notice = x'00ff'")
    with restarted(tmp_path) as world:
        good = world.submit(**EACH_SECOND)
        world.until(20)
        assert len(world.statuses(good)) == 20
        assert world.store.notifications.next_at(()) == NOON + timedelta(hours=1)


def test_events_around_a_row_that_cannot_be_read_are_read(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for number in range(3):
            world.store.feed.publish([{"n": number}])
    change(tmp_path, "UPDATE feed SET event = x'00ff' WHERE seq = 2")
    with restarted(tmp_path) as world:
        assert world.store.feed.read(0, 10) == [(1, {"n": 0}), (3, {"n": 2})]


@pytest.mark.parametrize(
    "what", ["token = 'x'", "until = 'x'", "done = 'x'", "look = x'00'", "owner = x'00'"]
)
def test_a_minute_whose_row_cannot_be_read_is_taken_again(tmp_path: Path, what: str) -> None:
    _, good = two_jobs(tmp_path)
    change(tmp_path, f"UPDATE buckets SET {what}")
    with restarted(tmp_path) as world:
        world.until(120)
        assert len(world.statuses(good)) == 120
        assert closed(world) >= NOON


def test_a_start_that_cannot_be_counted_counts_for_nothing(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.starts.add("start", T, NOON, 2, NOON - timedelta(minutes=1))
        later = NOON + timedelta(seconds=1)
        world.store.starts.add("start", T, later, 1, NOON - timedelta(minutes=1))
    change(tmp_path, "UPDATE starts SET n = 'x' WHERE n = 2")
    with restarted(tmp_path) as world:
        since = world.store.starts.times_since("start", T, NOON - timedelta(seconds=1))
        assert since == [NOON + timedelta(seconds=1)]


def test_rows_that_cannot_be_read_go_when_their_time_is_over(tmp_path: Path) -> None:
    job_id, run_id = ran(tmp_path)
    with restarted(tmp_path, 5) as world:
        world.do(lambda: world.node.jobs.cancel(T, job_id))
        world.until(6)
    for table, column in (("heads", "head"), ("bodies", "body"), ("runs", "row")):
        change(tmp_path, f"UPDATE {table} SET {column} = x'00ff'")
    later = (HISTORY_RETENTION + timedelta(days=1)).total_seconds()
    with restarted(tmp_path, later) as world:
        world.until(later + 300)
        for table in ("heads", "bodies", "runs"):
            (left,) = world.store._db.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert (table, left) == (table, 0)
        assert world.store.count_jobs(T) == {}
        assert world.store.history.recorded_keys([RunKey(T, job_id, run_id)]) == frozenset()
        assert JobKey(T, job_id) not in world.store.job_states.load([JobKey(T, job_id)])


def test_the_reconciler_walks_past_a_head_that_cannot_be_read(tmp_path: Path) -> None:
    bad, good = two_jobs(tmp_path)
    damage_head(tmp_path, bad)
    with restarted(tmp_path) as world:
        walk = world.store.job_states.walk(None, 1)
        assert (walk.states, [key for key, _ in walk.unreadable]) == ([], [JobKey(T, bad)])
        following = world.store.job_states.walk(walk.cursor, 10)
        assert [head.job_id for head in following.states] == [good]
