"""Create and delete artifacts, and note which jobs use them.

The rule for a delete that meets a new job:

1. A job may use an artifact only while it is STORED. The use is noted before the job is created.
2. A delete makes an unused artifact DELETED. From then on no job may begin to use it.
3. `ARTIFACT_REMOVAL_DELAY` later each request that saw it STORED has ended. The cleanup then reads
   the uses again. If a job uses the artifact, it becomes STORED again, else its bytes go.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from punctual.domain.artifacts import (
    ARTIFACT_CONTENT_TYPE,
    ARTIFACT_REMOVAL_DELAY,
    MEGABYTE_BYTES,
    Artifact,
    ArtifactStatus,
    artifact_id_of,
)
from punctual.domain.errors import Conflict, FieldError, Invalid, LimitExceeded, Unavailable
from punctual.engine.commands.audit import ARTIFACT_CREATE, ARTIFACT_DELETE
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.blobs import Blobs, Upload
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.ports.tenants.artifact_rows import ArtifactRows, ArtifactUse
from punctual.engine.queries.artifacts import ArtifactQueries, UsingJob
from punctual.engine.quotas.limits import unlimited

ARTIFACT_RETRY_SECONDS = 60.0  # only a delete or an expired upload makes room
MAX_NAMED_JOBS = 3  # jobs that the refusal of a delete names
MAX_STALE_USES = 1_000  # uses of former jobs that one delete removes
MAX_ARTIFACT_SWAPS = 5
_PAGE_SIZE = 500


class CreatedArtifact(NamedTuple):
    """An artifact, and its upload unless the content is stored already."""

    artifact: Artifact
    upload: Upload | None


class WantedArtifact(NamedTuple):
    """An artifact that the task of a job names. `job_id` is that of the job."""

    job_id: str
    artifact_id: str
    runtime: str


class Artifacts:
    """Creates and deletes artifacts. `architectures` are those of binaries that can run here."""

    def __init__(
        self,
        rows: ArtifactRows,
        blobs: Blobs,
        queries: ArtifactQueries,
        audit: AuditLog,
        clock: Clock,
        new_id: NewId,
        limits_of: LimitsOf = unlimited,
        architectures: frozenset[str] = frozenset(),
    ) -> None:
        self.queries = queries
        self._rows = rows
        self._blobs = blobs
        self._audit = audit
        self._clock = clock
        self._new_id = new_id
        self._limits_of = limits_of
        self._architectures = architectures

    def create(
        self, tenant: str, sha256: str, size: int, name: str, actor: Actor
    ) -> CreatedArtifact:
        """Return the artifact of a content, with an upload unless the content is stored."""
        artifact_id, now = artifact_id_of(tenant, sha256), self._clock()
        for _ in range(MAX_ARTIFACT_SWAPS):
            row = self._rows.load(tenant, [artifact_id]).get(artifact_id)
            stored = None if row is None else self._confirmed(row)
            if stored is not None and stored.status is ArtifactStatus.REMOVING:
                raise Unavailable("This artifact is being removed: try again in a minute.")
            if stored is not None and stored.status is ArtifactStatus.STORED:
                _check_size(stored, size)
                return CreatedArtifact(stored, None)
            if stored is None or not stored.counts:
                self._check_limits(tenant, size)
            new = Artifact(
                *(tenant, artifact_id, sha256, size, name, ArtifactStatus.PENDING),
                *(now, actor.caller, self._new_id()),
            )
            new = self.queries.with_upload(new)
            if stored is None or not stored.counts:
                note = Note(actor, ARTIFACT_CREATE, now, after=_audited_fields(new))
                self._audit.add_note(tenant, note)  # before the change, so no change lacks one
            if self._rows.store(new, "" if stored is None else stored.revision):
                return CreatedArtifact(new, self._upload(new))
        raise Unavailable("Too many changes of this artifact at the same time: try again.")

    def delete(self, tenant: str, artifact_id: str, actor: Actor) -> Artifact:
        """Delete an artifact that no job uses. A later upload of the content brings it back."""
        now = self._clock()
        for _ in range(MAX_ARTIFACT_SWAPS):
            artifact = self.queries.load(tenant, artifact_id)
            self._check_unused(artifact, now)
            deleted = replace(
                artifact,
                status=ArtifactStatus.DELETED,
                deleted_at=now,
                revision=self._new_id(),
            )
            note = Note(actor, ARTIFACT_DELETE, now, before=_audited_fields(artifact))
            self._audit.add_note(tenant, note)
            if self._rows.store(deleted, artifact.revision):
                if artifact.status is ArtifactStatus.PENDING:
                    self._rows.remove(deleted)  # there are no bytes to remove
                return deleted
        raise Unavailable("Too many changes of this artifact at the same time: try again.")

    def use(self, tenant: str, uses: Sequence[WantedArtifact]) -> Mapping[str, str]:
        """Note that jobs use artifacts. Return the problem of each job that may not, by job id."""
        artifacts = self._rows.load(tenant, list({use.artifact_id for use in uses}))
        stored = {key: self._confirmed(artifact) for key, artifact in artifacts.items()}
        problems = {
            use.job_id: problem
            for use in uses
            if (problem := self._problem(stored.get(use.artifact_id), use.runtime))
        }
        now = self._clock()
        noted_uses = [
            ArtifactUse(use.artifact_id, use.job_id, now)
            for use in uses
            if use.job_id not in problems
        ]
        if noted_uses:
            self._rows.put_uses(tenant, noted_uses)
        return problems

    def _problem(self, artifact: Artifact | None, runtime: str) -> str:
        if artifact is None or artifact.status in (ArtifactStatus.DELETED, ArtifactStatus.REMOVING):
            return "names no artifact: upload it first (POST /artifacts)"
        if artifact.status is ArtifactStatus.PENDING:
            return "has no content yet: send the file to its upload_url first"
        return self._architecture_problem(artifact) if runtime == "binary" else ""

    def _architecture_problem(self, artifact: Artifact) -> str:
        allowed = self._architectures
        if not allowed:
            return ""
        architecture = artifact.architecture or self.queries.packed_architecture(artifact)
        if not architecture or architecture in allowed:
            return ""
        return f"is a binary for {architecture}; only {' or '.join(sorted(allowed))} runs here"

    def _confirmed(self, artifact: Artifact) -> Artifact:
        """Return the artifact. Write it as STORED if its upload has arrived."""
        present = self.queries.with_upload(artifact)
        if present is not artifact:
            present = replace(present, revision=self._new_id())
            self._rows.store(present, artifact.revision)  # a lost swap wrote the same, or a delete
            return self._rows.load(artifact.tenant, [artifact.artifact_id]).get(
                artifact.artifact_id, artifact
            )
        return present

    def _upload(self, artifact: Artifact) -> Upload | None:
        if artifact.status is ArtifactStatus.STORED:
            return None
        return self._blobs.upload_link(
            artifact.blob_name, artifact.size, ARTIFACT_CONTENT_TYPE, artifact.sha256
        )

    def _check_unused(self, artifact: Artifact, now: datetime) -> None:
        """Raise `Conflict` if a job uses the artifact. Remove the noted uses of former jobs."""
        jobs: list[UsingJob] = []
        stale: list[ArtifactUse] = []
        unsettled_since = now - ARTIFACT_REMOVAL_DELAY
        for checked in self.queries.checked_uses(artifact.tenant, artifact.artifact_id):
            if checked.job is not None:
                jobs.append(checked.job)
            elif checked.use.noted_at < unsettled_since:
                stale.append(checked.use)
            if len(jobs) == MAX_NAMED_JOBS or len(stale) == MAX_STALE_USES:
                break
        if stale:
            self._rows.remove_uses(artifact.tenant, stale)
        if jobs:
            names = ", ".join(f"{job.name} ({job.job_id})" for job in jobs)
            raise Conflict(
                f"Jobs use this artifact: {names}. Cancel or change them first; "
                "GET /artifacts/{artifact_id} names up to 100."
            )
        if len(stale) == MAX_STALE_USES:
            raise Unavailable("Many former jobs used this artifact: try again to go on.")

    def _check_limits(self, tenant: str, size: int) -> None:
        """Raise if the new artifact exceeds a limit. Concurrent calls may exceed it by a few."""
        limits = self._limits_of(tenant)
        number, total = self._totals(tenant)
        if number >= limits.max_artifacts:
            raise _limit_error(f"at most {limits.max_artifacts:,} artifacts (artifacts)")
        if total + size > limits.max_artifact_mb * MEGABYTE_BYTES:
            raise _limit_error(f"at most {limits.max_artifact_mb:,} MB of artifacts (artifact_mb)")

    def _totals(self, tenant: str) -> tuple[int, int]:
        number, total, after = 0, 0, None
        while rows := self._rows.page(tenant, after, _PAGE_SIZE):
            number += sum(row.counts for row in rows)
            total += sum(row.size for row in rows if row.counts)
            after = rows[-1].artifact_id
        return number, total


def wanted_artifact(job_id: str, document: Mapping[str, Any]) -> WantedArtifact | None:
    """Return the artifact that a job's document names, or None."""
    task = document.get("task") or {}
    artifact_id = task.get("artifact_id")
    return WantedArtifact(job_id, artifact_id, task.get("runtime", "")) if artifact_id else None


def _check_size(stored: Artifact, size: int) -> None:
    if stored.size != size:
        text = f"must be {stored.size}, the size of the stored content with this sha256"
        raise Invalid.of(FieldError("size", text))


def _audited_fields(artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact_id": artifact.artifact_id,
        "sha256": artifact.sha256,
        "size": artifact.size,
        "name": artifact.name,
    }


def _limit_error(allowed: str) -> LimitExceeded:
    return LimitExceeded(
        f"This tenant may have {allowed}: delete some that no job uses "
        "(DELETE /artifacts/{artifact_id}), or ask for a higher limit.",
        ARTIFACT_RETRY_SECONDS,
    )
