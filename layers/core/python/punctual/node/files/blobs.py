"""Blobs as files. Each is written to a temporary name, synced, then renamed."""

import os
import re
from base64 import b32decode, b32encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import count
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from punctual.domain.artifacts import ARTIFACT_PREFIX
from punctual.domain.errors import Unavailable
from punctual.engine.commands.definitions_store import PAYLOAD_PREFIX
from punctual.engine.ports.blobs import Blob, BlobVersion, Upload, VersionedPut
from punctual.engine.ports.tenants.artifact_rows import BlobPage, StoredBlob
from punctual.node.files.durable import (
    OWNER_FILE,
    OWNER_FOLDER,
    make_folder,
    rename_durably,
    sync_folder,
    write_durably,
)
from punctual.node.files.uploads import (
    UPLOAD_PATH,
    UploadFile,
    UploadLinks,
    UploadSpace,
    UploadTicket,
)

PayloadCursor = tuple[str, str]  # a folder of payloads, and a file in it
_MAX_FILE_NAME_CHARACTERS = 240
_LIST_PAGE_SIZE = 100
_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FOLDER = r"(/[A-Za-z0-9][A-Za-z0-9._-]{0,127})"
# The forms of `output_key` and `log_part_key` in `run_results`.
_LOG_PARTS = rf"logs{_FOLDER}{{3}}/[0-9]{{1,9}}\.parts/"
_LOG_PART = r"[0-9]{1,18}-[0-9]{2}"
_ARTIFACT_NAME = rf"artifacts{_FOLDER}/[0-9a-f]{{64}}"
_OUTPUT_PREFIX = "outputs/"
_PATH_NAME = re.compile(rf"outputs{_FOLDER}{{4}}|{_LOG_PARTS}{_LOG_PART}|{_ARTIFACT_NAME}")
_LISTED_FOLDER = re.compile(rf"outputs{_FOLDER}{{1,3}}/|{_LOG_PARTS}")


class StoredPayload(NamedTuple):
    """A payload's name, and the time at which it was stored."""

    name: str
    stored_at: datetime


