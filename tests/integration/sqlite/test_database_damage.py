"""Damage to the database is reported, and the node writes no more."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.node.files.damage import Damage
from punctual.node.files.data_folder import DATABASE, StoreLost
from punctual.node.files.database_check import DatabaseCheck
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, ManualClock

CLOCK = ManualClock(NOON)
PAGE = 4096


class EventLogStub:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **facts: Any) -> None:
        self.events.append((event, facts))


def overwrite_table(folder: Path, table: str) -> None:
    """Overwrite the first page of a table as a damaged disk does."""
    db = sqlite3.connect(folder / DATABASE)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    db.close()
    with (folder / DATABASE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xff" * PAGE)


def run_check(folder: Path, damage: Damage, log: EventLogStub) -> None:
    check = DatabaseCheck(folder / DATABASE, damage, log)
    check.start()
    check._thread.join(30)
    assert not check._thread.is_alive()


def test_intact_database_gives_no_warning(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    log = EventLogStub()
    damage = Damage(log)
    run_check(tmp_path, damage, log)
    assert (list(damage.warnings()), log.events) == ([], [])


def test_damage_in_an_unread_table_is_found_after_a_start(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    overwrite_table(tmp_path, "receipts")
    log = EventLogStub()
    store = Store.open(tmp_path, CLOCK, log)
    run_check(tmp_path, store.damage, log)
    (warning,) = store.damage.warnings()
    store.close()
    assert warning.code == "DATABASE_DAMAGED"
    assert warning.text.startswith("The database is damaged: ")
    assert [event for event, _ in log.events] == ["database_damaged"]


def test_stopped_check_ends_without_an_event(tmp_path: Path) -> None:
    store = Store.open(tmp_path, CLOCK)
    log = EventLogStub()
    check = DatabaseCheck(tmp_path / DATABASE, store.damage, log)
    check.start()
    check.stop()
    assert not check._thread.is_alive()
    assert log.events == []
    store.close()
    assert not (tmp_path / f"{DATABASE}-wal").exists(), "no process holds the log"


def test_read_of_a_damaged_page_ends_the_node(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    overwrite_table(tmp_path, "receipts")
    store = Store.open(tmp_path, CLOCK)
    lost: list[StoreLost] = []
    store.database.on_lost = lost.append
    with pytest.raises(StoreLost, match=r"is damaged .*Restore it from a backup"):
        store.receipts.find("local", ["name"], NOON)
    assert [type(error) for error in lost] == [StoreLost]
    store.close()


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (sqlite3.SQLITE_CORRUPT, True),
        (sqlite3.SQLITE_CORRUPT_INDEX, True),
        (sqlite3.SQLITE_NOTADB, True),
        (sqlite3.SQLITE_BUSY, False),
        (sqlite3.SQLITE_IOERR, False),
    ],
)
def test_commit_with_a_damage_error_ends_the_node(tmp_path: Path, code: int, ends: bool) -> None:
    store = Store.open(tmp_path, CLOCK)
    lost: list[StoreLost] = []
    store.database.on_lost = lost.append

    def failing() -> None:
        error = sqlite3.DatabaseError("as SQLite says it")
        error.sqlite_errorcode = code
        raise error

    store.transaction().add_writer(["a change"], failing)
    with pytest.raises(Unavailable), store.transaction():
        pass
    assert len(lost) == ends
    store.close()
