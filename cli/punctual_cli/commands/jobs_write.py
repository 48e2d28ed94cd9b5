"""The commands punctual jobs create and update."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import Code, Told, Trouble, show
from punctual_cli.input import job_files
from punctual_cli.input.job_flags import JobFlags
from punctual_cli.input.options import Key
from punctual_cli.input.references import JobName, job_id_of
from punctual_cli.output import answers, job_views, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Job

JOBS_PER_CALL = 100  # small enough that progress shows

File = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="YAML or JSON with the fields; - is standard input.",
        show_default=False,
    ),
]


def create(
    session: Session,
    flags: JobFlags,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)
    ] = None,
    file: File = None,
    key: Key = None,
) -> None:
    """Make a job, or many from a file.

    Without --cron, --every or --at it runs at once, and once.
    """
    given = {} if file is None else job_files.jobs_in(file)
    if isinstance(given, list):
        if name is not None or flags != JobFlags():
            raise Trouble("A file with many jobs stands for itself: no name and no options.")
        _create_many(session, given, key)
        return
    if name is not None:
        given = {**given, "name": name}
    wanted = flags.over(given, session.clock())
    if "name" not in wanted and file is None:  # the server reports all faults of a file
        raise Trouble("A job needs a name: punctual jobs create NAME …")
    wanted.setdefault("schedule_type", "IMMEDIATE")
    _answer(session, session.client.jobs.create(idempotency_key=key, **wanted), "Created")


def _create_many(session: Session, jobs: list[dict[str, Any]], key: str | None) -> None:
    results: list[dict[str, Any]] = []
    with progress.bar(session, "Creating jobs", len(jobs)) as step:
        for start in range(0, len(jobs), JOBS_PER_CALL):
            chunk = jobs[start : start + JOBS_PER_CALL]
            own = None if key is None else f"{key}/from-{start}"
            batch = session.client.jobs.create_many(chunk, idempotency_key=own)
            results.extend(map(_result, chunk, batch.results))
            step(len(chunk))
    declined = [one for one in results if "problem" in one]
    if session.as_json:
        answers.as_json(results)
    else:
        session.screen.line(f"{len(results) - len(declined)} of {len(results)} jobs created.")
    if declined:
        wrong = [wrong for one in declined for wrong in _wrong(one)]
        show(Told(Code.REFUSED, f"{len(declined)} refused.", errors=tuple(wrong)), session.as_json)
        raise typer.Exit(Code.REFUSED)


def _result(job: Mapping[str, Any], result: Any) -> dict[str, Any]:
    named = {"name": job.get("name")}
    if result.accepted:
        return {**named, "job_id": result.job_id}
    return {**named, "problem": result.problem.raw}


def _wrong(one: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    problem = one["problem"]
    errors = problem.get("errors") or [{"field": "", "message": problem.get("detail", "")}]
    return [(f"{one['name']}: {e['field']}".removesuffix(": "), e["message"]) for e in errors]


def update(
    session: Session,
    job: JobName,
    flags: JobFlags,
    name: Annotated[
        str | None, typer.Option("--name", help="A new name.", metavar="NAME", show_default=False)
    ] = None,
    file: File = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Back to its default; repeatable.", show_default=False),
    ] = None,
    if_version: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only while the job has this version.", show_default=False),
    ] = None,
) -> None:
    """Change a job: the fields that are given, and no others."""
    job_id = job_id_of(session.client, job)
    given = {} if file is None else job_files.job_in(file)
    if name is not None:
        given["name"] = name
    if flags.reaches_inside:
        # The server replaces a field as a whole, so start from the present value.
        present = session.client.jobs.get(job_id)
        given = {**flags.touched(present.raw), **given}
        if_version = present.version if if_version is None else if_version
    changes = flags.over(given, session.clock())
    changes.update(dict.fromkeys(unset or ()))
    if not changes:
        raise Trouble("Nothing to change: give an option, --set, --unset or --file.")
    found = session.client.jobs.update(job_id, if_match=if_version, **changes)
    _answer(session, found, "Changed")


def _answer(session: Session, job: "Job", done: str) -> None:
    def draw(one: "Job") -> None:
        session.screen.line(f"{done} {one.name}.", "green")
        job_views.card(session, one)

    answers.one(session, job, draw)
