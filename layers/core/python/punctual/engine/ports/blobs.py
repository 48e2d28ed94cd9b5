"""The port for outputs, logs and large payloads, and their content types."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.errors import Unavailable

JSON_MEDIA_TYPE = "application/json"
TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"


class Blob(NamedTuple):
    """A blob to store. With a fencing token it never replaces the blob of a later claim."""

    name: str
    data: bytes
    content_type: str
    token: int = 0


class BlobVersion(NamedTuple):
    """The content of a blob, and a text that another content does not have."""

    data: bytes
    version: str


class VersionedPut(NamedTuple):
    """A put that needs this version of the blob, or none ("")."""

    blob: Blob
    version: str


class Upload(NamedTuple):
    """One PUT that stores a blob: its URL, and the headers that the caller must send."""

    url: str
    headers: Mapping[str, str]


class Blobs(Protocol):
    def put(self, name: str, data: bytes, content_type: str, token: int = 0) -> None:
        """Store the blob whole or not at all.

        With a fencing token, raise `Unavailable` if a later claim has stored the blob.
        """

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        """Store each blob whole or not at all. Return None or the error for each."""

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None: ...

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]: ...

    def get_versions(self, names: Sequence[str]) -> Sequence[BlobVersion | None]: ...

    def put_versions(self, puts: Sequence[VersionedPut]) -> Sequence[bool | Unavailable]:
        """Store each blob if its present version is the named one. Return False for any other."""

    def delete(self, names: Sequence[str]) -> None: ...

    def link(self, name: str, content_type: str) -> str | None:
        """Return a URL that reads the blob for some minutes, or None if links are unsupported."""

    def upload_link(
        self, name: str, size: int, content_type: str, sha256: str = "", token: int = 0
    ) -> Upload:
        """Return a PUT of exactly `size` bytes, which is valid for 15 minutes.

        It fails if the blob exists, unless an earlier claim has uploaded it: `token` is the fencing
        token of the caller. `sha256` in hexadecimal also fixes the content.
        """

    def accept_upload(self, name: str, token: int) -> bool:
        """Return whether the claim with this token has uploaded the blob. It is then readable."""

    def list_names(self, folder: str) -> Sequence[str]:
        """Return the names below the folder in order. `folder` ends with a slash.

        Only outputs and the parts of a log can be listed.
        """
