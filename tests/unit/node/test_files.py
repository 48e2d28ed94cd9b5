"""Files of the node: renamed in one place only, and open to no other user."""

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from punctual.node.files.data_folder import StoreError
from punctual.node.files.durable import close_to_others, make_folder, write_durably

ROOT = Path(__file__).parents[3]
SOURCE_FOLDERS = [ROOT / "layers/core/python/punctual" / name for name in ("node", "tasks")]
DURABLE_MODULE = SOURCE_FOLDERS[0] / "files" / "durable.py"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def renames(path: Path) -> Iterator[int]:
    """Return the lines that rename a file. `str.replace` takes two values, `Path.replace` one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            replaces = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
            if replaces or node.func.attr in ("rename", "renames"):
                yield node.lineno


def test_files_are_renamed_only_by_the_durable_module() -> None:
    sources = [path for top in [*SOURCE_FOLDERS, ROOT / "cli"] for path in top.rglob("*.py")]
    renaming_files = {path for path in sources if any(renames(path))}
    # Files in a run's folder end with the run. They need not survive a power cut.
    script = ROOT / "layers/core/python/punctual/tasks/script"
    run_folder_modules = {script / "run_folder.py", script / "artifact.py"}
    assert renaming_files == {DURABLE_MODULE, *run_folder_modules}


def test_failed_write_keeps_the_former_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(tmp_path / "a", b"former")

    def fail_sync(_handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", fail_sync)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"former"}


def test_new_files_are_private_under_any_umask(tmp_path: Path) -> None:
    former_mask = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
        write_durably(tmp_path / "a" / "c", b"1")
    finally:
        os.umask(former_mask)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/c")] == [0o700, 0o700, 0o600]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with files that other users can read."""
    folder = tmp_path / "data"
    names = ("punctual.db", "punctual.db-wal", "token.key", "limits.json", "lock", "notes.txt")
    paths = [*(folder / name for name in names), folder / "groups/1", folder / "blobs/ab/cd"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
        path.chmod(0o644)
    (folder / "work").mkdir()
    for path in (folder, *folder.rglob("*/")):
        if path.is_dir():
            path.chmod(0o755)
    return folder


def test_files_open_to_others_are_made_private_and_reported(data: Path) -> None:
    changes = {change.path.relative_to(data).as_posix(): change for change in close_to_others(data)}
    assert mode(data) == 0o700
    for path in data.rglob("*"):
        if path.name != "notes.txt":
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert (changes["token.key"].old_mode, changes["token.key"].new_mode) == (0o644, 0o600)
    assert changes["blobs"].changed_files == 2
    assert close_to_others(data) == []


def test_foreign_file_keeps_its_permissions(data: Path) -> None:
    close_to_others(data)
    assert mode(data / "notes.txt") == 0o644


def test_open_blob_folder_in_a_private_one_is_checked(data: Path) -> None:
    close_to_others(data)
    (data / "blobs/ab/cd").chmod(0o666)
    assert close_to_others(data) == []  # its folder is private, so other users cannot reach it
    (data / "blobs").chmod(0o750)
    (change,) = close_to_others(data)
    assert (change.path, change.changed_files, mode(data / "blobs/ab/cd")) == (
        data / "blobs",
        1,
        0o600,
    )


def test_link_in_the_blob_folder_is_not_followed(data: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    outside.chmod(0o644)
    (data / "blobs/link").symlink_to(outside)
    close_to_others(data)
    assert mode(outside) == 0o644


def test_interrupted_check_is_repeated_by_the_next_start(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chmod = Path.chmod

    def interrupt_at_the_blobs(path: Path, permissions: int) -> None:
        if path == data / "blobs":
            raise KeyboardInterrupt
        chmod(path, permissions)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", interrupt_at_the_blobs)
        with pytest.raises(KeyboardInterrupt):
            close_to_others(data)
    (data / "blobs/ab/cd").chmod(0o644)
    close_to_others(data)
    assert mode(data / "blobs/ab/cd") == 0o600


def test_file_with_unchangeable_permissions_stops_the_start(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(StoreError, match="open to other users"):
        close_to_others(data)


def test_folder_shared_by_all_users_is_refused_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="shared by all users"):
        close_to_others(tmp_path)
    assert mode(tmp_path) == 0o1777
