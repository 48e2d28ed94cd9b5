"""Render artifacts."""

from typing import Any

from punctual.domain.artifacts import Artifact
from punctual.domain.timestamps import format_time
from punctual.engine.queries.artifacts import ArtifactView


def artifact_json(artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact_id": artifact.artifact_id,
        "name": artifact.name,
        "sha256": artifact.sha256,
        "size": artifact.size,
        "status": artifact.status.value,
        "architecture": artifact.architecture or None,
        "created_at": format_time(artifact.created_at),
        "created_by": artifact.created_by,
    }


def artifact_view_json(view: ArtifactView) -> dict[str, Any]:
    jobs = [{"job_id": job.job_id, "name": job.name} for job in view.jobs]
    return {**artifact_json(view.artifact), "jobs": jobs, "more_jobs": view.more_jobs}
