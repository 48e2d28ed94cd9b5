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
from typing import Any, NamedTuple

import msgspec

from punctual.domain.errors import Invalid
from punctual.domain.schedules.timezones import EPOCH
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.http.problems import RequestRejected
from punctual.web.models.job_rules import changed_job, new_job
from punctual_cli.apply.json_lines import documents
from punctual_cli.apply.yaml_lines import Document, Fault, Path, Unreadable, places

SET_TAG = "punctual-set"
MOST_SET = 128
# Every task type counts as known here, because only the server knows which ones it offers.
ANYWHERE = Features(
    frozenset({"event", "http", "lambda", "sqs", "script", "container"}), True, True
)


@dataclass(frozen=True)
class Declared:
    """One job of a file."""

    name: str
    fields: Mapping[str, Any]  # as the API takes them, with the tag of the set
    set_name: str | None
    paused: bool | None  # None leaves the job as it is
    job_id: str | None  # needed where several jobs have the same name
    place: "Place"


@dataclass(frozen=True)
class Place:
    """The position of a job in its file."""

    document: Document
    path: Path
    file: str
    defaults: Path = ("defaults",)

    def fault(self, field: str, message: str) -> Fault:
        return Fault(self.line(field), message, self.file)

    def line(self, field: str = "") -> int:
        """Return the line of a field, given by its name in the API."""
        parts = tuple(places(field)) if field else ()
        own = (*self.path, *parts)
        # A field that the job itself lacks may come from the defaults of the file.
        if parts and (*self.path, parts[0]) not in self.document.lines:
            given = (*self.defaults, *parts)
            if (*self.defaults, parts[0]) in self.document.lines:
                return self.document.line(given)
        return self.document.line(own)


class Group(NamedTuple):
    set_name: str | None
    jobs: tuple[Declared, ...]


class Source(NamedTuple):
    """One file to read."""

    name: str  # as error messages show it
    text: str


class Wrong(Exception):
    """All faults of the files, by file and line."""

    def __init__(self, faults: Sequence[Fault], is_syntax: bool = False) -> None:
        self.faults = in_order(faults)
        self.is_syntax = is_syntax
        super().__init__(f"{len(self.faults)} wrong")


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: (fault.file, fault.line, fault.message)))


def groups(sources: Sequence[Source]) -> list[Group]:
    """Return every document of every file, or raise `Wrong` with all faults of all jobs."""
    read = _read(sources)
    faults: list[Fault] = []
    found: list[Group] = []
    for source, documents_of_file in read:
        of_file: list[Fault] = []
        found += [_group(document, source.name, of_file) for document in documents_of_file]
        if not documents_of_file:
            of_file.append(
                Fault(1, "the file is empty: it needs `jobs`, and a `set` that names it")
            )
        faults += [fault._replace(file=source.name) for fault in of_file]
    _name_doubles(found, faults)
    for group in found:
        for job in group.jobs:
            faults.extend(wrong_fields(job, None, EPOCH, ANYWHERE))
    if faults:
        raise Wrong(faults)
    return found


def _read(sources: Sequence[Source]) -> list[tuple[Source, list[Document]]]:
    """Return the documents of each file. All files must be readable before fields are checked."""
    faults: list[Fault] = []
    found = []
    for source in sources:
        try:
            found.append((source, documents(source.text)))
        except Unreadable as error:
            faults += [fault._replace(file=source.name) for fault in error.faults]
    if faults:
        raise Wrong(faults, is_syntax=True)
    return found


def _group(document: Document, file: str, faults: list[Fault]) -> Group:
    value = document.value
    if isinstance(value, list):
        value = {"jobs": value}
        document = Document(
            value,
            {("jobs", *path): n for path, n in document.lines.items()} | {(): document.lines[()]},
        )
    if not isinstance(value, dict) or not isinstance(value.get("jobs"), list | None):
        faults.append(Fault(document.line(("jobs",)), "a file has `jobs`, a list"))
        return Group(None, ())
    for name in value:
        if name not in ("set", "defaults", "jobs"):
            text = f"{name} is not known here: a file has set, defaults and jobs"
            faults.append(Fault(document.line((name,)), text))
    defaults = value.get("defaults") or {}
    if not isinstance(defaults, dict):
        faults.append(Fault(document.line(("defaults",)), "defaults must be fields of jobs"))
        defaults = {}
    set_name = _set_name(document, value.get("set"), faults)
    jobs = [
        _job(Place(document, ("jobs", index), file), job, defaults, set_name, faults)
        for index, job in enumerate(value.get("jobs") or ())
    ]
    return Group(set_name, tuple(job for job in jobs if job is not None))


def _set_name(document: Document, value: Any, faults: list[Fault]) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and 1 <= len(value) <= MOST_SET and value.isprintable():
        return value
    text = f"a set's name is text of 1 to {MOST_SET} characters"
    faults.append(Fault(document.line(("set",)), text))
    return None


def _job(
    place: Place, job: Any, defaults: Mapping[str, Any], set_name: str | None, faults: list[Fault]
) -> Declared | None:
    if not isinstance(job, dict):
        faults.append(Fault(place.line(), "a job is a list of fields, such as name: …"))
        return None
    fields = _merged(defaults, job)
    paused, job_id = fields.pop("paused", None), fields.pop("job_id", None)
    if not isinstance(paused, bool | None):
        faults.append(Fault(place.line("paused"), "paused must be true or false"))
    if not isinstance(job_id, str | None):
        faults.append(Fault(place.line("job_id"), "job_id must be text"))
    name = fields.get("name")
    tags = fields.get("tags")
    if isinstance(tags, dict) and SET_TAG in tags:
        text = f"the tag {SET_TAG} is written by apply: name the set above the jobs"
        faults.append(Fault(place.line(f"tags.{SET_TAG}"), text))
    if fields.get("schedule_type") == "IMMEDIATE":
        text = "a declared job has a time: run at once with `punctual jobs create`"
        faults.append(Fault(place.line("schedule_type"), text))
    if set_name is not None and isinstance(tags, dict | None):
        fields["tags"] = {**(tags or {}), SET_TAG: set_name}
    shown = name if isinstance(name, str) else "a job"
    return Declared(
        shown, fields, set_name, bool(paused) if paused is not None else None, job_id, place
    )


def _merged(defaults: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults with a job's own fields over them. Tags of both are merged."""
    found = {**defaults, **job}
    common, own = defaults.get("tags"), job.get("tags")
    if isinstance(common, dict) and isinstance(own, dict):
        found["tags"] = {**common, **own}
    return found


def _name_doubles(found: Sequence[Group], faults: list[Fault]) -> None:
    """Add a fault for each job that is declared a second time in any file."""
    first: dict[tuple[str | None, str, str | None], Place] = {}
    for group in found:
        for job in group.jobs:
            if "name" not in job.fields:
                continue
            place = job.place
            known = first.setdefault((group.set_name, job.name, job.job_id), place)
            if known is not place:
                line = known.line("name")
                where = f"line {line}" if known.file == place.file else f"{known.file}:{line}"
                text = f"{job.name} is declared twice, first on {where}"
                faults.append(place.fault("name", text))


def wrong_fields(
    job: Declared, present: Mapping[str, Any] | None, now: datetime, features: Features
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
            yield job.place.fault(field, f"{job.name}: {field}: {message}")
    except (RequestRejected, ValueError, RecursionError) as error:
        yield job.place.fault("", f"{job.name}: {error}")
