"""A data folder with a missing part is refused. It never starts as an empty scheduler."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from punctual.engine.ports.timers import Timer
from punctual.node.files.data_folder import DATABASE, StoreError, disk_warning
from punctual.node.files.process_groups import GroupFiles
from punctual.node.files.token_key import TokenKey
from punctual.node.files.webhook_keys import WebhookKeys
from punctual.node.sqlite.store import Store
from punctual.tasks.script.process_group import group_of
from tests.support.builders import NOON, ManualClock, a_timer

CLOCK = ManualClock(NOON)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def key(folder: Path) -> None:
    TokenKey(folder).read()


def webhook_key(folder: Path) -> None:
    WebhookKeys(folder).secrets("local")


def groups(folder: Path) -> None:
    GroupFiles(folder / "groups")


def blob(folder: Path) -> None:
    store = Store.open(folder, CLOCK)
    store.blobs.put("a", b"1", "text/plain")
    store.close()


def timers_after_start(folder: Path) -> list[Timer]:
    """Start, add a timer, and return the timers_after_start found."""
    store = Store.open(folder, CLOCK)
    try:
        store.timers.put([a_timer()])
        return list(store.timers.due(NOON, 0, NOON, None, 9).timers)
    finally:
        store.close()


@pytest.mark.parametrize("lose", [remove, empty])
@pytest.mark.parametrize("leave", [key, webhook_key, groups, blob])
def test_lost_database_beside_other_files_of_the_node_is_refused(
    tmp_path: Path, leave: Callable[[Path], None], lose: Callable[[Path], None]
) -> None:
    Store.open(tmp_path, CLOCK).close()
    leave(tmp_path)
    lose(tmp_path / DATABASE)
    for _ in range(2):  # a refusal changes nothing
        with pytest.raises(StoreError, match="restore the database from a backup") as refused:
            Store.open(tmp_path, CLOCK)
        assert str(tmp_path / DATABASE) in refused.value.message
        assert "\n" not in refused.value.message


def test_emptied_database_beside_its_log_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    (tmp_path / DATABASE).unlink()
    (tmp_path / f"{DATABASE}-wal").write_bytes(b"left")
    with pytest.raises(StoreError, match=r"punctual\.db-wal"):
        Store.open(tmp_path, CLOCK)


def test_interrupted_first_start_begins_again(tmp_path: Path) -> None:
    """It leaves at most the lock, the empty blob folder and an empty database."""
    Store.open(tmp_path, CLOCK).close()
    (tmp_path / DATABASE).write_bytes(b"")
    assert timers_after_start(tmp_path) == [a_timer()]


def test_first_start_interrupted_while_creating_tables_begins_again(
    tmp_path: Path,
) -> None:
    """The tables go to the write-ahead log, which exists before their commit."""
    code = (
        "import os, sys; from pathlib import Path; from punctual.node.sqlite import schema; "
        "schema.STATEMENTS = (os._exit(9) if n else 'CREATE TABLE a (b)' for n in range(2)); "
        "schema.connect(Path(sys.argv[1]), schema.STATEMENTS)"
    )
    (tmp_path / "blobs").mkdir()
    path = tmp_path / DATABASE
    process = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=30)
    assert process.returncode == 9
    assert path.stat().st_size > 0
    (tmp_path / f"{DATABASE}-wal").write_bytes(b"half of a frame")
    assert timers_after_start(tmp_path) == [a_timer()]


def test_limits_file_before_the_first_start_does_not_stop_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "limits.json").write_text("{}")
    assert timers_after_start(tmp_path) == [a_timer()]


def test_database_without_its_blob_folder_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    shutil.rmtree(tmp_path / "blobs")
    with pytest.raises(StoreError, match="blobs is missing"):
        Store.open(tmp_path, CLOCK)
    (tmp_path / "blobs").mkdir()
    Store.open(tmp_path, CLOCK).close()


def test_truncated_database_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    whole = (tmp_path / DATABASE).read_bytes()
    (tmp_path / DATABASE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="cut short"):
        Store.open(tmp_path, CLOCK)
    (tmp_path / DATABASE).write_bytes(whole)
    Store.open(tmp_path, CLOCK).close()


def test_database_without_tables_beside_a_key_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, CLOCK).close()
    key(tmp_path)
    (tmp_path / DATABASE).unlink()
    db = sqlite3.connect(tmp_path / DATABASE)
    db.execute("CREATE TABLE t (a)")
    db.execute("DROP TABLE t")
    db.close()
    with pytest.raises(StoreError, match="holds no tables"):
        Store.open(tmp_path, CLOCK)


def test_unreadable_group_file_is_moved_aside_and_others_are_handled(
    tmp_path: Path,
) -> None:
    files = GroupFiles(tmp_path)
    files.on_started("b", group_of(2**22 + 1))
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"\xff{")
    assert GroupFiles(tmp_path).end_all().unreadable_run_ids == ["a", "c"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.unreadable", "c.unreadable"]
    assert GroupFiles(tmp_path).end_all().unreadable_run_ids == []


GIB = 1024**3


def a_disk(free: float, files: int = 1_000, free_files: int = 500) -> os.statvfs_result:
    """Return the statistics of a disk of 200 GiB with `free` GiB free."""
    blocks = [4_096, 4_096, 200 * GIB // 4_096, 0, int(free * GIB) // 4_096]
    return os.statvfs_result([*blocks, files, 0, free_files, 0, 255])


@pytest.mark.parametrize(
    ("disk", "text"),
    [
        (a_disk(5.1), None),
        (a_disk(4.9), "5,017 MiB left"),
        (a_disk(100, free_files=40), "room for 40 more files"),
        (a_disk(100, files=0, free_files=0), None),
    ],
)
def test_nearly_full_disk_gives_a_warning(
    tmp_path: Path, disk: os.statvfs_result, text: str | None
) -> None:
    warning = disk_warning(tmp_path, lambda _: disk)
    assert (warning is None) is (text is None)
    assert text is None or (warning is not None and text in warning.text)


def test_nearly_full_disk_is_logged_once_and_warned_of_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    store = Store.open(tmp_path, CLOCK, lambda event, **_: events.append(event))
    try:
        for free in (100, 1, 1, 100, 1):
            disk = a_disk(free)
            monkeypatch.setattr(disk_warning, "__defaults__", (lambda _, disk=disk: disk,))
            store.purge(NOON, 10)
            codes = [warning.code for warning in store.warnings()]
            assert codes == (["DISK_NEARLY_FULL"] if free == 1 else [])
    finally:
        store.close()
    assert events == ["disk_nearly_full"] * 2


def test_kept_folder_starts_with_its_timers(tmp_path: Path) -> None:
    store = Store.open(tmp_path, CLOCK)
    store.timers.put([a_timer()])
    store.close()
    key(tmp_path)
    groups(tmp_path)
    reopened = Store.open(tmp_path, CLOCK)
    try:
        assert reopened.timers.due(NOON, 0, NOON, None, 9).timers == [a_timer()]
    finally:
        reopened.close()
