"""The calls on artifacts."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from punctual.client.call_steps import ClientSettings, Pause, Steps, Stream, send_request
from punctual.client.calls.paging import stream_pages
from punctual.client.errors import Misuse, Unexpected
from punctual.client.installation import Artifact
from punctual.client.model import convert_model, decode_model
from punctual.client.wire import (
    FILE_PIECE_BYTES,
    Repeat,
    Request,
    RequestFile,
    build_path,
    encode_body,
)

_STORED_STATUSES = frozenset({200, 409, 412})  # 409 and 412: another upload stored the content


def upload(
    settings: ClientSettings,
    file: str | os.PathLike[str],
    *,
    name: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Steps[Artifact]:
    """Upload a file and return its artifact. Content that is stored already is not sent again.

    `on_progress` gets the number of bytes that were sent so far. The file is never held in memory
    as a whole.
    """
    path = Path(file)
    try:
        size = path.stat().st_size
        digest = yield from _digest(path)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}.") from error
    fields = {"sha256": digest, "size": size, "name": name or path.name}
    request = Request("POST", "/artifacts", body=encode_body(fields), repeat=Repeat.SAFE)
    artifact = decode_model(Artifact, (yield from send_request(settings, request)))
    if artifact.upload_url is None:
        return artifact
    put = Request(
        "PUT",
        artifact.upload_url,
        headers=tuple(artifact.upload_headers.items()),
        repeat=Repeat.SAFE,
        expected=_STORED_STATUSES,
        with_token=False,
        file=RequestFile(path, on_progress),
    )
    yield from send_request(settings, put)
    stored = yield from get(settings, artifact.artifact_id)
    if stored.status != "STORED":
        raise Unexpected(f"The upload of {path} was answered, but its content is not stored.")
    return stored


def list_artifacts(settings: ClientSettings, *, limit: int | None = None) -> Stream[Artifact]:
    """Yield the artifacts, in the order of their ids, each with up to 5 of the jobs that use it."""
    return stream_pages(
        settings, "/artifacts", (), "artifacts", lambda value: convert_model(Artifact, value), limit
    )


def get(settings: ClientSettings, artifact_id: str) -> Steps[Artifact]:
    """Return an artifact, with up to 100 of the jobs that use it."""
    request = Request("GET", build_path("artifacts", artifact_id), repeat=Repeat.READS)
    return decode_model(Artifact, (yield from send_request(settings, request)))


def delete(settings: ClientSettings, artifact_id: str) -> Steps[Artifact]:
    """Delete an artifact. `Conflict` means that jobs use it."""
    request = Request("DELETE", build_path("artifacts", artifact_id))
    return decode_model(Artifact, (yield from send_request(settings, request)))


def _digest(path: Path) -> Steps[str]:
    """Return the digest of a file. Other work of an event loop goes on between the pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while piece := content.read(FILE_PIECE_BYTES):
            digest.update(piece)
            yield Pause(0)
    return digest.hexdigest()
