"""Remove the bytes of deleted artifacts, and of uploads without a row."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.artifacts import (
    ARTIFACT_PREFIX,
    ARTIFACT_REMOVAL_DELAY,
    PENDING_ARTIFACT_RETENTION,
    Artifact,
    ArtifactStatus,
    artifact_id_of,
    parse_artifact_blob_name,
)
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.tenants.artifact_rows import (
    ArtifactRows,
    ArtifactUse,
    ListedBlobs,
    StoredBlob,
)
from punctual.engine.queries.artifacts import MAX_READ_USES, ArtifactQueries


class CleanedArtifacts(NamedTuple):
    removed: int
    cursor: str | None  # the blob to continue after; None at the end


class _Use(Enum):
    """UNKNOWN: a request that creates a job is under way, or too many uses were read."""

    USED = 1
    UNUSED = 2
    UNKNOWN = 3


class ArtifactCleanup:
    """Walks over the blobs of artifacts and compares each with its row.

    - An uploaded artifact becomes STORED, so that its row does not expire.
    - A deleted one is removed after `ARTIFACT_REMOVAL_DELAY`, or becomes STORED if a job uses it.
    - A blob without a row is removed after `PENDING_ARTIFACT_RETENTION`.

    Before the bytes go, the row is REMOVING. No upload is offered meanwhile.
    """

    def __init__(
        self,
        rows: ArtifactRows,
        blobs: ListedBlobs,
        queries: ArtifactQueries,
        clock: Clock,
        new_id: NewId,
    ) -> None:
        self._rows = rows
        self._blobs = blobs
        self._queries = queries
        self._clock = clock
        self._new_id = new_id

    def step(self, cursor: str | None) -> CleanedArtifacts:
        """Clean one page of blobs."""
        now, page = self._clock(), self._blobs.list_page(ARTIFACT_PREFIX, cursor)
        return CleanedArtifacts(sum(self._clean(blob, now) for blob in page.blobs), page.cursor)

    def _clean(self, blob: StoredBlob, now: datetime) -> bool:
        """Return whether the blob was removed."""
        owner = parse_artifact_blob_name(blob.name)
        if owner is None:
            return False
        tenant, digest = owner
        artifact_id = artifact_id_of(tenant, digest)
        artifact = self._rows.load(tenant, [artifact_id]).get(artifact_id)
        if artifact is None:
            if blob.stored_at > now - PENDING_ARTIFACT_RETENTION:
                return False
            orphan = Artifact(
                *(tenant, artifact_id, digest, 0, "", ArtifactStatus.REMOVING),
                *(now, "", self._new_id(), now),
            )
            return self._rows.store(orphan, "") and self._remove(orphan)
        if artifact.status is ArtifactStatus.REMOVING:
            return self._remove(artifact)
        if artifact.status is ArtifactStatus.PENDING:
            self._store(artifact, self._queries.with_upload(artifact))
            return False
        use = self._find_use(artifact, now)
        if artifact.status is ArtifactStatus.STORED or not _is_removable(artifact, now):
            return False
        if use is _Use.USED:
            self._store(artifact, replace(artifact, status=ArtifactStatus.STORED, deleted_at=None))
        if use is not _Use.UNUSED:
            return False
        removing = replace(
            artifact,
            status=ArtifactStatus.REMOVING,
            deleted_at=now,
            revision=self._new_id(),
        )
        return self._rows.store(removing, artifact.revision) and self._remove(removing)

    def _find_use(self, artifact: Artifact, now: datetime) -> "_Use":
        """Return whether a job uses the artifact. Remove the noted uses of former jobs."""
        stale: list[ArtifactUse] = []
        answer = _Use.UNUSED
        for checked in self._queries.checked_uses(artifact.tenant, artifact.artifact_id):
            if checked.job is not None:
                answer = _Use.USED
                break
            if checked.use.noted_at > now - ARTIFACT_REMOVAL_DELAY:
                answer = _Use.UNKNOWN
                continue
            stale.append(checked.use)
            if len(stale) >= MAX_READ_USES:
                answer = _Use.UNKNOWN
                break
        self._remove_uses(artifact, stale)
        return answer

    def _remove_uses(self, artifact: Artifact, stale: Sequence[ArtifactUse]) -> None:
        if stale:
            self._rows.remove_uses(artifact.tenant, stale)

    def _store(self, artifact: Artifact, new: Artifact) -> None:
        self._rows.store(replace(new, revision=self._new_id()), artifact.revision)

    def _remove(self, artifact: Artifact) -> bool:
        self._blobs.delete([artifact.blob_name])
        self._rows.remove(artifact)
        return True


def _is_removable(artifact: Artifact, now: datetime) -> bool:
    deleted_at = artifact.deleted_at
    return deleted_at is not None and deleted_at <= now - ARTIFACT_REMOVAL_DELAY
