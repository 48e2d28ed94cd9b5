"""The command punctual export."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from punctual_cli.output import answers, progress
from punctual_cli.session import Session


def export(
    session: Session,
    set_name: Annotated[
        str | None,
        typer.Option("--set", metavar="NAME", help="Only jobs of this set.", show_default=False),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", "-o", metavar="FILE", help="Write the output to FILE.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the declarations of the jobs, in the form that apply reads.

    Only scheduled and paused jobs are exported.
    """
    from punctual_cli.apply import file, yaml_lines

    tags = {} if set_name is None else {file.SET_TAG: set_name}
    jobs = []
    with progress.bar(session, "Reading jobs", None) as advance:
        for job in session.client.jobs.list(status=("SCHEDULED", "PAUSED"), tags=tags):
            jobs.append(job.raw)
            advance(1)
    set_documents = group_by_set(jobs)
    if session.as_json:
        answers.write_json(set_documents)
        return
    text = (
        "---\n".join(yaml_lines.dump_yaml(document) for document in set_documents) or "jobs: []\n"
    )
    if to is None:
        sys.stdout.write(text)
    else:
        to.write_text(text)
        session.screen.print_note(f"Wrote {len(jobs):,} jobs to {to}.")


def group_by_set(jobs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one document for each set, sorted by name. Jobs without a set come first."""
    from punctual_cli.apply.plan import set_name_of

    by_set: dict[str | None, list[Mapping[str, Any]]] = {}
    for job in jobs:
        if job["schedule_type"] != "IMMEDIATE":
            by_set.setdefault(set_name_of(job), []).append(job)
    return [
        ({} if set_name is None else {"set": set_name}) | {"jobs": _declarations(by_set[set_name])}
        for set_name in sorted(by_set, key=lambda set_name: set_name or "")
    ]


def _declarations(jobs: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return declarations sorted by name. An id is added only where a name is not unique."""
    from punctual_cli.apply.fields import declared_fields
    from punctual_cli.apply.file import SET_TAG

    names = Counter(job["name"] for job in jobs)
    declarations = []
    for job in sorted(jobs, key=lambda job: (job["name"], job["job_id"])):
        fields = declared_fields(job)
        tags = {key: value for key, value in job["tags"].items() if key != SET_TAG}
        fields.pop("tags", None)
        if tags:
            fields["tags"] = tags
        if job["status"] == "PAUSED":
            fields["paused"] = True
        if names[job["name"]] > 1:
            fields["job_id"] = job["job_id"]
        declarations.append(fields)
    return declarations
