"""Unpack the artifact of a script: one file, or a zip with an entry point and Python wheels.

The digest of an artifact is checked before. Its content is not trusted: a zip must not write
outside of the run's folder, and its size is limited while it is unpacked.
"""

import errno
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Protocol

from punctual.domain.errors import Unavailable
from punctual.domain.task_limits import BINARY_ENTRY_NAME
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.script.run_folder import RunFolder

ENTRY_NAMES = MappingProxyType(
    {"python": "main.py", "node": "main.js", "bash": "main.sh", "binary": BINARY_ENTRY_NAME}
)
MAX_UNPACKED_BYTES = 400 * 1024 * 1024
MAX_UNPACKED_FILES = 20_000
MAX_DIRECTORY_BYTES = 4 * 1024 * 1024  # of the list of files, which is read into memory
WHEELS_FOLDER = "wheels"

_COPY_BYTES = 256 * 1024
_FILE_MODE, _PROGRAM_MODE, _FOLDER_MODE = 0o600, 0o700, 0o700
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # the second one begins an empty zip
_END_RECORD, _END_RECORD_BYTES = b"PK\x05\x06", 22
_ZIP64_LOCATOR, _ZIP64_LOCATOR_BYTES = b"PK\x06\x07", 20
_MAX_COMMENT_BYTES = 65_535
_ENCRYPTED_FLAG = 0x1
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,  # an encrypted file; as NotImplementedError, an unknown way to compress
    ValueError,
)
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


class ArtifactSource(Protocol):
    """Finds the file of an attempt's artifact."""

    def fetch(self, attempt: Attempt, folder: RunFolder, /) -> Path:
        """Return the artifact's file, with its digest checked.

        A file in the run's folder belongs to the run. Another one is only read.
        """


class NoArtifacts:
    """The source of an installation without artifacts."""

    def fetch(self, _attempt: Attempt, _folder: RunFolder, /) -> Path:
        raise BadTask("Artifacts are not available in this installation")


def unpack_artifact(file: Path, runtime: str, folder: RunFolder) -> Path:
    """Return the entry file of the artifact, in the code folder of the run.

    Python wheels of a zip are unpacked too. `packages_folder` returns their place.
    """
    name = ENTRY_NAMES.get(runtime)
    if name is None:
        raise BadTask(f"There is no runtime {runtime!r}")
    entry = folder.code / name
    with _disk_errors():
        if not _is_zip(file):
            _take_file(file, entry, folder)
        else:
            quota = _UnpackQuota()
            _unpack_zip(file, folder.code, quota, lambda path: path)
            if file.is_relative_to(folder.path):
                file.unlink()
            if runtime == "python":
                _unpack_wheels(folder, quota)
    if not entry.is_file():
        raise BadTask(f"The artifact has no {name}: a zip for {runtime} needs it at its top")
    if runtime == "binary":
        entry.chmod(_PROGRAM_MODE)
    return entry


def packages_folder(folder: RunFolder) -> Path | None:
    """Return the folder of the unpacked wheels, or None if the artifact had none."""
    packages = folder.path / "packages"
    return packages if packages.is_dir() else None


class _UnpackQuota:
    """The bytes and files that an artifact and its wheels may still unpack."""

    def __init__(self) -> None:
        self._free_bytes = MAX_UNPACKED_BYTES
        self._free_files = MAX_UNPACKED_FILES

    def take_files(self, count: int) -> None:
        self._free_files -= count
        if self._free_files < 0:
            raise BadTask(f"The artifact has over {MAX_UNPACKED_FILES:,} files")

    def take_bytes(self, count: int) -> None:
        self._free_bytes -= count
        if self._free_bytes < 0:
            megabytes = MAX_UNPACKED_BYTES // 1024**2
            raise BadTask(f"The artifact has over {megabytes} MB when it is unpacked")


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable("The disk has no room for the artifact") from error
        if error.errno in _NAME_ERRORS:
            raise BadTask("The artifact has a file name that cannot be used") from error
        if error.errno == errno.EINVAL:  # a damaged zip names a place before its first byte
            raise BadTask("The artifact is damaged") from error
        raise


