"""Blobs as files: nothing half written, nothing outside the folder, logs that grow."""

import os
from pathlib import Path
from threading import Thread

import pytest

from punctual.domain.errors import Unavailable
from punctual.node.files.blobs import FileBlobs


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    for name in ("../out", "/etc/out", "a/../../out", "new/1", "x" * 5_000, ""):
        blobs.put(name, b"1", "text/plain")
    assert len(files(tmp_path)) == 6
    assert all(path.is_relative_to(tmp_path / "blobs") for path in files(tmp_path))


def test_a_log_grows_and_is_read_from_any_place(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    log = blobs.open_log("log")
    log.write(b"one ")
    assert blobs.get("log") == b"one "
    log.write(b"two")
    assert log.end() == 7
    assert blobs.get("log", 4) == b"two"


def test_an_empty_log_and_one_that_is_discarded_leave_no_file(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    assert blobs.open_log("empty").end() == 0
    log = blobs.open_log("discarded")
    log.write(b"1")
    log.discard()
    assert files(tmp_path) == []


def test_a_write_that_fails_leaves_the_former_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("a", b"former", "text/plain")

    def full(_file: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Unavailable, match="No space left"):
        blobs.put("a", b"new", "text/plain")
    assert blobs.get("a") == b"former"
    assert len(files(tmp_path)) == 1


def test_what_a_killed_node_was_writing_is_cleared(tmp_path: Path) -> None:
    FileBlobs(tmp_path).put("a", b"1", "text/plain")
    (tmp_path / "new" / "0").write_bytes(b"half")
    blobs = FileBlobs(tmp_path)
    blobs.put("b", b"2", "text/plain")
    assert (blobs.get("a"), blobs.get("b"), len(files(tmp_path))) == (b"1", b"2", 2)


def test_threads_may_write_at_once(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)

    def write(thread: int) -> None:
        for n in range(20):
            blobs.put(f"own/{thread}/{n}", b"%d" % n, "text/plain")
            blobs.put("shared", b"%d" % thread * 1_000, "text/plain")

    threads = [Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [blobs.get(f"own/{t}/{n}") for t in range(4) for n in range(20)] == [
        b"%d" % n for _ in range(4) for n in range(20)
    ]
    assert blobs.get("shared") in [b"%d" % t * 1_000 for t in range(4)]