class FileBlobs:
    """Stores blobs as files. Several threads may use it.

    The name of an output, an artifact or a log's part is its path below the folder. Every other
    file is named by a hash of the blob's name. So no name leads out of the folder, is too long for
    it, or collides with another where case is ignored.

    Payloads have a folder of their own and file names that encode the blob's name. So payloads
    without a row can be found.
    """

    def __init__(self, folder: Path, upload_links: UploadLinks | None = None) -> None:
        self._folder = folder
        self._upload_links = upload_links
        self._payloads = folder / "payloads"
        make_folder(self._payloads)
        self._temporary_folder = folder / "new"
        self._temporary_names = count()  # its next() is atomic
        # Prevents the removal of a folder while another is created in it.
        self._folder_changes = Lock()
        make_folder(self._temporary_folder)
        # An earlier process was killed while it wrote these.
        for file in self._temporary_folder.iterdir():
            file.unlink()
        self._upload_space = UploadSpace(folder)

    def put(self, name: str, data: bytes, content_type: str, token: int = 0) -> None:  # noqa: ARG002
        """Store the file. The node's one loop orders the ends of claims, so no token is checked."""
        path = self._path(name)
        temporary_file = self._temporary_folder / str(next(self._temporary_names))
        with unavailable_on_os_error():
            self._make_folders(path)
            write_durably(path, data, temporary_file)

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        return [self._try_put(blob) for blob in blobs]

    def _try_put(self, blob: Blob) -> Unavailable | None:
        try:
            self.put(*blob)
        except Unavailable as error:
            return error
        return None

    def open_log(self, name: str) -> "LogFile":
        """Open a blob that grows. It stays open until `LogFile.end` or `LogFile.discard`."""
        path = self._path(name)
        with unavailable_on_os_error():
            self._make_folders(path)
            return LogFile(path)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        with unavailable_on_os_error():
            try:
                with self._path(name).open("rb") as file:
                    file.seek(start)
                    return file.read() if end is None else file.read(max(0, end - start))
            except FileNotFoundError:
                return None

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        return [self.get(name) for name in names]

    def get_versions(self, names: Sequence[str]) -> Sequence[BlobVersion | None]:
        return [_version_of(self.get(name)) for name in names]

    def put_versions(self, puts: Sequence[VersionedPut]) -> Sequence[bool | Unavailable]:
        """Put files in the node's one loop, which alone changes the parts of logs."""
        return [self._put_version(put) for put in puts]

    def _put_version(self, put: VersionedPut) -> bool | Unavailable:
        try:
            stored = _version_of(self.get(put.blob.name))
            if (stored.version if stored else "") != put.version:
                return False
            self.put(*put.blob)
        except Unavailable as error:
            return error
        return True

    def delete(self, names: Sequence[str]) -> None:
        """Delete files. The uploads of an output go with it."""
        with unavailable_on_os_error():
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                if name.startswith(_OUTPUT_PREFIX) and path.parent.is_dir():
                    for upload in path.parent.glob(f"{path.name}.*"):
                        upload.unlink(missing_ok=True)
                if _PATH_NAME.fullmatch(name):
                    own_folders = name.count("/") - 2  # below the tenant's folder
                    with self._folder_changes:
                        _remove_if_empty(*list(path.parents)[:own_folders])

    def list_payloads(
        self, cursor: PayloadCursor | None, limit: int
    ) -> tuple[list[StoredPayload], PayloadCursor | None]:
        """Return some payloads in a fixed order, and the cursor to continue from.

        The cursor is None at the end.
        """
        start: PayloadCursor = cursor or ("", "")
        with unavailable_on_os_error():
            for folder in sorted(os.listdir(self._payloads)):
                if folder < start[0]:
                    continue
                last_file = start[1] if folder == start[0] else ""
                files = sorted(
                    name for name in os.listdir(self._payloads / folder) if name > last_file
                )
                if files:
                    payloads = [self._stat_payload(folder, file) for file in files[:limit]]
                    return [payload for payload in payloads if payload is not None], (
                        folder,
                        files[:limit][-1],
                    )
        return [], None

    def _stat_payload(self, folder: str, file: str) -> StoredPayload | None:
        try:
            stored_at = (self._payloads / folder / file).stat().st_mtime
        except FileNotFoundError:
            return None  # removed since the listing
        return StoredPayload(_decode_name(file), datetime.fromtimestamp(stored_at, UTC))

    def link(self, name: str, content_type: str) -> str | None:  # noqa: ARG002 no server serves files
        return None

    def upload_link(
        self, name: str, size: int, content_type: str, sha256: str = "", token: int = 0
    ) -> Upload:
        """Return a PUT to this node. The URL is a path below the root of the API.

        The upload of a claim has a file of its own until `accept_upload`.
        """
        name = _upload_name(name, token)
        if self._upload_links is None:
            raise Unavailable("This node takes no uploads by link.")
        if not _PATH_NAME.fullmatch(name):
            raise ValueError(f"the blob {name!r} has no path of its own")
        url = f"{UPLOAD_PATH}{self._upload_links.sign(name, size, sha256)}"
        return Upload(url, {"Content-Length": str(size), "Content-Type": content_type})

    def accept_upload(self, name: str, token: int) -> bool:
        """Give the upload of a claim the name of the output too. A repeated call does the same."""
        upload, path = self._path(_upload_name(name, token)), self._path(name)
        temporary_file = self._temporary_folder / str(next(self._temporary_names))
        with unavailable_on_os_error():
            try:
                os.link(upload, temporary_file)
            except FileNotFoundError:
                return False
            rename_durably(temporary_file, path)
            temporary_file.unlink(missing_ok=True)  # a rename to the same file does nothing
        return True

    def read_upload_link(self, text: str) -> UploadTicket | None:
        """Return what a link allows, or None if it is not valid."""
        return None if self._upload_links is None else self._upload_links.read(text)

    def open_upload(self, ticket: UploadTicket) -> UploadFile:
        """Open the file of an upload. It stays open until `UploadFile.close`."""
        path = self._path(ticket.name)
        temporary_file = self._temporary_folder / str(next(self._temporary_names))
        with unavailable_on_os_error():
            self._make_folders(path)
            return UploadFile(ticket, path, temporary_file, self._upload_space)

    def artifact_path(self, name: str) -> Path:
        """Return the file of an artifact, for a run of this node."""
        return self._path(name)

    def list_page(self, prefix: str, after: str | None) -> BlobPage:
        """Return a page of the artifacts, by tenant and digest."""
        if prefix != ARTIFACT_PREFIX:
            raise ValueError(f"the blobs with the prefix {prefix!r} cannot be listed")
        top = self._folder / ARTIFACT_PREFIX
        with unavailable_on_os_error():
            for tenant in sorted(os.listdir(top)) if top.is_dir() else ():
                names = [f"{prefix}{tenant}/{file}" for file in os.listdir(top / tenant)]
                later = sorted(name for name in names if after is None or name > after)
                blobs = [blob for name in later[:_LIST_PAGE_SIZE] if (blob := self._stat(name))]
                if later:
                    return BlobPage(blobs, later[:_LIST_PAGE_SIZE][-1])
        return BlobPage([], None)

    def _stat(self, name: str) -> StoredBlob | None:
        try:
            stored_at = (self._folder / name).stat().st_mtime
        except FileNotFoundError:
            return None  # removed since the listing
        return StoredBlob(name, datetime.fromtimestamp(stored_at, UTC))

    def list_names(self, folder: str) -> Sequence[str]:
        if not _LISTED_FOLDER.fullmatch(folder):
            raise ValueError(f"the blobs below {folder!r} have no common folder")
        top = self._folder / folder
        with unavailable_on_os_error():
            files = [path for path in top.rglob("*") if path.is_file()] if top.is_dir() else []
        return sorted(path.relative_to(self._folder).as_posix() for path in files)

    def _path(self, name: str) -> Path:
        if _PATH_NAME.fullmatch(name):
            return self._folder / name
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        if (
            name.startswith(PAYLOAD_PREFIX)
            and len(file_name := _encode_name(name)) <= _MAX_FILE_NAME_CHARACTERS
        ):
            return self._payloads / digest[:2] / file_name
        return self._folder / digest[:2] / digest[2:]

    def _make_folders(self, path: Path) -> None:
        """Create the file's folders, below `_folder` only.

        A deleted data folder stays deleted.

        A folder that cannot be synced is removed again, so that the next attempt syncs it.
        """
        with self._folder_changes:
            missing = self._missing_folders(path.parent)
            for count, folder in enumerate(missing, start=1):
                folder.mkdir(mode=OWNER_FOLDER)
                if count < len(missing):
                    _sync_new_folder(folder)
        if missing:  # The run has a folder of its own, so no other thread waits for this sync.
            _sync_new_folder(path.parent)

    def _missing_folders(self, folder: Path) -> list[Path]:
        """Return the folders to create, the outermost first."""
        missing: list[Path] = []
        while folder != self._folder and not folder.is_dir():
            missing.insert(0, folder)
            folder = folder.parent
        return missing


