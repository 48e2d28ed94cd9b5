"""A script's private folder: made for one run, gone after it whatever the script did there."""

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
    """A folder only its owner may enter, with one each for the code, work, HOME and TMPDIR."""

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
        """Remove what this object made, which needs no open file; return whether that was all."""
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
    """Remove the folders of runs that a crash cut short; how many there were."""
    left = sorted(root.glob(f"{_PREFIX}*"))
    for folder in left:
        _remove(folder)
    return len(left)


def _remove(folder: Path) -> None:
    try:
        until_free(lambda: _empty(folder))
        folder.rmdir()
    except OSError as error:
        # The run itself is done, and its outcome should not depend on our housekeeping.
        _log.warning("run_folder_left_behind", extra={"folder": str(folder), "error": str(error)})


def _empty(folder: Path) -> None:
    """Delete what is in a folder, however deep a script nested it and however it closed it.

    Folders within folders are moved up before their parent is deleted. So no path grows longer
    than a path may be, and no descriptors are held on the way down.
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
            os.chmod(inner, _OWNER_ONLY)  # moving a folder changes it
            os.rename(inner, up)
            todo.append(up)
        os.rmdir(path)


def _folders_left(folder: str) -> list[str]:
    """Delete the files in a folder; the folders in it."""
    with os.scandir(folder) as entries:
        found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_folder in found:
        if not is_folder:
            os.unlink(path)
    return [path for path, is_folder in found if is_folder]