def _is_zip(file: Path) -> bool:
    """Return True if the file begins as a zip does. A program may have a zip at its end."""
    with file.open("rb") as source:
        return source.read(len(_END_RECORD)) in _ZIP_MAGICS


def _take_file(file: Path, entry: Path, folder: RunFolder) -> None:
    if file.is_relative_to(folder.path):
        file.rename(entry)
    else:
        shutil.copyfile(file, entry)
    entry.chmod(_FILE_MODE)


def _unpack_zip(
    file: Path,
    target: Path,
    quota: _UnpackQuota,
    place: Callable[[PurePosixPath], PurePosixPath | None],
) -> None:
    """Unpack the files below `target`. `place` returns the path of a file there, or None."""
    _check_directory(file)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            quota.take_files(len(infos))
            for info in infos:
                path = place(_checked_path(info))
                if path is not None:
                    _unpack_entry(archive, info, target / path, quota)
    except _ZIP_ERRORS as error:
        raise BadTask(f"The zip {file.name} is damaged: {error}") from error


def _check_directory(file: Path) -> None:
    """Raise BadTask if the list of files is too long to be read. `zipfile` has no limit."""
    with file.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        tail_bytes = _MAX_COMMENT_BYTES + _END_RECORD_BYTES + _ZIP64_LOCATOR_BYTES
        source.seek(max(0, size - tail_bytes))
        tail = source.read()
    end = len(tail) - _END_RECORD_BYTES
    # The search of `zipfile`: first a record without a comment, then the last record.
    if not (tail[end:].startswith(_END_RECORD) and tail.endswith(b"\0\0")):
        end = tail.rfind(_END_RECORD)
    if end < 0:
        raise BadTask(f"The zip {file.name} is damaged: its list of files is missing")
    if tail[max(0, end - _ZIP64_LOCATOR_BYTES) : end].startswith(_ZIP64_LOCATOR):
        raise BadTask(f"The zip {file.name} has the zip64 format, which artifacts must not have")
    if int.from_bytes(tail[end + 12 : end + 16], "little") > MAX_DIRECTORY_BYTES:
        raise BadTask(f"The list of files of the zip {file.name} is too long")


def _checked_path(info: zipfile.ZipInfo) -> PurePosixPath:
    name = info.filename
    path = PurePosixPath(name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise BadTask(f"The artifact has a file outside of its folder: {name!r}")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadTask(f"{name!r} in the artifact must be a file or a folder, for example no link")
    if info.flag_bits & _ENCRYPTED_FLAG:
        raise BadTask(f"{name!r} in the artifact is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadTask(f"{name!r} in the artifact must be stored or deflated")
    return path


def _unpack_entry(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, quota: _UnpackQuota
) -> None:
    if info.is_dir():
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        return
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    is_program = (info.external_attr >> 16) & stat.S_IXUSR
    mode = _PROGRAM_MODE if is_program else _FILE_MODE
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as target, archive.open(info) as source:
        while data := source.read(_COPY_BYTES):
            quota.take_bytes(len(data))
            target.write(data)


def _unpack_wheels(folder: RunFolder, quota: _UnpackQuota) -> None:
    """Unpack the wheels, because Python cannot import compiled modules from a zip."""
    packages = folder.path / "packages"
    for wheel in sorted((folder.code / WHEELS_FOLDER).glob("*.whl")):
        packages.mkdir(mode=_FOLDER_MODE, exist_ok=True)

        def place(path: PurePosixPath) -> PurePosixPath | None:
            return _place_in_packages(path, packages)

        _unpack_zip(wheel, packages, quota, place)


def _place_in_packages(path: PurePosixPath, packages: Path) -> PurePosixPath | None:
    """Return the place of a wheel's file, or None for scripts, headers and repeated files."""
    if path.parts[0].endswith(".data"):
        if len(path.parts) < 3 or path.parts[1] not in ("purelib", "platlib"):
            return None
        path = PurePosixPath(*path.parts[2:])
    # Wheels of one namespace repeat some files. The first one stays.
    return None if (packages / path).is_file() else path
