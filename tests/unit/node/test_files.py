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
CODE = [ROOT / "layers/core/python/punctual" / name for name in ("node", "tasks")]
FILES = CODE[0] / "files" / "durable.py"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def renames(path: Path) -> Iterator[int]:
    """Lines that rename a file. `str.replace` takes two values, a path's one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            replaces = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
            if replaces or node.func.attr in ("rename", "renames"):
                yield node.lineno


def test_a_file_is_renamed_only_where_it_is_synced() -> None:
    sources = [path for top in [*CODE, ROOT / "cli"] for path in top.rglob("*.py")]
    found = {path for path in sources if any(renames(path))}
    # A run's folder moves what it is about to delete: nothing of that needs to survive a power cut.
    deleted = ROOT / "layers/core/python/punctual/tasks/script/run_folder.py"
    assert found == {FILES, deleted}


def test_a_write_that_fails_leaves_the_former_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(tmp_path / "a", b"former")

    def full(_handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"former"}


def test_what_is_made_is_the_owners_alone_whatever_the_mask_says(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
        write_durably(tmp_path / "a" / "c", b"1")
    finally:
        os.umask(former)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/c")] == [0o700, 0o700, 0o600]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder whose files other users can read."""
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


def test_files_that_stood_open_are_closed_and_told(data: Path) -> None:
    told = {one.path.relative_to(data).as_posix(): one for one in close_to_others(data)}
    assert mode(data) == 0o700
    for path in data.rglob("*"):
        if path.name != "notes.txt":
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert (told["token.key"].old_mode, told["token.key"].new_mode) == (0o644, 0o600)
    assert told["blobs"].changed_files == 2
    assert close_to_others(data) == []


def test_a_file_that_is_not_the_nodes_keeps_its_rights(data: Path) -> None:
    close_to_others(data)
    assert mode(data / "notes.txt") == 0o644


def test_an_open_folder_of_blobs_is_looked_through_also_in_a_closed_one(data: Path) -> None:
    close_to_others(data)
    (data / "blobs/ab/cd").chmod(0o666)
    assert close_to_others(data) == []  # it cannot be reached: its folder is closed
    (data / "blobs").chmod(0o750)
    (told,) = close_to_others(data)
    assert (told.path, told.changed_files, mode(data / "blobs/ab/cd")) == (data / "blobs", 1, 0o600)


def test_a_link_in_the_blobs_is_not_followed(data: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    outside.chmod(0o644)
    (data / "blobs/link").symlink_to(outside)
    close_to_others(data)
    assert mode(outside) == 0o644


def test_a_start_that_was_cut_short_looks_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chmod = Path.chmod

    def cut_at_the_blobs(path: Path, rights: int) -> None:
        if path == data / "blobs":
            raise KeyboardInterrupt
        chmod(path, rights)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", cut_at_the_blobs)
        with pytest.raises(KeyboardInterrupt):
            close_to_others(data)
    (data / "blobs/ab/cd").chmod(0o644)
    close_to_others(data)
    assert mode(data / "blobs/ab/cd") == 0o600


def test_a_file_whose_rights_cannot_be_changed_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(StoreError, match="open to other users"):
        close_to_others(data)


def test_a_folder_that_all_users_share_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="shared by all users"):
        close_to_others(tmp_path)
    assert mode(tmp_path) == 0o1777
