"""The command punctual apply."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from punctual_cli.commands.artifacts import upload_file
from punctual_cli.errors import CommandError, ExitCode, Failure, print_failure
from punctual_cli.input import job_files, prompting
from punctual_cli.input.options import Yes
from punctual_cli.output import answers, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual_cli.apply.artifacts import PlannedUpload
    from punctual_cli.apply.execute import StepResult
    from punctual_cli.apply.file import DeclaredGroup
    from punctual_cli.apply.plan import Plan
    from punctual_cli.apply.yaml_lines import Fault


def apply(
    session: Session,
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="YAML or JSON file, folder of such files, or - for standard input. Repeatable.",
        ),
    ],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Cancel jobs of the declared sets that no file declares."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without applying them.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Like --dry-run. Exit code 1 if anything would change.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Create and change jobs to match the declarations in files.

    The command shows the changes and asks for confirmation. Unchanged jobs are not touched.
    """
    files = job_files.expand_files(file)
    with planned(session, files, prune) as plan:
        _carry_out(session, plan, files, dry_run=dry_run, check=check, yes=yes)


def _carry_out(
    session: Session, plan: "Plan", files: "Sequence[str]", *, dry_run: bool, check: bool, yes: bool
) -> None:
    """Show the plan, ask for confirmation, and carry it out."""
    from punctual_cli.apply import execute, plan_view

    if not session.as_json:
        for text, style in plan_view.render_lines(plan):
            session.screen.print_line(text, style)
        if plan.step_count or plan.unpruned:
            session.screen.print_line()
        session.screen.print_line(plan_view.render_summary(plan))
    if dry_run or check or not plan.step_count:
        if session.as_json:
            answers.write_json(_plan_as_json(plan, None))
        raise typer.Exit(ExitCode.FAILED if check and plan.step_count else ExitCode.OK)
    if not _confirm(session, yes, files):
        raise CommandError("Nothing was changed.", ExitCode.REFUSED)
    for upload in plan.uploads:
        upload_file(session, upload.file)
    results: list[StepResult] = []
    try:
        with progress.bar(session, "Applying", plan.step_count) as advance:
            for result in execute.execute_plan(session.client, plan):
                results.append(result)
                advance(1)
    except BaseException:
        session.screen.print_note(
            f"{len(results)} of {plan.step_count} steps are done. Apply again for the rest."
        )
        raise
    if session.as_json:
        answers.write_json(_plan_as_json(plan, results))
    _print_results(session, plan, results)


def _confirm(session: Session, yes: bool, files: "Sequence[str]") -> bool:
    if "-" in files and not yes:
        raise CommandError(
            "Nothing was changed. Standard input is the file, so it cannot be a confirmation.",
            advice="Confirm with --yes.",
        )
    return prompting.confirm(session, "Apply these changes?", yes)


@contextmanager
def planned(session: Session, files: "Sequence[str]", prune: bool) -> "Iterator[Plan]":
    """Yield the plan. The zips of its artifacts are deleted at the end of the context."""
    from dataclasses import replace

    from punctual_cli.apply.artifacts import names_artifact, resolve_artifacts

    groups = _load_groups(session, files, prune)
    if not names_artifact(groups):
        yield _make_plan(session, groups, prune)
        return
    with resolve_artifacts(groups, session.client.whoami().tenant) as resolved:
        plan = _make_plan(session, resolved.groups, prune)
        jobs = [create.declared for create in plan.creates]
        jobs += [change.declared for change in plan.changes]
        uploads = resolved.uploads(jobs, lambda artifact_id: _is_stored(session, artifact_id))
        yield replace(plan, uploads=uploads)


def _is_stored(session: Session, artifact_id: str) -> bool:
    from punctual.client import NotFound

    try:
        return session.client.artifacts.get(artifact_id).status == "STORED"
    except NotFound:
        return False


def _load_groups(
    session: Session, files: "Sequence[str]", prune: bool
) -> "Sequence[DeclaredGroup]":
    from punctual_cli.apply import file as declarations

    sources = [
        declarations.Source(
            job_files.display_name(name), job_files.read_text(name), Path(name).parent
        )
        for name in files
    ]
    try:
        groups = declarations.load_groups(sources)
    except declarations.InvalidFiles as error:
        _exit_with_faults(
            session, error.faults, ExitCode.USAGE if error.is_syntax else ExitCode.REFUSED
        )
    if prune and not any(group.set_name for group in groups):
        raise CommandError(
            "--prune requires a set, and no file names one.",
            advice="Begin a file with `set: NAME`. Its jobs then belong to the set.",
        )
    return groups


