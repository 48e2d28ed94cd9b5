"""A script's private folder: made for one run, gone after it whatever the script did there."""

import logging
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

_PREFIX = "run-"
_OWNER_ONLY = 0o700
_OWNERS_FILE = 0o600
_log = logging.getLogger(__name__)


class Sandbox:
    """A folder only its owner may enter, with one each for the code, work, HOME and TMPDIR."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root.absolute()))
        self.work = self._make("work")
        self.home = self._make("home")
        self.temporary = self._make("tmp")
        self._code = self._make("code")

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _remove(self._folder)

    def write(self, name: str, code: bytes) -> Path:
        file = self._code / name
        file.touch(_OWNERS_FILE)
        file.write_bytes(code)
        return file

    def _make(self, name: str) -> Path:
        folder = self._folder / name
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
        shutil.rmtree(folder)
    except OSError:
        _unlock(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        # The run itself is done, and its outcome should not depend on our housekeeping.
        _log.warning("sandbox_left_behind", extra={"folder": str(folder)})


def _unlock(folder: Path) -> None:
    """Undo a script's `chmod`, from the top: a locked folder hides what is in it."""
    folder.chmod(_OWNER_ONLY)
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(_OWNER_ONLY)
