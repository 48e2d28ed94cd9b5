"""Read the jobs that files declare, and report all their faults at once.

A file holds one or several documents. Each document names its set, and may set defaults for its
jobs.

    set: billing
    defaults:
      timezone: Europe/Berlin
    jobs:
      - name: payouts
        schedule_type: CRON
        cron_expression: 0 9 L * *
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from punctual.domain.errors import Invalid
from punctual.domain.utc import EPOCH
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.http.problems import RequestRejected
from punctual.web.models.job_rules import changed_job, new_job
from punctual_cli.apply.json_lines import parse_documents
from punctual_cli.apply.yaml_lines import Document, Fault, FieldPath, Unreadable, split_field_path

SET_TAG = "punctual-set"
MAX_SET_NAME_CHARACTERS = 128
UNKNOWN_ARTIFACT_ID = "unknown"  # until the content of a file was read
# Every task type counts as known here, because only the server knows which ones it offers.
ALL_FEATURES = Features(
    frozenset({"event", "http", "lambda", "sqs", "script", "container"}),
    artifacts=True,
    secrets=True,
    node_paths=True,
)


@dataclass(frozen=True)
class DeclaredJob:
    """One job of a file."""

    name: str
    fields: Mapping[str, Any]  # as the API takes them, with the tag of the set
    set_name: str | None
    paused: bool | None  # None leaves the job as it is
    job_id: str | None  # needed where several jobs have the same name
    position: "FilePosition"
    artifact: Path | None = None  # the file or folder that the task runs


@dataclass(frozen=True)
class FilePosition:
    """The position of a job in its file."""

    document: Document
    path: FieldPath
    file: str
    defaults: FieldPath = ("defaults",)

    def fault(self, field: str, message: str) -> Fault:
        return Fault(self.line_of(field), message, self.file)

    def line_of(self, field: str = "") -> int:
        """Return the line of a field, given by its name in the API."""
        parts = tuple(split_field_path(field)) if field else ()
        job_path = (*self.path, *parts)
        # A field that the job itself lacks may come from the defaults of the file.
        if parts and (*self.path, parts[0]) not in self.document.lines:
            default_path = (*self.defaults, *parts)
            if (*self.defaults, parts[0]) in self.document.lines:
                return self.document.line_of(default_path)
        return self.document.line_of(job_path)


class DeclaredGroup(NamedTuple):
    set_name: str | None
    jobs: tuple[DeclaredJob, ...]


class Source(NamedTuple):
    """One file to read."""

    name: str  # as error messages show it
    text: str
    folder: Path = Path()  # paths of artifacts begin here


class InvalidFiles(Exception):
    """All faults of the files, by file and line."""

    def __init__(self, faults: Sequence[Fault], is_syntax: bool = False) -> None:
        self.faults = sort_faults(faults)
        self.is_syntax = is_syntax
        super().__init__(f"{len(self.faults)} errors")


def sort_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: (fault.file, fault.line, fault.message)))


def load_groups(sources: Sequence[Source]) -> list[DeclaredGroup]:
    """Return every document of every file, or raise `InvalidFiles` with all faults of all jobs."""
    documents_by_source = _read_documents(sources)
    faults: list[Fault] = []
    loaded: list[DeclaredGroup] = []
    for source, documents_of_file in documents_by_source:
        file_faults: list[Fault] = []
        loaded += [_parse_group(document, source, file_faults) for document in documents_of_file]
        if not documents_of_file:
            file_faults.append(
                Fault(1, "the file is empty; it must have `jobs`, and may have `set`")
            )
        faults += [fault._replace(file=source.name) for fault in file_faults]
    _add_duplicate_faults(loaded, faults)
    for group in loaded:
        for job in group.jobs:
            faults.extend(field_faults(job, None, EPOCH, ALL_FEATURES))
    if faults:
        raise InvalidFiles(faults)
    return loaded


def _read_documents(sources: Sequence[Source]) -> list[tuple[Source, list[Document]]]:
    """Return the documents of each file. All files must be readable before fields are checked."""
    faults: list[Fault] = []
    documents_by_source = []
    for source in sources:
        try:
            documents_by_source.append((source, parse_documents(source.text)))
        except Unreadable as error:
            faults += [fault._replace(file=source.name) for fault in error.faults]
    if faults:
        raise InvalidFiles(faults, is_syntax=True)
    return documents_by_source


def _parse_group(document: Document, source: Source, faults: list[Fault]) -> DeclaredGroup:
    value = document.value
    if isinstance(value, list):
        value = {"jobs": value}
        document = Document(
            value,
            {("jobs", *path): line for path, line in document.lines.items()}
            | {(): document.lines[()]},
        )
    if not isinstance(value, dict) or not isinstance(value.get("jobs"), list | None):
        faults.append(Fault(document.line_of(("jobs",)), "a file must have `jobs`, a list"))
        return DeclaredGroup(None, ())
    for name in value:
        if name not in ("set", "defaults", "jobs"):
            message = f"{name} is not a field of a file; a file has set, defaults and jobs"
            faults.append(Fault(document.line_of((name,)), message))
    defaults = value.get("defaults") or {}
    if not isinstance(defaults, dict):
        faults.append(Fault(document.line_of(("defaults",)), "defaults must be fields of jobs"))
        defaults = {}
    set_name = _parse_set_name(document, value.get("set"), faults)
    jobs = [
        _parse_job(
            FilePosition(document, ("jobs", index), source.name),
            job,
            defaults,
            set_name,
            source.folder,
            faults,
        )
        for index, job in enumerate(value.get("jobs") or ())
    ]
    return DeclaredGroup(set_name, tuple(job for job in jobs if job is not None))


def _parse_set_name(document: Document, value: Any, faults: list[Fault]) -> str | None:
    if value is None:
        return None
    if (
        isinstance(value, str)
        and 1 <= len(value) <= MAX_SET_NAME_CHARACTERS
        and value.isprintable()
    ):
        return value
    message = f"set must be text of 1 to {MAX_SET_NAME_CHARACTERS} characters"
    faults.append(Fault(document.line_of(("set",)), message))
    return None


def _parse_job(
    position: FilePosition,
    job: Any,
    defaults: Mapping[str, Any],
    set_name: str | None,
    folder: Path,
    faults: list[Fault],
) -> DeclaredJob | None:
    if not isinstance(job, dict):
        faults.append(
            Fault(position.line_of(), "a job must be an object with fields, such as name: …")
        )
        return None
    fields = _merge_defaults(defaults, job)
    paused, job_id = fields.pop("paused", None), fields.pop("job_id", None)
    if not isinstance(paused, bool | None):
        faults.append(Fault(position.line_of("paused"), "paused must be true or false"))
    if not isinstance(job_id, str | None):
        faults.append(Fault(position.line_of("job_id"), "job_id must be text"))
    name = fields.get("name")
    tags = fields.get("tags")
    if isinstance(tags, dict) and SET_TAG in tags:
        message = f"apply writes the tag {SET_TAG}; name the set above the jobs"
        faults.append(Fault(position.line_of(f"tags.{SET_TAG}"), message))
    if fields.get("schedule_type") == "IMMEDIATE":
        message = (
            "a declared job must have a schedule; run a job immediately with `punctual jobs create`"
        )
        faults.append(Fault(position.line_of("schedule_type"), message))
    if set_name is not None and isinstance(tags, dict | None):
        fields["tags"] = {**(tags or {}), SET_TAG: set_name}
    shown_name = name if isinstance(name, str) else "a job"
    is_paused = bool(paused) if paused is not None else None
    artifact = _take_artifact(position, fields, folder, faults)
    return DeclaredJob(shown_name, fields, set_name, is_paused, job_id, position, artifact)


def _take_artifact(
    position: FilePosition, fields: dict[str, Any], folder: Path, faults: list[Fault]
) -> Path | None:
    """Return the path of `task.artifact`, which stands for the `artifact_id` of its content."""
    task = fields.get("task")
    if not isinstance(task, dict) or "artifact" not in task:
        return None
    text = task["artifact"]
    message = ""
    if "artifact_id" in task:
        message = "task.artifact must not be sent together with artifact_id: name one of them"
    elif not isinstance(text, str) or not text:
        message = "task.artifact must be the path of a file or a folder"
    elif not (folder / text).exists():
        message = f"task.artifact: there is no file {folder / text}"
    if message:
        faults.append(Fault(position.line_of("task.artifact"), message))
    others = {name: value for name, value in task.items() if name != "artifact"}
    fields["task"] = {**others, "artifact_id": UNKNOWN_ARTIFACT_ID}
    return None if message else folder / text


def _merge_defaults(defaults: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults with a job's own fields over them. Tags of both are merged."""
    merged = {**defaults, **job}
    default_tags, job_tags = defaults.get("tags"), job.get("tags")
    if isinstance(default_tags, dict) and isinstance(job_tags, dict):
        merged["tags"] = {**default_tags, **job_tags}
    return merged


