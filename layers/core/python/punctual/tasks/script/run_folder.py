"""The private folder of a script. It exists for one run."""

import logging
import os
import tempfile
from pathlib import Path
from types import TracebackType

from punctual.tasks.script.open_files import NotBegun, until_free

_PREFIX = "run-"
_OWNER_ONLY = 0o700
_OWNERS_FILE = 0o600
_log = logging.getLogger(__name__)


class RunFolder:
    """A folder for its owner only, with subfolders for code, work, HOME and TMPDIR."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root.absolute()))
        self.work = self._make("work")
        self.home = self._make("home")
        self.temporary = self._make("tmp")
        self._code = self._make("code")
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
            for folder in (self.work, self.home, self.temporary, self._code, self.path):
                folder.rmdir()
        except OSError:
            return False
        return True

    def write(self, name: str, code: bytes) -> Path:
        file = self._code / name
        self._files.append(file)
        file.touch(_OWNERS_FILE)
        file.write_bytes(code)
        return file

    def _make(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(mode=_OWNER_ONLY)
        return folder


def remove_left_behind(root: Path) -> int:
    """Remove the folders of runs that a crash ended. Return their number."""
    left = sorted(root.glob(f"{_PREFIX}*"))
    for folder in left:
        _remove(folder)
    return len(left)


def _remove(folder: Path) -> None:
    try:
        until_free(lambda: _empty(folder))
        folder.rmdir()
    except OSError as error:
        # Only log the error. The run has ended, and its outcome must not depend on the cleanup.
        _log.warning("run_folder_left_behind", extra={"folder": str(folder), "error": str(error)})


def _empty(folder: Path) -> None:
    """Delete the content of a folder, at any depth and with any permissions.

    Inner folders move up before their parent is deleted. So no path exceeds the length limit, and
    the walk holds no descriptors.
    """
    folder.chmod(_OWNER_ONLY)
    moved = 0
    todo = _folders_left(str(folder))
    while todo:
        path = todo.pop()
        os.chmod(path, _OWNER_ONLY)
        for inner in _folders_left(path):
            up = f"{folder}/.{moved}"
            while os.path.lexists(up):
                moved += 1
                up = f"{folder}/.{moved}"
            os.chmod(inner, _OWNER_ONLY)  # a rename writes the `..` entry of the folder
            os.rename(inner, up)
            todo.append(up)
        os.rmdir(path)


def _folders_left(folder: str) -> list[str]:
    """Delete the files in a folder. Return the folders in it."""
    with os.scandir(folder) as entries:
        found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_folder in found:
        if not is_folder:
            os.unlink(path)
    return [path for path, is_folder in found if is_folder]
