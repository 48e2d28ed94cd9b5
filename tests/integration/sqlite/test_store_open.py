"""Opening the store: the lock of its folder, and refusals with an error of one line."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from punctual.node.files.data_folder import DATABASE, StoreError
from punctual.node.sqlite.history import ATTEMPT_CODEC, RUN_CODEC
from punctual.node.sqlite.schema import SCHEMA_VERSION, connect
from punctual.node.sqlite.state_rows import STATE_CODEC
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, ManualClock, a_job_state, a_row, a_timer, an_attempt

CLOCK = ManualClock(NOON)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder without a database, for a test that writes one of its own."""
    (tmp_path / "blobs").mkdir()
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(StoreError) as error:
        Store.open(folder, CLOCK)
    assert "\n" not in error.value.message
    return error.value.message


def test_second_node_is_refused_and_the_error_names_the_first(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    try:
        message = refusal(tmp_path)
    finally:
        first.close()
    assert f"process {os.getpid()}" in message
    assert str(tmp_path) in message


def test_folder_is_free_after_its_node_ends(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    first.timers.put([a_timer()])
    first.close()
    second = Store.open(tmp_path, CLOCK)
    try:
        assert second.timers.due(NOON, 0, NOON, None, 9).timers == [a_timer()]
    finally:
        second.close()


def test_refused_open_leaves_the_lock_to_its_holder(tmp_path: Path) -> None:
    first = Store.open(tmp_path, CLOCK)
    try:
        assert refusal(tmp_path) == refusal(tmp_path)
        first.timers.put([a_timer()])
    finally:
        first.close()


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from punctual.node.sqlite.store import Store; "
        "Store.open(Path(sys.argv[1])); print('open', flush=True); os.kill(os.getpid(), 9)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": "layers/core/python"},
        capture_output=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (-9, b"open\n")
    Store.open(tmp_path, CLOCK).close()


def test_error_names_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert str(in_the_way) in refusal(in_the_way)
    assert "Not a directory" in refusal(in_the_way / "data")


def test_folder_without_room_for_blobs_is_named_and_unlocked(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("")
    assert str(tmp_path) in refusal(tmp_path)
    (tmp_path / "blobs").unlink()
    Store.open(tmp_path, CLOCK).close()


def test_file_that_is_not_a_database_is_refused(folder: Path) -> None:
    (folder / DATABASE).write_text("these are my notes, keep out\n" * 100)
    assert "not a database" in refusal(folder)
    assert (folder / DATABASE).read_text().startswith("these are my notes")


@pytest.mark.parametrize(("version", "writer"), [(1, "a newer"), (-1, "an unreleased")])
def test_database_of_another_schema_is_refused_and_unchanged(
    tmp_path: Path, version: int, writer: str
) -> None:
    Store.open(tmp_path, CLOCK).close()
    other = sqlite3.connect(tmp_path / DATABASE)
    other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + version}")
    other.close()
    message = refusal(tmp_path)
    assert f"{writer} Punctual (schema {SCHEMA_VERSION + version}" in message
    database = sqlite3.connect(tmp_path / DATABASE)
    assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + version,)
    database.close()


def test_tables_are_created_together_or_not_at_all(folder: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        connect(folder / DATABASE, ["CREATE TABLE half (a)", "CREATE TABLE oops ("])
    database = sqlite3.connect(folder / DATABASE)
    assert database.execute("SELECT name FROM sqlite_schema").fetchall() == []
    assert database.execute("PRAGMA user_version").fetchone() == (0,)
    database.close()
    Store.open(folder, CLOCK).close()


def test_packed_rows_are_shorter_than_json(folder: Path) -> None:
    for codec, value in (
        (STATE_CODEC, a_job_state()),
        (RUN_CODEC, a_row()),
        (ATTEMPT_CODEC, an_attempt()),
    ):
        assert len(codec.encode(value)) < len(msgspec.json.encode(value))
        assert codec.decode(codec.encode(value)) == value


def test_commits_are_flushed_to_the_disk(tmp_path: Path) -> None:
    store = Store.open(tmp_path, CLOCK)
    try:
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    finally:
        store.close()
