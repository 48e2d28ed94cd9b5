"""Find the artifacts that declared jobs need, and which of them the server lacks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from punctual.domain.artifacts import artifact_id_of
from punctual_cli.apply.file import DeclaredGroup, DeclaredJob
from punctual_cli.input.artifact_files import ArtifactFile, open_artifact


class PlannedUpload(NamedTuple):
    """A file that the server lacks. `source` is the path that a job names."""

    source: Path
    file: ArtifactFile
    artifact_id: str


class ResolvedGroups(NamedTuple):
    """The groups with the ids of their artifacts, and the files of these ids."""

    groups: Sequence[DeclaredGroup]
    files: dict[str, PlannedUpload]

    def uploads(
        self, jobs: Sequence[DeclaredJob], is_stored: Callable[[str], bool]
    ) -> tuple[PlannedUpload, ...]:
        """Return the uploads that these jobs need."""
        ids = dict.fromkeys(job.fields["task"]["artifact_id"] for job in jobs if job.artifact)
        return tuple(self.files[artifact_id] for artifact_id in ids if not is_stored(artifact_id))


def names_artifact(groups: Sequence[DeclaredGroup]) -> bool:
    return any(job.artifact is not None for group in groups for job in group.jobs)


@contextmanager
def resolve_artifacts(groups: Sequence[DeclaredGroup], tenant: str) -> Iterator[ResolvedGroups]:
    """Yield the groups with artifact ids. The id follows from the tenant and the content.

    The zips of folders are deleted at the end of the context.
    """
    with ExitStack() as stack:
        ids: dict[Path, str] = {}
        files: dict[str, PlannedUpload] = {}

        def resolve(job: DeclaredJob) -> DeclaredJob:
            if job.artifact is None:
                return job
            if job.artifact not in ids:
                file = stack.enter_context(open_artifact(job.artifact))
                artifact_id = artifact_id_of(tenant, file.sha256)
                ids[job.artifact] = artifact_id
                files.setdefault(artifact_id, PlannedUpload(job.artifact, file, artifact_id))
            task = {**job.fields["task"], "artifact_id": ids[job.artifact]}
            return replace(job, fields={**job.fields, "task": task})

        resolved = [group._replace(jobs=tuple(map(resolve, group.jobs))) for group in groups]
        yield ResolvedGroups(resolved, files)
