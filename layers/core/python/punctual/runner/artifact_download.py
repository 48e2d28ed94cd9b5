"""Downloads the artifact of a run into its folder and checks its digest."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from punctual.domain.errors import Unavailable
from punctual.runner.claim_client import RETRIED_STATUSES, Repeater
from punctual.runner.http_client import HTTP_OK, CallFailed, HttpClient
from punctual.tasks.contract import Attempt, BadTask, StopRequest
from punctual.tasks.script.run_folder import RunFolder

MAX_ARTIFACT_BYTES = 250 * 1024 * 1024  # as `domain/artifacts.py` says, without its imports
MAX_DOWNLOAD_SECONDS = 120.0


class Interrupted(Exception):
    """The run was stopped while its artifact was downloaded."""


class ArtifactDownload:
    """Finds the artifact of a run by the address in its task."""

    def __init__(
        self,
        http: HttpClient,
        stop: StopRequest,
        monotonic: Callable[[], float],
        repeater: Repeater,
    ) -> None:
        self._http = http
        self._stop = stop
        self._monotonic = monotonic
        self._repeater = repeater

    def fetch(self, attempt: Attempt, folder: RunFolder, /) -> Path:
        artifact = attempt.task.get("artifact")
        if artifact is None:
            raise BadTask("The task has neither code nor an artifact")
        size, digest = int(artifact["size"]), str(artifact["sha256"])
        if size > MAX_ARTIFACT_BYTES:
            raise BadTask(f"The artifact has over {MAX_ARTIFACT_BYTES // 1024**2} MB")
        file = folder.path / "artifact"
        deadline = self._monotonic() + MAX_DOWNLOAD_SECONDS
        try:
            self._repeater.until(
                lambda: deadline,
                lambda: self._download(artifact["url"], file, size, digest, deadline),
            )
        except CallFailed as error:
            raise Unavailable(f"The artifact could not be read: {error}") from error
        return file

    def _download(self, url: str, file: Path, size: int, digest: str, deadline: float) -> None:
        with file.open("wb") as target:
            blocks = _CheckedBlocks(target, size, self._raise_if_over(deadline))
            status = self._http.download(url, blocks.take)
            if status in RETRIED_STATUSES:
                raise CallFailed(f"the store answered HTTP {status}")
            if status != HTTP_OK:
                raise Unavailable(f"The artifact could not be read: HTTP {status}")
        if blocks.free_bytes:
            raise CallFailed("the answer ended early")
        if blocks.digest.hexdigest() != digest:
            raise Unavailable("The artifact could not be read: its digest is wrong")

    def _raise_if_over(self, deadline: float) -> Callable[[], None]:
        def check() -> None:
            if self._stop.reason():
                raise Interrupted
            if self._monotonic() > deadline:
                raise CallFailed(f"it took over {MAX_DOWNLOAD_SECONDS:g} s")

        return check


class _CheckedBlocks:
    """Writes blocks to a file, at most `size` bytes, and computes their digest."""

    def __init__(self, target: BinaryIO, size: int, check: Callable[[], None]) -> None:
        self._target = target
        self.free_bytes = size
        self._check = check
        self.digest = hashlib.sha256()

    def take(self, data: bytes) -> None:
        self._check()
        self.free_bytes -= len(data)
        if self.free_bytes < 0:
            raise Unavailable("The artifact could not be read: it is larger than it should be")
        self.digest.update(data)
        self._target.write(data)
