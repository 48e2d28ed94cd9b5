"""The port for outputs, logs and large payloads, and their content types."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.errors import Unavailable

JSON_MEDIA_TYPE = "application/json"
TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"


class Blob(NamedTuple):
    name: str
    data: bytes
    content_type: str


class Upload(NamedTuple):
    """One PUT that stores a blob: its URL, and the headers that the caller must send."""

    url: str
    headers: Mapping[str, str]


class Blobs(Protocol):
    def put(self, name: str, data: bytes, content_type: str) -> None:
        """Store the blob whole or not at all."""

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        """Store each blob whole or not at all. Return None or the error for each."""

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None: ...

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]: ...

    def delete(self, names: Sequence[str]) -> None: ...

    def link(self, name: str, content_type: str) -> str | None:
        """Return a URL that reads the blob for some minutes, or None if links are unsupported."""

    def upload_link(self, name: str, size: int, content_type: str, sha256: str = "") -> Upload:
        """Return a PUT of exactly `size` bytes, which is valid for 15 minutes.

        It fails if the blob exists. `sha256` in hexadecimal also fixes the content.
        """

    def list_names(self, folder: str) -> Sequence[str]:
        """Return the names below the folder in order. `folder` ends with a slash.

        Only outputs and the parts of a log can be listed.
        """
