"""The command punctual apply."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from punctual_cli.errors import Code, Told, Trouble, show
from punctual_cli.input import job_files, prompting
from punctual_cli.input.options import Yes
from punctual_cli.output import answers, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual_cli.apply.execute import Done
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
            help="YAML or JSON, or a folder of such files; repeatable; - is standard input.",
        ),
    ],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Cancel the jobs of the files' sets that no file names."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Like --dry-run; exit code 1 if anything would change.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make jobs be as files declare them.

    It shows what would change and asks. What is so already is not touched.
    """
    from punctual_cli.apply import execute, plan_view

    files = job_files.files_of(file)
    plan = _plan(session, files, prune)
    if not session.as_json:
        for text, style in plan_view.lines(plan):
            session.screen.line(text, style)
        if plan.steps or plan.left:
            session.screen.line()
        session.screen.line(plan_view.summary(plan))
    if dry_run or check or not plan.steps:
        if session.as_json:
            answers.as_json(_as_json(plan, None))
        raise typer.Exit(Code.FAILED if check and plan.steps else Code.OK)
    if not _agreed(session, yes, files):
        raise Trouble("Nothing was changed.", Code.REFUSED)
    done: list[Done] = []
    try:
        with progress.bar(session, "Applying", plan.steps) as tell:
            for one in execute.carry_out(session.client, plan):
                done.append(one)
                tell(1)
    except BaseException:
        session.screen.note(
            f"{len(done)} of {plan.steps} steps are done: apply again for the rest."
        )
        raise
    if session.as_json:
        answers.as_json(_as_json(plan, done))
    _report(session, plan, done)


def _agreed(session: Session, yes: bool, files: "Sequence[str]") -> bool:
    if "-" in files and not yes:
        raise Trouble("Nothing was changed: the file came by standard input.", advice="Use --yes.")
    return prompting.confirmed(session, "Apply this?", yes)


def _plan(session: Session, files: "Sequence[str]", prune: bool) -> "Plan":
    from punctual_cli.apply import file as declared
    from punctual_cli.apply import plan as planning

    sources = [declared.Source(job_files.shown(name), job_files.text_of(name)) for name in files]
    try:
        groups = declared.groups(sources)
    except declared.Wrong as error:
        _refuse(session, error.faults, Code.USAGE if error.is_syntax else Code.REFUSED)
    if prune and not any(group.set_name for group in groups):
        raise Trouble(
            "No file names a set: there is nothing that --prune could go by.",
            advice="Begin a file with `set: NAME`; the jobs that apply makes then belong to it.",
        )
    with progress.spinner(session, "Looking at what is there"):
        task_types = frozenset(session.client.health().task_types) or declared.ANYWHERE.task_types
        jobs = [job.raw for job in session.client.jobs.list()]
    features = declared.ANYWHERE._replace(task_types=task_types)
    found, faults = planning.plan(groups, jobs, prune, session.clock(), features)
    if faults:
        _refuse(session, declared.in_order(faults), Code.REFUSED)
    return found


def _refuse(session: Session, faults: "Sequence[Fault]", code: Code) -> NoReturn:
    """Show every fault with its file and line, as editors and CI read them, and end."""
    named = list(dict.fromkeys(fault.file for fault in faults))
    of = named[0] if len(named) == 1 else f"{len(named)} files"
    told = Told(
        code,
        f"{len(faults)} wrong in {of}; nothing was changed.",
        errors=tuple((f"{fault.file}:{fault.line}", fault.message) for fault in faults),
    )
    show(told, session.as_json)
    raise typer.Exit(code)


def _report(session: Session, plan: "Plan", done: "Sequence[Done]") -> None:
    refused = [one for one in done if one.error is not None]
    if not refused:
        from punctual_cli.apply import plan_view

        if not session.as_json:
            session.screen.line(plan_view.summary(plan, done=True), "green")
        return
    errors = [wrong for one in refused for wrong in _wrong(one)]
    text = f"{len(refused)} of {len(done)} steps were refused; the others are done."
    show(Told(Code.REFUSED, text, errors=tuple(errors)), session.as_json)
    raise typer.Exit(Code.REFUSED)


def _wrong(one: "Done") -> list[tuple[str, str]]:
    from punctual_cli.apply.plan import Prune

    error = one.error
    assert error is not None
    detail = error.message if error.problem is None else error.problem.detail
    if isinstance(one.step, Prune):
        return [(f"set {one.step.set_name}", f"{one.name}: {detail}")]
    place = one.step.declared.place
    found = [
        (f"{place.file}:{place.line(wrong.field)}", f"{one.name}: {wrong.field}: {wrong.message}")
        for wrong in error.errors
    ]
    return found or [(f"{place.file}:{place.line()}", f"{one.name}: {detail}")]


def _as_json(plan: "Plan", done: "Sequence[Done] | None") -> dict[str, Any]:
    made = {id(one.step): one for one in done or ()}

    def result(step: Any) -> dict[str, Any]:
        one = made.get(id(step))
        if one is None:
            return {}
        return {"job_id": one.job_id, "error": one.error and one.error.message}

    return {
        "applied": done is not None,
        "create": [
            {"name": c.declared.name, "set": c.declared.set_name, **result(c)} for c in plan.creates
        ],
        "change": [
            {
                "name": c.declared.name,
                "set": c.declared.set_name,
                "job_id": c.present["job_id"],
                "fields": sorted(c.sent),
                "pause": c.pause,
                **result(c),
            }
            for c in plan.changes
        ],
        "cancel": [
            {"name": p.present["name"], "set": p.set_name, "job_id": p.present["job_id"]}
            | result(p)
            for p in plan.prunes
        ],
        "unchanged": [{"name": d.name, "set": d.set_name} for d in plan.unchanged],
    }