def _version_of(data: bytes | None) -> BlobVersion | None:
    return None if data is None else BlobVersion(data, blake2b(data, digest_size=20).hexdigest())


def _upload_name(name: str, token: int) -> str:
    return f"{name}.{token}" if token else name


def _sync_new_folder(folder: Path) -> None:
    """Sync the name of a new folder to the disk, or remove the folder."""
    try:
        sync_folder(folder.parent)
    except OSError:
        _remove_if_empty(folder)
        raise


def _remove_if_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # it holds files or is gone
            folder.rmdir()


def _encode_name(name: str) -> str:
    """Return the file name of a payload, in lower case because some file systems ignore case."""
    return b32encode(name.removeprefix(PAYLOAD_PREFIX).encode()).decode().lower().rstrip("=")


def _decode_name(file_name: str) -> str:
    padded_name = file_name.upper() + "=" * (-len(file_name) % 8)
    return PAYLOAD_PREFIX + b32decode(padded_name).decode()


class LogFile:
    """A log that grows. Readers see each write at once, also after the process was killed.

    A power cut may lose writes before `end`. Only the constructor opens files, so no method fails
    for lack of descriptors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = os.open(path.parent, os.O_RDONLY)
        try:
            self._file = os.open(path, _APPEND_FLAGS, OWNER_FILE)
        except BaseException:
            os.close(self._folder)
            raise

    def write(self, data: bytes) -> None:
        remaining = memoryview(data)
        with unavailable_on_os_error():
            while remaining:
                remaining = remaining[os.write(self._file, remaining) :]

    def end(self) -> int:
        """Sync the log before a row names it. Return its size. An empty log is removed."""
        try:
            with unavailable_on_os_error():
                size = os.fstat(self._file).st_size
                if size:
                    os.fsync(self._file)
                    os.fsync(self._folder)
                else:
                    self._path.unlink(missing_ok=True)
                return size
        finally:
            self._close()

    def discard(self) -> None:
        """Remove the log of an attempt that did not begin."""
        try:
            with unavailable_on_os_error():
                self._path.unlink(missing_ok=True)
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._file)
        os.close(self._folder)


@contextmanager
def unavailable_on_os_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"The data folder does not answer: {error.strerror}.") from error
