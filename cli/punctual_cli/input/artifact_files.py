"""Files to upload as artifacts. A folder becomes one zip, with the same bytes each time."""

import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from punctual_cli.errors import CommandError

MAX_PACKED_FILES = 20_000
_LEFT_OUT = frozenset({"__pycache__", ".git", ".DS_Store", ".venv", "node_modules"})
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest of the format
_FILE_MODE, _PROGRAM_MODE = 0o100644, 0o100755
_PIECE_BYTES = 1024 * 1024


class ArtifactFile(NamedTuple):
    """A file to upload. `name` is the name of the artifact, and `path` may be temporary."""

    path: Path
    name: str
    size: int
    sha256: str


@contextmanager
def open_artifact(path: Path) -> Iterator[ArtifactFile]:
    """Yield the file to upload. A folder becomes a zip, which is removed at the end."""
    if not path.is_dir():
        if not path.is_file():
            raise CommandError(f"{path} is not a file or a folder.")
        yield _artifact_file(path, path.name)
        return
    with tempfile.TemporaryDirectory(prefix="punctual-") as folder:
        target = Path(folder) / "artifact.zip"
        pack_folder(path, target)
        yield _artifact_file(target, f"{path.resolve().name or 'artifact'}.zip")


def pack_folder(folder: Path, target: Path) -> None:
    """Write a zip of the folder. Equal files give equal bytes, on each machine.

    The files are sorted and have one time. They are not compressed, because libraries differ in how
    they compress.
    """
    files = sorted(_files(folder), key=lambda file: file.relative_to(folder).as_posix())
    if not files:
        raise CommandError(f"{folder} has no files.")
    if len(files) > MAX_PACKED_FILES:
        raise CommandError(f"{folder} has over {MAX_PACKED_FILES:,} files. Name a smaller folder.")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            info = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _ZIP_TIME)
            is_program = file.stat().st_mode & 0o100
            info.external_attr = (_PROGRAM_MODE if is_program else _FILE_MODE) << 16
            info.create_system = 3  # Unix, also where the zip is made on another system
            info.file_size = file.stat().st_size
            with file.open("rb") as source, archive.open(info, "w") as entry:
                while piece := source.read(_PIECE_BYTES):
                    entry.write(piece)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.suffix == ".pyc":
            continue
        if path.is_symlink():
            raise CommandError(f"{path} is a link. An artifact holds files and folders only.")
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


def _artifact_file(path: Path, name: str) -> ArtifactFile:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    if not size:
        raise CommandError(f"{path} is empty.")
    return ArtifactFile(path, name, size, digest.hexdigest())


def size_text(size: int) -> str:
    """Return a size for people.

    >>> size_text(900), size_text(1_500_000)
    ('900 bytes', '1.5 MB')
    """
    return f"{size:,} bytes" if size < 100_000 else f"{size / 1_000_000:,.1f} MB"
