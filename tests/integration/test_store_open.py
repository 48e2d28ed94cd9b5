"""Opening: who may, what is refused in one line, and files of earlier versions."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from punctual.domain.job_state import JobStatus, Lane, Priority, Rules
from punctual.domain.run import Lease, RunStatus
from punctual.domain.schedules.schedule import Every, Once
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import Key, RunKey
from punctual.node.clock import ManualClock
from punctual.node.run_queue.slots import INLINE, rank
from punctual.node.sqlite.codec import micros
from punctual.node.sqlite.errors import StoreError
from punctual.node.sqlite.history import ATTEMPT, ROW
from punctual.node.sqlite.schema import MIGRATIONS, connect
from punctual.node.sqlite.state_rows import HEAD
from punctual.node.sqlite.store import FILE, Store
from tests.builders import JOB, NOON, RUN, a_head, a_row, a_run, a_timer, after, an_attempt, an_id

CLOCK = ManualClock(NOON)
GOLDEN = Path(__file__).parents[1] / "golden" / "store_version_1.sql"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder without a database, for a test that writes one of its own."""
    (tmp_path / "blobs").mkdir()
    return tmp_path


def refused(folder: Path) -> str:
    with pytest.raises(StoreError) as told:
        Store.open(folder, CLOCK)
    assert "\n" not in told.value.message
    return told.value.message


def test_a_second_node_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    try:
        message = refused(tmp_path)
    finally:
        first.close()
    assert f"process {os.getpid()}" in message
    assert str(tmp_path) in message


