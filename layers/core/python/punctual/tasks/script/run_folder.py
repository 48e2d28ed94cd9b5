"""The private folder of a script. It exists for one run."""

import logging
import os
import tempfile
from pathlib import Path
from types import TracebackType

from punctual.tasks.script.open_files import NotBegun, retry_until_free

_RUN_FOLDER_PREFIX = "run-"
_OWNER_ONLY_MODE = 0o700
_OWNER_FILE_MODE = 0o600
_log = logging.getLogger(__name__)


class RunFolder:
    """A folder for its owner only, with subfolders for code, work, HOME and TMPDIR."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=_OWNER_ONLY_MODE, parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=_RUN_FOLDER_PREFIX, dir=root.absolute()))
        self.work = self._make_folder("work")
        self.home = self._make_folder("home")
        self.temporary = self._make_folder("tmp")
        self.code = self._make_folder("code")
        self._files: list[Path] = []

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, NotBegun) or not self._remove_unused():
            _remove(self.path)

    def _remove_unused(self) -> bool:
        """Remove the files and folders of this object. Return False if something else is left.

        This needs no open file, unlike `_remove`.
        """
        try:
            for file in self._files:
                file.unlink(missing_ok=True)
            for folder in (self.work, self.home, self.temporary, self.code, self.path):
                folder.rmdir()
        except OSError:
            return False
        return True

    def write(self, name: str, code: bytes) -> Path:
        file = self.code / name
        self._files.append(file)
        file.touch(_OWNER_FILE_MODE)
        file.write_bytes(code)
        return file

    def _make_folder(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(mode=_OWNER_ONLY_MODE)
        return folder


def remove_leftovers(root: Path) -> int:
    """Remove the folders of runs that a crash ended. Return their number."""
    folders = sorted(root.glob(f"{_RUN_FOLDER_PREFIX}*"))
    for folder in folders:
        _remove(folder)
    return len(folders)


def clear_folder(folder: Path) -> list[str]:
    """Remove everything in a folder. Return the names that could not be removed."""
    names = []
    with os.scandir(folder) as entries:
        listed = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_folder in listed:
        try:
            if is_folder:
                _delete_content(Path(path))
                os.rmdir(path)
            else:
                os.unlink(path)
        except OSError:
            names.append(os.path.basename(path))
    return names


def _remove(folder: Path) -> None:
    try:
        retry_until_free(lambda: _delete_content(folder))
        folder.rmdir()
    except OSError as error:
        # Only log the error. The run has ended, and its outcome must not depend on the cleanup.
        _log.warning("run_folder_left_behind", extra={"folder": str(folder), "error": str(error)})


def _delete_content(folder: Path) -> None:
    """Delete the content of a folder, at any depth and with any permissions.

    Inner folders move up before their parent is deleted. So no path exceeds the length limit, and
    the walk holds no descriptors.
    """
    folder.chmod(_OWNER_ONLY_MODE)
    moved_count = 0
    todo = _delete_files(str(folder))
    while todo:
        path = todo.pop()
        os.chmod(path, _OWNER_ONLY_MODE)
        for inner in _delete_files(path):
            target = f"{folder}/.{moved_count}"
            while os.path.lexists(target):
                moved_count += 1
                target = f"{folder}/.{moved_count}"
            os.chmod(inner, _OWNER_ONLY_MODE)  # a rename writes the `..` entry of the folder
            os.rename(inner, target)
            todo.append(target)
        os.rmdir(path)


def _delete_files(folder: str) -> list[str]:
    """Delete the files in a folder. Return the folders in it."""
    with os.scandir(folder) as entries:
        listed = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_folder in listed:
        if not is_folder:
            os.unlink(path)
    return [path for path, is_folder in listed if is_folder]
