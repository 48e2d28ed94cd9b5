"""The files of artifacts, for the script tasks of the node."""

import platform
from pathlib import Path
from typing import NamedTuple

from punctual.engine.commands.artifact_cleanup import ArtifactCleanup
from punctual.engine.commands.artifacts import Artifacts
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.artifacts import ArtifactQueries, artifact_of
from punctual.engine.quotas.limits import unlimited
from punctual.node.files.blobs import FileBlobs
from punctual.node.sqlite.store import Store
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.script.run_folder import RunFolder

_ARCHITECTURES = {"aarch64": "arm64"}


class ArtifactFiles:
    """Finds the file of an attempt's artifact.

    The node's thread calls `find` when it claims a run. The thread of the run then calls `fetch`,
    without the store. An id always names the same content, so an entry is never wrong.
    """

    def __init__(self, queries: ArtifactQueries, blobs: FileBlobs) -> None:
        self._queries = queries
        self._blobs = blobs
        self._paths: dict[tuple[str, str], Path] = {}

    def find(self, assignment: Assignment) -> None:
        """Find the file of the run's artifact, if it has one."""
        tenant, artifact_id = assignment.key.tenant, artifact_of(assignment.definition)
        if not artifact_id or (tenant, artifact_id) in self._paths:
            return
        link = self._queries.link(tenant, artifact_id)
        if link is not None:
            self._paths[tenant, artifact_id] = self._blobs.artifact_path(link.blob_name)

    def fetch(self, attempt: Attempt, _folder: RunFolder) -> Path:
        """Return the file. Its digest was checked when it was stored, and it never changes."""
        artifact_id = attempt.task.get("artifact_id")
        path = self._paths.get((attempt.tenant, str(artifact_id)))
        if path is None or not path.is_file():
            raise BadTask(f"There is no artifact {artifact_id}")
        return path


class ArtifactCommands(NamedTuple):
    """What the node does with artifacts."""

    artifacts: Artifacts
    cleanup: ArtifactCleanup


def artifact_commands(
    store: Store, clock: Clock, new_id: NewId, limits_of: LimitsOf | None
) -> ArtifactCommands:
    rows, blobs = store.artifacts, store.blobs
    queries = ArtifactQueries(rows, blobs, store.job_states)
    limits_of, architectures = limits_of or unlimited, own_architectures()
    return ArtifactCommands(
        Artifacts(rows, blobs, queries, store.audit, clock, new_id, limits_of, architectures),
        ArtifactCleanup(rows, blobs, queries, clock, new_id),
    )


def own_architectures() -> frozenset[str]:
    """Return the architectures of binaries that run on this machine."""
    machine = platform.machine()
    return frozenset({_ARCHITECTURES.get(machine, machine)})
