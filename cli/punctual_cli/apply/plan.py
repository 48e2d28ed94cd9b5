"""Plan the steps that turn the present jobs into the declared jobs. Nothing is changed here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from punctual.web.features import Features
from punctual.web.models.job import READ_ONLY_FIELDS
from punctual.web.models.schedule_types import TYPES_OF_FIELD
from punctual_cli.apply.fields import Difference, change_of, differences, whole
from punctual_cli.apply.file import SET_TAG, Declared, Group, wrong_fields
from punctual_cli.apply.yaml_lines import Fault

ALIVE = ("SCHEDULED", "PAUSED")
Job = Mapping[str, Any]  # as the API shows it


@dataclass(frozen=True)
class Create:
    declared: Declared
    key: str  # two clients that apply the same file at once create one job


@dataclass(frozen=True)
class Change:
    declared: Declared
    present: Job
    differences: tuple[Difference, ...]
    sent: Mapping[str, Any]
    pause: Literal["pause", "resume"] | None
    adopted: bool  # it had no set before


@dataclass(frozen=True)
class Prune:
    present: Job
    set_name: str


@dataclass(frozen=True)
class Plan:
    creates: tuple[Create, ...] = ()
    changes: tuple[Change, ...] = ()
    prunes: tuple[Prune, ...] = ()
    unchanged: tuple[Declared, ...] = ()
    left: tuple[Prune, ...] = ()  # in a set but not in the file, so --prune cancels them

    @property
    def steps(self) -> int:
        return len(self.creates) + len(self.changes) + len(self.prunes)


class Present:
    """The present jobs, by set and name and by id."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._named: dict[tuple[str | None, str], list[Job]] = {}
        self._by_id: dict[str, Job] = {}
        for job in jobs:
            # A job that ran at once has no schedule to declare.
            if job["schedule_type"] != "IMMEDIATE":
                self._named.setdefault((set_of(job), job["name"]), []).append(job)
                self._by_id[job["job_id"]] = job

    def meant(self, declared: Declared) -> list[Job]:
        """Return the jobs that a declaration may mean.

        Several are returned if they share the name.
        """
        if declared.job_id is not None:
            found = self._by_id.get(declared.job_id)
            return [] if found is None else [found]
        own = _standing(self._named.get((declared.set_name, declared.name), []))
        if own or declared.set_name is None:
            return own
        # Adopt a job without a set. A second job of this name would double its runs.
        return [job for job in self._named.get((None, declared.name), []) if job["status"] in ALIVE]

    def of_set(self, name: str) -> list[Job]:
        return [
            job
            for (set_name, _), jobs in self._named.items()
            if set_name == name
            for job in jobs
            if job["status"] in ALIVE
        ]

    def ended(self, declared: Declared) -> str:
        """Return the id of the last cancelled job with this name."""
        jobs = self._named.get((declared.set_name, declared.name), [])
        return max((job["job_id"] for job in jobs if job["status"] == "CANCELLED"), default="")


def set_of(job: Job) -> str | None:
    found: str | None = (job.get("tags") or {}).get(SET_TAG)
    return found


def _standing(jobs: Sequence[Job]) -> list[Job]:
    """Return the live jobs, or else the newest completed one."""
    alive = [job for job in jobs if job["status"] in ALIVE]
    completed = [job for job in jobs if job["status"] == "COMPLETED"]
    return alive or sorted(completed, key=lambda job: str(job["created_at"]))[-1:]


def plan(
    groups: Sequence[Group],
    jobs: Iterable[Job],
    prune: bool,
    now: datetime,
    features: Features,
) -> tuple[Plan, list[Fault]]:
    """Return the plan, and the faults that prevent it, each with its line."""
    present = Present(jobs)
    faults: list[Fault] = []
    creates: list[Create] = []
    changes: list[Change] = []
    unchanged: list[Declared] = []
    kept: set[str] = set()
    for declared in (job for group in groups for job in group.jobs):
        meant = present.meant(declared)
        faults.extend(_against(declared, meant, now, features))
        if not meant:
            creates.append(Create(declared, _key(declared, present)))
            continue
        kept.update(job["job_id"] for job in meant)
        change = _change(declared, meant[0])
        if change is None:
            unchanged.append(declared)
        else:
            changes.append(change)
    sets = dict.fromkeys(group.set_name for group in groups if group.set_name is not None)
    gone = [
        Prune(job, name)
        for name in sets
        for job in present.of_set(name)
        if job["job_id"] not in kept
    ]
    found = Plan(
        tuple(creates),
        tuple(changes),
        tuple(gone) if prune else (),
        tuple(unchanged),
        () if prune else tuple(gone),
    )
    return found, faults


def _against(
    declared: Declared, meant: Sequence[Job], now: datetime, features: Features
) -> Iterable[Fault]:
    place = declared.place
    if declared.job_id is not None and not meant:
        yield place.fault("job_id", f"{declared.name}: there is no such job")
    elif len(meant) > 1:
        ids = ", ".join(str(job["job_id"]) for job in meant)
        text = f"{len(meant)} jobs have this name ({ids}): give one's id as job_id"
        yield place.fault("name", f"{declared.name}: {text}")
    elif meant and meant[0]["status"] == "CANCELLED":
        text = "the job of this id was cancelled: leave job_id out to make it anew"
        yield place.fault("job_id", f"{declared.name}: {text}")
    else:
        yield from wrong_fields(declared, _document(meant[0]) if meant else None, now, features)


def _document(job: Job) -> dict[str, Any]:
    """Return a job as the server stores it, without nulls and fields of other schedule types."""
    kind = job["schedule_type"]
    return {
        name: value
        for name, value in job.items()
        if value is not None
        and name not in READ_ONLY_FIELDS
        and kind in TYPES_OF_FIELD.get(name, (kind,))
    }


def _change(declared: Declared, present: Job) -> Change | None:
    # A default that fills an empty field is not a change of the file. A new schedule type is.
    found = [
        one
        for one in differences(whole(present), whole(declared.fields))
        if one.old is not None or one.path.partition(".")[0] in declared.fields
    ]
    is_paused = present["status"] == "PAUSED"
    pause: Literal["pause", "resume"] | None = None
    if declared.paused is not None and present["status"] in ALIVE and declared.paused != is_paused:
        pause = "pause" if declared.paused else "resume"
    if not found and pause is None:
        return None
    adopted = declared.set_name is not None and set_of(present) is None
    sent = change_of(found, declared.fields)
    return Change(declared, present, tuple(found), sent, pause, adopted)


def _key(declared: Declared, present: Present) -> str:
    """Return an idempotency key. It is equal for equal declarations, and changes after a cancel."""
    said = [declared.set_name, declared.name, dict(declared.fields), present.ended(declared)]
    text = msgspec.json.encode(said, order="deterministic")
    return f"apply/{blake2b(text, digest_size=16).hexdigest()}"