def _add_duplicate_faults(declared_groups: Sequence[DeclaredGroup], faults: list[Fault]) -> None:
    """Add a fault for each job that is declared a second time in any file."""
    positions: dict[tuple[str | None, str, str | None], FilePosition] = {}
    for group in declared_groups:
        for job in group.jobs:
            if "name" not in job.fields:
                continue
            position = job.position
            first_position = positions.setdefault((group.set_name, job.name, job.job_id), position)
            if first_position is not position:
                line = first_position.line_of("name")
                location = (
                    f"line {line}"
                    if first_position.file == position.file
                    else f"{first_position.file}:{line}"
                )
                message = f"{job.name} is declared twice, first on {location}"
                faults.append(position.fault("name", message))


def field_faults(
    job: DeclaredJob, present: Mapping[str, Any] | None, now: datetime, features: Features
) -> Iterator[Fault]:
    """Yield the faults that the API's rules find.

    `present` is the job document to change, if any.
    """
    try:
        parsed = parse_object(msgspec.json.encode(job.fields))
        if present is None:
            new_job(parsed, now, features)
        else:
            changed_job(dict(present), parsed, now, features)
    except Invalid as error:
        for field, message in error.errors:
            yield job.position.fault(field, f"{job.name}: {field}: {message}")
    except (RequestRejected, ValueError, RecursionError) as error:
        yield job.position.fault("", f"{job.name}: {error}")
