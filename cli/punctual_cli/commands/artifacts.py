"""The commands punctual artifacts upload, list, get and delete."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.input.artifact_files import ArtifactFile, open_artifact, size_text
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, fetch_up_to
from punctual_cli.output import answers, progress
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Artifact

ArtifactId = Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id of the artifact.")]


def upload(
    session: Session,
    path: Annotated[
        str,
        typer.Argument(metavar="FILE", help="File, or folder to upload as one zip file."),
    ],
) -> None:
    """Upload a file or a folder, for jobs with task.artifact_id.

    Content that the server has is not sent again.
    """
    with open_artifact(Path(path)) as file:
        artifact = upload_file(session, file)
    answers.write_item(session, artifact, lambda stored: _print_artifact(session, stored))


def upload_file(session: Session, file: ArtifactFile) -> "Artifact":
    """Upload a file and show the progress."""
    with progress.bar(session, f"Uploading {file.name}", file.size) as advance:
        return session.client.artifacts.upload(
            file.path, name=file.name, on_progress=progress.advance_to(advance)
        )


def list_artifacts(session: Session, limit: Limit = DEFAULT_LIST_LIMIT) -> None:
    """List artifacts with the jobs that use them."""
    listed = fetch_up_to(
        session, limit, lambda max_items: session.client.artifacts.list(limit=max_items)
    )
    answers.write_items(session, listed, lambda artifacts: _print_artifacts(session, artifacts))


def get(session: Session, artifact_id: ArtifactId) -> None:
    """Show an artifact and the jobs that use it."""
    artifact = session.client.artifacts.get(artifact_id)
    answers.write_item(session, artifact, lambda shown: _print_artifact(session, shown))


def delete(session: Session, artifact_id: ArtifactId) -> None:
    """Delete an artifact that no job uses."""
    artifact = session.client.artifacts.delete(artifact_id)
    answers.write_item(
        session,
        artifact,
        lambda deleted: session.screen.print_line(
            f"Deleted {deleted.name} ({deleted.artifact_id}).", "green"
        ),
    )


def _print_artifacts(session: Session, artifacts: "list[Artifact]") -> None:
    if not artifacts:
        session.screen.print_line("No artifacts.")
        return
    columns = [
        *(Column("ARTIFACT"), Column("NAME", min_width=8), Column("SIZE"), Column("STATUS")),
        Column("JOBS", min_width=8),
    ]
    session.screen.print_table(columns, [_row(artifact) for artifact in artifacts])


def _row(artifact: "Artifact") -> list[Any]:
    names = [job.name for job in artifact.jobs] + (["more"] if artifact.more_jobs else [])
    jobs = ", ".join(names) or None
    return [artifact.artifact_id, artifact.name, size_text(artifact.size), artifact.status, jobs]


def _print_artifact(session: Session, artifact: "Artifact") -> None:
    screen = session.screen
    screen.print_pairs(
        [
            ("Artifact", artifact.artifact_id),
            ("Name", artifact.name),
            ("Size", size_text(artifact.size)),
            ("SHA-256", artifact.sha256),
            ("Status", artifact.status),
            ("Architecture", artifact.architecture),
            ("Created", screen.long_time(artifact.created_at)),
            *(("Used by", f"{job.name} ({job.job_id})") for job in artifact.jobs),
            *([("", "and more jobs")] if artifact.more_jobs else []),
        ]
    )