def test_a_folder_is_free_again_when_its_node_has_ended(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    first.timers.put([a_timer()])
    first.close()
    second = Store.open(tmp_path, CLOCK)
    try:
        assert second.timers.due(NOON, 0, NOON, None, 9).timers == [a_timer()]
    finally:
        second.close()


def test_a_refusal_leaves_the_folder_to_its_holder(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    try:
        assert refused(tmp_path) == refused(tmp_path)
        first.timers.put([a_timer()])
    finally:
        first.close()


def test_the_lock_goes_with_the_process_that_held_it(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from punctual.node.sqlite.store import Store; "
        "Store.open(Path(sys.argv[1])); print('open', flush=True); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": "layers/core/python"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-9, b"open\n")
    Store.open(tmp_path, CLOCK).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert str(in_the_way) in refused(in_the_way)
    assert "Not a directory" in refused(in_the_way / "data")


def test_a_folder_whose_blobs_cannot_be_made_is_named_and_let_go(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("")
    assert str(tmp_path) in refused(tmp_path)
    (tmp_path / "blobs").unlink()
    Store.open(tmp_path, CLOCK).close()


def test_what_is_no_database_is_refused(folder: Path) -> None:
    (folder / FILE).write_text("these are my notes, keep out\n" * 100)
    assert "not a database" in refused(folder)
    assert (folder / FILE).read_text().startswith("these are my notes")


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    newer = sqlite3.connect(tmp_path / FILE)
    newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    message = refused(tmp_path)
    assert "newer Punctual" in message
    assert f"schema {len(MIGRATIONS) + 1}" in message


def test_a_file_of_version_1_is_brought_up_with_all_it_holds(folder: Path) -> None:
    old = sqlite3.connect(folder / FILE)
    old.executescript(GOLDEN.read_text())
    assert old.execute("PRAGMA user_version").fetchone() == (1,)
    old.close()
    store = Store.open(folder, CLOCK)
    try:
        rows = store.history.page_all("acme", None, 10, NOON)
        assert [(row.run.run_id, row.job_id) for row in rows] == [
            (an_id(1_000_003), JOB),
            (an_id(1_000_002), an_id(2)),
            (an_id(1_000_002), JOB),
        ]
        assert list(store.history.page(Key("acme", JOB), None, None, 9, NOON)) == rows[::2]
        assert store.history.present([RunKey("acme", JOB, an_id(1_000_003))])
        head = a_head(version=2, runs=(a_run(status=RunStatus.RUNNING, token=2),))
        lease = Lease(token=2, until=after(30))
        assert store.heads.load([Key("acme", JOB)]) == {Key("acme", JOB): (head, {RUN: lease})}
        assert store.timers.due(NOON, 0, NOON, None, 9).timers == [a_timer()]
        assert store.count_runs("acme") == {"RUNNING": 1, "SUCCESS": 3}
        assert list(store.heads.swap([Swap(a_head(version=3), 2)])) == [True]
        assert store.count_runs("acme") == {"SUCCESS": 3}
        store.history.put([a_row(an_id(1_000_003))])
        assert store.count_runs("acme") == {"SUCCESS": 3}
    finally:
        store.close()


def test_the_heads_of_a_file_of_version_2_are_found_by_what_comes_next(folder: Path) -> None:
    old = connect(folder / FILE, MIGRATIONS[:2])
    heads = [
        a_head(an_id(n), next_at=after(n * 10), schedule=Once(after(n * 10)))
        for n in range(2_000, 0, -1)
    ]
    heads += [a_head(an_id(3_000)), a_head(an_id(3_001), next_at=after(1), state=JobStatus.PAUSED)]
    again = a_head(an_id(3_002), next_at=after(5), schedule=Every(5, anchor_at=NOON))
    old.executemany(
        "INSERT INTO heads (id, tenant, job_id, state, leased, busy, queued, head) "
        "VALUES (?, 'acme', ?, 'SCHEDULED', 0, 0, 0, ?)",
        [
            (n, head.job_id, msgspec.json.encode(head))
            for n, head in enumerate([*heads, again], start=1)
        ],
    )
    old.close()
    store = Store.open(folder, CLOCK)
    try:
        place, end = (after(10_001), ""), after(1e6)
        found = store.heads.coming("acme", place, end, 3, 1)
        assert found is not None
        assert list(found.heads) == [again, *heads[999:996:-1]]
        assert found.until == (after(10_030), an_id(1_003))
        whole = store.heads.coming("acme", (NOON, ""), end, 9_999, 1)
        assert whole is not None
        assert (len(whole.heads), whole.until) == (2_001, None)
    finally:
        store.close()


def test_what_is_queued_in_a_file_of_version_7_is_found_by_its_kind(folder: Path) -> None:
    old = connect(folder / FILE, MIGRATIONS[:7])
    kinds = (("http", Lane.LONG), ("script", Lane.QUICK), ("event", Lane.QUICK))
    heads = []
    for n, (task_type, lane) in enumerate(kinds * 400, start=1):
        rules = Rules(body="1-body", since_at=NOON, task_type=task_type, lane=lane)
        heads.append(a_head(an_id(n), rules={1: rules}, runs=(a_run(due_at=NOON),)))
    old.executemany(
        "INSERT INTO heads (id, tenant, job_id, state, leased, busy, queued, queued_priority, "
        "queued_due, head) VALUES (?, 'acme', ?, 'SCHEDULED', 0, 1, 1, 1, ?, ?)",
        [(n, head.job_id, micros(NOON), HEAD.encode(head)) for n, head in enumerate(heads, 1)],
    )
    old.close()
    store = Store.open(folder, CLOCK)
    try:
        for n, kind in enumerate((Lane.LONG, Lane.QUICK, INLINE)):
            keys = store.heads.keys(store.heads.queued(rank(Priority.NORMAL, kind), None, 9_999))
            assert [key.job_id for key in keys] == [head.job_id for head in heads[n::3]]
    finally:
        store.close()


def test_a_head_that_cannot_be_read_stops_the_start_in_one_line_and_nothing_is_changed(
    folder: Path,
) -> None:
    old = connect(folder / FILE, MIGRATIONS[:7])
    old.execute(
        "INSERT INTO heads (id, tenant, job_id, state, leased, busy, queued, queued_priority, "
        "queued_due, head) VALUES (1, 'acme', 'a', 'SCHEDULED', 0, 1, 1, 1, 0, x'c1')"
    )
    old.close()
    assert "cannot be used" in refused(folder)
    left = sqlite3.connect(folder / FILE)
    assert left.execute("PRAGMA user_version").fetchone() == (7,)
    assert left.execute("SELECT queued_priority FROM heads").fetchall() == [(1,)]
    left.close()


def test_rows_in_json_are_read_and_packed_when_they_are_next_written(folder: Path) -> None:
    old = connect(folder / FILE, MIGRATIONS[:3])
    head, row, attempt = a_head(), a_row(), an_attempt()
    old.execute(
        "INSERT INTO heads (id, tenant, job_id, state, leased, busy, queued, head) "
        "VALUES (1, 'acme', ?, 'SCHEDULED', 0, 0, 0, ?)",
        (JOB, msgspec.json.encode(head)),
    )
    old.execute(
        "INSERT INTO runs VALUES (1, 'acme', ?, ?, ?, 'SUCCESS', ?)",
        (JOB, row.run.run_id, 2**60, msgspec.json.encode(row)),
    )
    old.execute(
        "INSERT INTO attempts VALUES ('acme', ?, ?, 1, 2, 0, NULL, ?)",
        (JOB, attempt.run_id, msgspec.json.encode(attempt)),
    )
    old.close()
    store = Store.open(folder, CLOCK)
    try:
        key, of_run = Key("acme", JOB), RunKey("acme", JOB, row.run.run_id)
        assert store.heads.load([key]) == {key: (head, {})}
        assert store.history.get([of_run], NOON) == {of_run: row}
        assert list(store.history.attempts(RunKey(*key, attempt.run_id), NOON)) == [attempt]
        assert list(store.heads.swap([Swap(a_head(version=2), 1)])) == [True]
        ((packed,),) = store._db.execute("SELECT head FROM heads").fetchall()
        assert packed == HEAD.encode(a_head(version=2))
    finally:
        store.close()
    for codec, value in ((HEAD, head), (ROW, row), (ATTEMPT, attempt)):
        assert len(codec.encode(value)) < len(msgspec.json.encode(value))
        assert codec.encode(value)[:1] != b"{"


def test_an_old_file_and_a_new_one_end_with_the_same_tables(tmp_path: Path) -> None:
    old = connect(tmp_path / "old.db", MIGRATIONS[:1])
    old.close()
    dumps = []
    for name in ("old.db", "new.db"):
        db = connect(tmp_path / name)
        dumps.append(sorted(db.execute("SELECT name, sql FROM sqlite_schema").fetchall(), key=str))
        db.close()
    assert dumps[0] == dumps[1]


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    connect(tmp_path / FILE, MIGRATIONS[:1]).close()
    broken = [*MIGRATIONS[:1], ["CREATE TABLE half (a)", "CREATE TABLE oops ("]]
    with pytest.raises(StoreError, match="cannot be used"):
        connect(tmp_path / FILE, broken)
    db = connect(tmp_path / FILE, MIGRATIONS[:1])
    assert db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    db.close()


def test_commits_are_flushed_to_the_disk(tmp_path: Path) -> None:
    store = Store.open(tmp_path, CLOCK)
    try:
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    finally:
        store.close()
