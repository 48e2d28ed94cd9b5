"""Read artifacts, and find the jobs that use them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.artifacts import (
    ARTIFACT_CONTENT_TYPE,
    ARTIFACT_HEAD_BYTES,
    Artifact,
    ArtifactStatus,
    architecture_of,
)
from punctual.domain.errors import NotFound
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.task_limits import BINARY_ENTRY_NAME
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.ports.tenants.artifact_rows import ArtifactRows, ArtifactUse

MAX_SHOWN_JOBS = 100  # jobs that the answer about one artifact names
MAX_LISTED_JOBS = 5  # jobs that a list names for each artifact, so that a page costs few reads
MAX_READ_USES = 1_000  # uses that one answer reads
USES_PAGE_SIZE = 100
_SHOWN_STATUSES = (ArtifactStatus.PENDING, ArtifactStatus.STORED)


class UsingJob(NamedTuple):
    job_id: str
    name: str


class ArtifactView(NamedTuple):
    """An artifact, and some of the jobs that use it. With `more_jobs` there may be others."""

    artifact: Artifact
    jobs: Sequence[UsingJob]
    more_jobs: bool = False


class ArtifactPage(NamedTuple):
    items: Sequence[ArtifactView]
    next_cursor: tuple[str, ...] | None


class ArtifactLink(NamedTuple):
    """What an executor needs to fetch an artifact. `url` is None where the node has the file."""

    url: str | None
    sha256: str
    name: str
    size: int
    blob_name: str


class CheckedUse(NamedTuple):
    """A use, and the job if it uses the artifact now."""

    use: ArtifactUse
    job: UsingJob | None


class ArtifactQueries:
    """Reads artifacts. It writes nothing."""

    def __init__(self, rows: ArtifactRows, blobs: Blobs, job_states: JobStates) -> None:
        self._rows = rows
        self._blobs = blobs
        self._job_states = job_states

    def view(self, tenant: str, artifact_id: str) -> ArtifactView:
        artifact = self.load(tenant, artifact_id)
        jobs: dict[str, UsingJob] = {}  # a job may have several uses
        for count, checked in enumerate(self.checked_uses(tenant, artifact_id)):
            if len(jobs) == MAX_SHOWN_JOBS or count >= MAX_READ_USES:
                return ArtifactView(artifact, list(jobs.values()), more_jobs=True)
            if checked.job is not None:
                jobs[checked.job.job_id] = checked.job
        return ArtifactView(artifact, list(jobs.values()))

    def load(self, tenant: str, artifact_id: str) -> Artifact:
        """Return a pending or stored artifact. Raise `NotFound` for any other."""
        artifact = self._rows.load(tenant, [artifact_id]).get(artifact_id)
        if artifact is None or artifact.status not in _SHOWN_STATUSES:
            raise NotFound("There is no such artifact.")
        return self.with_upload(artifact)

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> ArtifactPage:
        """Return artifacts in the order of their ids, each with a few of the jobs that use it."""
        rows = self._rows.page(tenant, after[0] if after else None, limit + 1)
        shown = [self.with_upload(row) for row in rows[:limit] if row.status in _SHOWN_STATUSES]
        has_more = len(rows) > limit
        views = self._with_jobs(tenant, shown)
        return ArtifactPage(views, (rows[limit - 1].artifact_id,) if has_more else None)

    def _with_jobs(self, tenant: str, artifacts: Sequence[Artifact]) -> list[ArtifactView]:
        ids = [artifact.artifact_id for artifact in artifacts]
        noted = self._rows.first_uses(tenant, ids, MAX_LISTED_JOBS + 1) if ids else ()
        listed = [uses[:MAX_LISTED_JOBS] for uses in noted]
        jobs = self._using_jobs(tenant, [use for uses in listed for use in uses])
        views = []
        for artifact, all_uses, uses in zip(artifacts, noted, listed, strict=True):
            own = {
                use.job_id: job
                for use in uses
                if (job := jobs.get((use.artifact_id, use.job_id))) is not None
            }
            has_more = len(all_uses) > len(uses)
            views.append(ArtifactView(artifact, list(own.values()), has_more))
        return views

    def link(self, tenant: str, artifact_id: str) -> ArtifactLink | None:
        """Return a link to the content for a run, or None if no content is stored.

        A run may begin shortly after a delete, so the content of a deleted artifact counts too.
        """
        artifact = self._rows.load(tenant, [artifact_id]).get(artifact_id)
        if artifact is None or artifact.status is ArtifactStatus.REMOVING:
            return None
        if self.with_upload(artifact).status is ArtifactStatus.PENDING:
            return None
        url = self._blobs.link(artifact.blob_name, ARTIFACT_CONTENT_TYPE)
        return ArtifactLink(url, artifact.sha256, artifact.name, artifact.size, artifact.blob_name)

    def with_upload(self, artifact: Artifact) -> Artifact:
        """Return the artifact, as STORED if its upload has arrived."""
        if artifact.status is not ArtifactStatus.PENDING:
            return artifact
        head = self._blobs.get(artifact.blob_name, 0, ARTIFACT_HEAD_BYTES)
        if head is None:
            return artifact
        return replace(artifact, status=ArtifactStatus.STORED, architecture=architecture_of(head))

    def packed_architecture(self, artifact: Artifact) -> str:
        """Return the architecture of the program in a zip, or an empty text."""
        # imported on first use, since few jobs run a binary
        from punctual.engine.queries.zip_entries import entry_head

        name = artifact.blob_name
        head = entry_head(
            lambda start, end: self._blobs.get(name, start, end) or b"",
            artifact.size,
            BINARY_ENTRY_NAME,
            ARTIFACT_HEAD_BYTES,
        )
        return architecture_of(head)

    def checked_uses(self, tenant: str, artifact_id: str) -> Iterator[CheckedUse]:
        """Yield each noted use, the oldest jobs first, with the job if it still is a use."""
        after: str | None = None
        while True:
            uses = self._rows.uses(tenant, artifact_id, after, USES_PAGE_SIZE)
            jobs = self._using_jobs(tenant, uses)
            for use in uses:
                yield CheckedUse(use, jobs.get((artifact_id, use.job_id)))
            if len(uses) < USES_PAGE_SIZE:
                return
            after = uses[-1].job_id

    def _using_jobs(
        self, tenant: str, uses: Sequence[ArtifactUse]
    ) -> Mapping[tuple[str, str], UsingJob]:
        """Return the jobs of these uses that use an artifact now, by artifact and job id."""
        keys = list(dict.fromkeys(JobKey(tenant, use.job_id) for use in uses))
        stored = self._job_states.load(keys) if keys else {}
        refs = [
            (key, ref) for key, state in stored.items() for ref in _definition_refs(state.state)
        ]
        definitions = self._job_states.load_definitions(refs) if refs else {}
        return {
            (artifact_of(row), key.job_id): UsingJob(key.job_id, row.name)
            for (key, _), row in definitions.items()
        }


def artifact_of(definition: DefinitionRow) -> str:
    """Return the id of the artifact that a definition uses, or an empty text."""
    return str((definition.document.get("task") or {}).get("artifact_id") or "")


def _definition_refs(state: JobState) -> Sequence[str]:
    """Return the refs of the present definition and of those of live runs.

    The present definition of a cancelled job starts no run any more.
    """
    if state.is_blank:
        return ()
    if state.status is not JobStatus.CANCELLED:
        return [rules.definition_ref for rules in state.rules.values()]
    editions = {run.definition for run in state.runs}
    editions |= {waiting.definition for waiting in state.wait_queue}
    return [rules.definition_ref for edition, rules in state.rules.items() if edition in editions]
