"""The port for artifacts: their rows, the jobs that use them, and the list of their blobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.domain.artifacts import Artifact
from punctual.engine.ports.blobs import Blobs


class ArtifactUse(NamedTuple):
    """A job that used an artifact at `noted_at`. It may not use it any more."""

    artifact_id: str
    job_id: str
    noted_at: datetime


class ArtifactRows(Protocol):
    """Stores artifacts. Reads are strongly consistent, and leave out expired rows."""

    def load(self, tenant: str, artifact_ids: Sequence[str]) -> Mapping[str, Artifact]:
        """Return the artifacts that exist, by id."""

    def page(self, tenant: str, after: str | None, limit: int) -> Sequence[Artifact]:
        """Return artifacts with `artifact_id > after`, in the order of their ids."""

    def store(self, artifact: Artifact, expected_revision: str) -> bool:
        """Write the row if the stored revision is still the expected one.

        An empty text expects no row, or an expired one.
        """

    def remove(self, artifact: Artifact) -> None:
        """Remove the row unless another revision is stored."""

    def put_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None: ...

    def uses(
        self, tenant: str, artifact_id: str, after: str | None, limit: int
    ) -> Sequence[ArtifactUse]:
        """Return the uses with `job_id > after`, in the order of the job ids."""

    def first_uses(
        self, tenant: str, artifact_ids: Sequence[str], limit: int
    ) -> Sequence[Sequence[ArtifactUse]]:
        """Return up to `limit` uses of each artifact, in the order of the job ids."""

    def remove_uses(self, tenant: str, uses: Sequence[ArtifactUse]) -> None: ...


class StoredBlob(NamedTuple):
    name: str
    stored_at: datetime


class BlobPage(NamedTuple):
    blobs: Sequence[StoredBlob]
    cursor: str | None  # the name to continue after; None at the end


class ListedBlobs(Blobs, Protocol):
    """A blob store that also lists the blobs of artifacts."""

    def list_page(self, prefix: str, after: str | None) -> BlobPage:
        """Return a page of the blobs with this prefix, sorted by name."""
