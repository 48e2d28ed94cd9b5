"""Files that survive a power cut, and that only the node's own user can read."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from punctual.node.files.data_folder import StoreError

OWNER_FILE = 0o600
OWNER_FOLDER = 0o700
_TOP_FILES = (
    *("*.db", "*.db-wal", "*.db-shm"),
    *("*.key", "*.key.new", "admin-token", "local-token", "limits.json", "lock"),
)
_TOP_FOLDERS = ("blobs", "groups")


def write_durably(path: Path, data: bytes, temporary_file: Path | None = None) -> None:
    """Write the whole file or, if anything fails, leave the former one.

    The order makes this true after a power cut:

    1. The content is synced in the temporary file `temporary_file`.
    2. The file is renamed.
    3. The folder that holds the name is synced.
    """
    temporary_file = temporary_file or path.with_name(f"{path.name}.new")
    temporary_file.unlink(missing_ok=True)
    try:
        with open(
            os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_FILE), "wb"
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary_file.replace(path)
    except BaseException:
        temporary_file.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_or_create(path: Path, new_data: Callable[[], bytes], label: str) -> bytes:
    """Return the content of a file. The first call creates it with `new_data`."""
    try:
        if not path.exists():
            write_durably(path, new_data())
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{label} {path} cannot be used: {error.strerror}.") from error


def rename_durably(path: Path, target: Path) -> None:
    """Rename a synced file, and sync the folder of its new name."""
    path.replace(target)
    sync_folder(target.parent)


def make_folder(path: Path) -> None:
    """Create the folder and its missing parents."""
    if path.is_dir():
        return
    parent = path.absolute().parent
    try:
        path.mkdir(mode=OWNER_FOLDER)
    except FileNotFoundError:
        make_folder(parent)
        path.mkdir(mode=OWNER_FOLDER)
    sync_folder(parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder, so that a new or renamed file is found after a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RestrictedPath(NamedTuple):
    """A file or folder on which other users had rights.

    `changed_files` counts the closed files in a folder.
    """

    path: Path
    old_mode: int
    new_mode: int
    changed_files: int = 0


def close_to_others(folder: Path) -> list[RestrictedPath]:
    """Remove the rights of other users on the data folder and on the node's files in it.

    Return what was changed.

    A folder is closed after its content. While it is open, the next start checks its content again.
    Once it is closed, a start need not check each of a million files.
    """
    mode = _mode(folder)
    if mode & stat.S_ISVTX:
        raise StoreError(
            f"The data folder {folder} is shared by all users of this machine: set PUNCTUAL_DATA "
            "to a folder of its own."
        )
    was_open = bool(mode & ~OWNER_FOLDER)
    restricted = [_restrict(path, OWNER_FILE) for path in _top_files(folder)]
    for name in _TOP_FOLDERS:
        if (folder / name).is_dir():
            restricted.append(_restrict_tree(folder / name, was_open))
    restricted += [
        _restrict(work_folder, OWNER_FOLDER)
        for work_folder in [folder / "work"]
        if work_folder.is_dir()
    ]
    restricted.append(_restrict(folder, OWNER_FOLDER))
    return [
        path_change
        for path_change in restricted
        if _has_changed(path_change) or path_change.changed_files
    ]


def _top_files(folder: Path) -> Iterator[Path]:
    for pattern in _TOP_FILES:
        yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _restrict_tree(top: Path, was_open: bool) -> RestrictedPath:
    changed_files = 0
    if was_open or _mode(top) & ~OWNER_FOLDER:
        for parent, folders, files in os.walk(top, topdown=False):
            paths = [(Path(parent, name), OWNER_FILE) for name in files]
            paths += [(Path(parent, name), OWNER_FOLDER) for name in folders]
            changed_files += sum(
                _has_changed(_restrict(*entry)) for entry in paths if not entry[0].is_symlink()
            )
    return _restrict(top, OWNER_FOLDER)._replace(changed_files=changed_files)


def _restrict(path: Path, allowed_mode: int) -> RestrictedPath:
    """Remove all rights beyond `allowed_mode`. No right is added that the owner lacks."""
    old_mode = _mode(path)
    new_mode = old_mode & allowed_mode
    if old_mode != new_mode:
        try:
            path.chmod(new_mode)
        except OSError as error:
            raise StoreError(
                f"{path} is open to other users, and its rights cannot be changed "
                f"({error.strerror}): let only the node's own user read it."
            ) from error
    return RestrictedPath(path, old_mode, new_mode)


def _has_changed(restricted: RestrictedPath) -> bool:
    return restricted.old_mode != restricted.new_mode


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
