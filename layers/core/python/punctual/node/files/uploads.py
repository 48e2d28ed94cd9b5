"""Uploads to the node: a signed link for each, and a file that grows until it is checked.

A link holds all that the server must know, so no row is needed. The key lives as long as the
process, so a restart ends all links.
"""

import hashlib
import hmac
import os
import shutil
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from punctual.domain.errors import PreconditionFailed, Unavailable
from punctual.engine.ports.clock import Clock
from punctual.node.files.durable import OWNER_FILE, sync_folder

UPLOAD_LINK_LIFETIME = timedelta(minutes=15)
UPLOAD_PATH = "/uploads/"  # below the root of the API
UPLOAD_KEY_BYTES = 32
MIN_FREE_DISK_BYTES = 512 * 1024 * 1024  # an upload leaves this much of the disk free
_UPLOAD_MAC_BYTES = 32


class UploadTicket(NamedTuple):
    """The right to store one blob, once. `sha256` is empty if any content will do."""

    name: str
    size: int
    sha256: str
    expires_at: datetime


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UploadTicket).decode


class UploadLinks:
    """Signs and reads the links of this process."""

    def __init__(self, clock: Clock, key: bytes | None = None) -> None:
        self._clock = clock
        self._key = key or os.urandom(UPLOAD_KEY_BYTES)

    def sign(self, name: str, size: int, sha256: str) -> str:
        """Return a text that stands for the right to this upload for 15 minutes."""
        ticket = UploadTicket(name, size, sha256, self._clock() + UPLOAD_LINK_LIFETIME)
        data = _encode(ticket)
        return urlsafe_b64encode(self._mac(data) + data).rstrip(b"=").decode()

    def read(self, text: str) -> UploadTicket | None:
        """Return the ticket, or None if the text was not signed here or has expired."""
        try:
            raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError:
            return None
        mac, data = raw[:_UPLOAD_MAC_BYTES], raw[_UPLOAD_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(data)):
            return None
        ticket = _decode(data)
        return ticket if self._clock() < ticket.expires_at else None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, b"upload\0" + data, "sha256")


class WrongContent(Exception):
    """The content is not the one that the link allows."""


class UploadSpace:
    """The disk space that uploads under way still need. Several threads may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved = 0
        self._lock = Lock()

    def reserve(self, size: int) -> None:
        """Reserve space. Raise `Unavailable` if the disk has too little."""
        with self._lock:
            free = shutil.disk_usage(self._folder).free - self._reserved
            if free - size < MIN_FREE_DISK_BYTES:
                raise Unavailable(
                    f"The disk of the node has no room for {size:,} bytes: free some space first."
                )
            self._reserved += size

    def release(self, size: int) -> None:
        with self._lock:
            self._reserved -= size


class UploadFile:
    """A file of one upload. The content is written in pieces, and has its name after `finish`."""

    def __init__(
        self, ticket: UploadTicket, path: Path, temporary_file: Path, space: UploadSpace
    ) -> None:
        if path.exists():
            raise _already_stored()
        self._ticket = ticket
        self._path = path
        self._temporary_file = temporary_file
        self._space = space
        self._digest = hashlib.sha256()
        self._size = 0
        self._is_closed = False
        # A cancelled request closes the file while another thread may still write to it.
        self._lock = Lock()
        space.reserve(ticket.size)
        self._reserved = ticket.size
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self._file = os.open(temporary_file, flags, OWNER_FILE)
        except BaseException:
            space.release(self._reserved)
            raise

    def write(self, data: bytes) -> None:
        with self._lock:
            if not self._is_closed:
                self._write(data)

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._ticket.size:
            raise WrongContent(f"The content is longer than {self._ticket.size:,} bytes.")
        self._digest.update(data)
        remaining = memoryview(data)
        while remaining:
            written = os.write(self._file, remaining)
            remaining = remaining[written:]
            self._release(written)

    def finish(self) -> None:
        """Check the content, sync it and give it its name. A blob that exists is not replaced."""
        with self._lock:
            if not self._is_closed:
                self._finish()

    def _finish(self) -> None:
        if self._size != self._ticket.size:
            raise WrongContent(f"The content has {self._size:,} bytes, not {self._ticket.size:,}.")
        if self._ticket.sha256 and self._digest.hexdigest() != self._ticket.sha256:
            raise WrongContent(f"The SHA-256 of the content is not {self._ticket.sha256}.")
        os.fsync(self._file)
        try:
            os.link(self._temporary_file, self._path)
        except FileExistsError:
            raise _already_stored() from None
        sync_folder(self._path.parent)

    def close(self) -> None:
        """Remove the temporary file, and return the space that was not used."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._release(self._reserved)
            os.close(self._file)
            with suppress(OSError):
                self._temporary_file.unlink()

    def _release(self, size: int) -> None:
        self._space.release(size)
        self._reserved -= size


def _already_stored() -> PreconditionFailed:
    return PreconditionFailed("This content is stored already, and a link stores it once.")
