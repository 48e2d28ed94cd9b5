"""The commands punctual jobs create and update."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import CommandError, ExitCode, Failure, print_failure
from punctual_cli.input import job_files
from punctual_cli.input.job_flags import JobFlags
from punctual_cli.input.options import Key
from punctual_cli.input.references import JobName
from punctual_cli.output import answers, job_views, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Job

MAX_JOBS_PER_CALL = 100  # small enough that progress shows

File = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="YAML or JSON file with the fields, or - for standard input.",
        show_default=False,
    ),
]


def create(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)
    ] = None,
    file: File = None,
    key: Key = None,
    *,
    flags: JobFlags,
) -> None:
    """Create a job, or several jobs from a file.

    Without --cron, --every or --at the job runs once, immediately.
    """
    base_fields = {} if file is None else job_files.read_jobs(file)
    if isinstance(base_fields, list):
        if name is not None or flags != JobFlags():
            raise CommandError(
                "A file with a list of jobs cannot be combined with a name or options."
            )
        _create_many(session, base_fields, key)
        return
    if name is not None:
        base_fields = {**base_fields, "name": name}
    fields = flags.apply_to(base_fields, session.clock())
    if "name" not in fields and file is None:  # the server reports all faults of a file
        raise CommandError("The name is missing: punctual jobs create NAME …")
    fields.setdefault("schedule_type", "IMMEDIATE")
    _print_job(session, session.client.jobs.create(idempotency_key=key, **fields), "Created")


def _create_many(session: Session, jobs: list[dict[str, Any]], key: str | None) -> None:
    results: list[dict[str, Any]] = []
    with progress.bar(session, "Creating jobs", len(jobs)) as advance:
        for start in range(0, len(jobs), MAX_JOBS_PER_CALL):
            chunk = jobs[start : start + MAX_JOBS_PER_CALL]
            chunk_key = None if key is None else f"{key}/from-{start}"
            batch = session.client.jobs.create_many(chunk, idempotency_key=chunk_key)
            results.extend(map(_result_fields, chunk, batch.results))
            advance(len(chunk))
    declined_results = [result for result in results if "problem" in result]
    if session.as_json:
        answers.write_json(results)
    else:
        session.screen.print_line(
            f"{len(results) - len(declined_results)} of {len(results)} jobs created."
        )
    if declined_results:
        error = [
            error
            for declined_result in declined_results
            for error in _result_errors(declined_result)
        ]
        print_failure(
            Failure(
                ExitCode.REFUSED,
                f"{len(declined_results)} jobs were not created.",
                errors=tuple(error),
            ),
            session.as_json,
        )
        raise typer.Exit(ExitCode.REFUSED)


def _result_fields(job: Mapping[str, Any], result: Any) -> dict[str, Any]:
    name_field = {"name": job.get("name")}
    if result.accepted:
        return {**name_field, "job_id": result.job_id}
    return {**name_field, "problem": result.problem.raw}


def _result_errors(result: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    problem = result["problem"]
    errors = problem.get("errors") or [{"field": "", "message": problem.get("detail", "")}]
    return [
        (f"{result['name']}: {error['field']}".removesuffix(": "), error["message"])
        for error in errors
    ]


def update(
    session: Session,
    job: JobName,
    name: Annotated[
        str | None,
        typer.Option("--name", help="New name of the job.", metavar="NAME", show_default=False),
    ] = None,
    file: File = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Reset a field to its default. Repeatable.", show_default=False
        ),
    ] = None,
    if_version: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Change the job only if it has this version.", show_default=False
        ),
    ] = None,
    *,
    flags: JobFlags,
) -> None:
    """Change fields of a job. Other fields stay as they are."""
    job_id = session.client.jobs.id_of(job)
    base_fields = {} if file is None else job_files.read_job(file)
    if name is not None:
        base_fields["name"] = name
    if flags.changes_nested_fields:
        # The server replaces a field as a whole, so start from the present value.
        present_job = session.client.jobs.get(job_id)
        base_fields = {**flags.present_nested_fields(present_job.raw), **base_fields}
        if_version = present_job.version if if_version is None else if_version
    changes = flags.apply_to(base_fields, session.clock())
    changes.update(dict.fromkeys(unset or ()))
    if not changes:
        raise CommandError("Nothing to change. Add an option, --set, --unset or --file.")
    updated_job = session.client.jobs.update(job_id, if_match=if_version, **changes)
    _print_job(session, updated_job, "Changed")


def _print_job(session: Session, job: "Job", verb: str) -> None:
    def draw(shown_job: "Job") -> None:
        session.screen.print_line(f"{verb} {shown_job.name}.", "green")
        job_views.print_card(session, shown_job)

    answers.write_item(session, job, draw)