def _make_plan(session: Session, groups: "Sequence[DeclaredGroup]", prune: bool) -> "Plan":
    from punctual_cli.apply import file as declarations
    from punctual_cli.apply.plan import make_plan
    from punctual_cli.apply.present_jobs import read_present_jobs

    with progress.spinner(session, "Reading the jobs"):
        task_types = (
            frozenset(session.client.health().task_types) or declarations.ALL_FEATURES.task_types
        )
        jobs = [job.raw for job in read_present_jobs(session.client, groups)]
    features = declarations.ALL_FEATURES._replace(task_types=task_types)
    plan, faults = make_plan(groups, jobs, prune, session.clock(), features)
    if faults:
        _exit_with_faults(session, declarations.sort_faults(faults), ExitCode.REFUSED)
    return plan


def _exit_with_faults(session: Session, faults: "Sequence[Fault]", code: ExitCode) -> NoReturn:
    """Show every fault with its file and line, as editors and CI read them, and end."""
    file_names = list(dict.fromkeys(fault.file for fault in faults))
    file_text = file_names[0] if len(file_names) == 1 else f"{len(file_names)} files"
    failure = Failure(
        code,
        f"{_count_errors(len(faults))} in {file_text}. Nothing was changed.",
        errors=tuple((f"{fault.file}:{fault.line}", fault.message) for fault in faults),
    )
    print_failure(failure, session.as_json)
    raise typer.Exit(code)


def _count_errors(number: int) -> str:
    return "1 error" if number == 1 else f"{number} errors"


def _print_results(session: Session, plan: "Plan", results: "Sequence[StepResult]") -> None:
    refused_results = [result for result in results if result.error is not None]
    if not refused_results:
        from punctual_cli.apply import plan_view

        if not session.as_json:
            session.screen.print_line(plan_view.render_summary(plan, is_done=True), "green")
        return
    errors = [error for result in refused_results for error in _result_errors(result)]
    text = f"{len(refused_results)} of {len(results)} steps failed. The others are done."
    print_failure(Failure(ExitCode.REFUSED, text, errors=tuple(errors)), session.as_json)
    raise typer.Exit(ExitCode.REFUSED)


def _result_errors(result: "StepResult") -> list[tuple[str, str]]:
    from punctual_cli.apply.plan import Prune

    error = result.error
    assert error is not None
    detail = error.message if error.problem is None else error.problem.detail
    if isinstance(result.step, Prune):
        return [(f"set {result.step.set_name}", f"{result.name}: {detail}")]
    position = result.step.declared.position
    field_errors = [
        (
            f"{position.file}:{position.line_of(field_error.field)}",
            f"{result.name}: {field_error.field}: {field_error.message}",
        )
        for field_error in error.errors
    ]
    return field_errors or [(f"{position.file}:{position.line_of()}", f"{result.name}: {detail}")]


def _sizes(upload: "PlannedUpload") -> dict[str, Any]:
    return {"size": upload.file.size, "sha256": upload.file.sha256}


def _plan_as_json(plan: "Plan", results: "Sequence[StepResult] | None") -> dict[str, Any]:
    results_by_step = {id(step_result.step): step_result for step_result in results or ()}

    def result_fields(step: Any) -> dict[str, Any]:
        result_of_step = results_by_step.get(id(step))
        if result_of_step is None:
            return {}
        return {
            "job_id": result_of_step.job_id,
            "error": result_of_step.error and result_of_step.error.message,
        }

    return {
        "applied": results is not None,
        "upload": [
            {"file": str(upload.source), "artifact_id": upload.artifact_id, **_sizes(upload)}
            for upload in plan.uploads
        ],
        "create": [
            {
                "name": planned.declared.name,
                "set": planned.declared.set_name,
                **result_fields(planned),
            }
            for planned in plan.creates
        ],
        "change": [
            {
                "name": planned.declared.name,
                "set": planned.declared.set_name,
                "job_id": planned.present["job_id"],
                "fields": sorted(planned.changed_fields),
                "pause": planned.pause_action,
                **result_fields(planned),
            }
            for planned in plan.changes
        ],
        "cancel": [
            {
                "name": prune.present["name"],
                "set": prune.set_name,
                "job_id": prune.present["job_id"],
            }
            | result_fields(prune)
            for prune in plan.prunes
        ],
        "unchanged": [
            {"name": declared.name, "set": declared.set_name} for declared in plan.unchanged
        ],
    }
