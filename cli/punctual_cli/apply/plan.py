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
from punctual_cli.apply.artifacts import PlannedUpload
from punctual_cli.apply.fields import Difference, fields_to_send, find_differences, whole
from punctual_cli.apply.file import SET_TAG, DeclaredGroup, DeclaredJob, field_faults
from punctual_cli.apply.yaml_lines import Fault

LIVE_JOB_STATUSES: tuple[Literal["SCHEDULED"], Literal["PAUSED"]] = ("SCHEDULED", "PAUSED")
Job = Mapping[str, Any]  # as the API shows it


@dataclass(frozen=True)
class Create:
    declared: DeclaredJob
    idempotency_key: str  # two clients that apply the same file at once create one job


@dataclass(frozen=True)
class Change:
    declared: DeclaredJob
    present: Job
    differences: tuple[Difference, ...]
    changed_fields: Mapping[str, Any]
    pause_action: Literal["pause", "resume"] | None
    joins_set: bool  # it had no set before


@dataclass(frozen=True)
class Prune:
    present: Job
    set_name: str


@dataclass(frozen=True)
class Plan:
    creates: tuple[Create, ...] = ()
    changes: tuple[Change, ...] = ()
    prunes: tuple[Prune, ...] = ()
    unchanged: tuple[DeclaredJob, ...] = ()
    unpruned: tuple[Prune, ...] = ()  # in a set but not in the file, so --prune cancels them
    uploads: tuple[PlannedUpload, ...] = ()  # before all other steps

    @property
    def step_count(self) -> int:
        return len(self.creates) + len(self.changes) + len(self.prunes)


class PresentJobs:
    """The present jobs, by set and name and by id."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._by_name: dict[tuple[str | None, str], list[Job]] = {}
        self._by_id: dict[str, Job] = {}
        for job in jobs:
            if is_declarable(job):
                self._by_name.setdefault((set_name_of(job), job["name"]), []).append(job)
                self._by_id[job["job_id"]] = job

    def find_matches(self, declared: DeclaredJob) -> list[Job]:
        """Return the jobs that a declaration may mean.

        Several are returned if they share the name.
        """
        if declared.job_id is not None:
            job_by_id = self._by_id.get(declared.job_id)
            return [] if job_by_id is None else [job_by_id]
        own_matches = _live_or_completed(self._by_name.get((declared.set_name, declared.name), []))
        if own_matches or declared.set_name is None:
            return own_matches
        # Adopt a job without a set. A second job of this name would double its runs.
        return [
            job
            for job in self._by_name.get((None, declared.name), [])
            if job["status"] in LIVE_JOB_STATUSES
        ]

    def live_jobs_of_set(self, set_name: str) -> list[Job]:
        return [
            job
            for (job_set_name, _), jobs in self._by_name.items()
            if job_set_name == set_name
            for job in jobs
            if job["status"] in LIVE_JOB_STATUSES
        ]

    def last_cancelled_id(self, declared: DeclaredJob) -> str:
        """Return the id of the last cancelled job with this name."""
        jobs = self._by_name.get((declared.set_name, declared.name), [])
        return max((job["job_id"] for job in jobs if job["status"] == "CANCELLED"), default="")


def is_declarable(job: Job) -> bool:
    """Return whether a file can declare the job. A job that ran at once has no schedule."""
    return bool(job["schedule_type"] != "IMMEDIATE")


def set_name_of(job: Job) -> str | None:
    set_name: str | None = (job.get("tags") or {}).get(SET_TAG)
    return set_name


def _live_or_completed(jobs: Sequence[Job]) -> list[Job]:
    """Return the live jobs, or else the newest completed one."""
    live_jobs = [job for job in jobs if job["status"] in LIVE_JOB_STATUSES]
    completed_jobs = [job for job in jobs if job["status"] == "COMPLETED"]
    return live_jobs or sorted(completed_jobs, key=lambda job: str(job["created_at"]))[-1:]


def make_plan(
    groups: Sequence[DeclaredGroup],
    jobs: Iterable[Job],
    prune: bool,
    now: datetime,
    features: Features,
) -> tuple[Plan, list[Fault]]:
    """Return the plan, and the faults that prevent it, each with its line."""
    present = PresentJobs(jobs)
    faults: list[Fault] = []
    creates: list[Create] = []
    changes: list[Change] = []
    unchanged: list[DeclaredJob] = []
    matched_ids: set[str] = set()
    for declared in (job for group in groups for job in group.jobs):
        matches = present.find_matches(declared)
        faults.extend(_match_faults(declared, matches, now, features))
        if not matches:
            creates.append(Create(declared, _idempotency_key(declared, present)))
            continue
        matched_ids.update(job["job_id"] for job in matches)
        change = _plan_change(declared, matches[0])
        if change is None:
            unchanged.append(declared)
        else:
            changes.append(change)
    set_names = dict.fromkeys(group.set_name for group in groups if group.set_name is not None)
    surplus = [
        Prune(job, set_name)
        for set_name in set_names
        for job in present.live_jobs_of_set(set_name)
        if job["job_id"] not in matched_ids
    ]
    result = Plan(
        tuple(creates),
        tuple(changes),
        tuple(surplus) if prune else (),
        tuple(unchanged),
        () if prune else tuple(surplus),
    )
    return result, faults


def _match_faults(
    declared: DeclaredJob, matches: Sequence[Job], now: datetime, features: Features
) -> Iterable[Fault]:
    position = declared.position
    if declared.job_id is not None and not matches:
        yield position.fault("job_id", f"{declared.name}: the job does not exist")
    elif len(matches) > 1:
        ids = ", ".join(str(job["job_id"]) for job in matches)
        message = f"{len(matches)} jobs have this name ({ids}); set job_id to the id of one"
        yield position.fault("name", f"{declared.name}: {message}")
    elif matches and matches[0]["status"] == "CANCELLED":
        message = "the job with this id was cancelled; omit job_id to create a new job"
        yield position.fault("job_id", f"{declared.name}: {message}")
    else:
        yield from field_faults(
            declared, _stored_document(matches[0]) if matches else None, now, features
        )


def _stored_document(job: Job) -> dict[str, Any]:
    """Return a job as the server stores it, without nulls and fields of other schedule types."""
    schedule_type = job["schedule_type"]
    return {
        name: value
        for name, value in job.items()
        if value is not None
        and name not in READ_ONLY_FIELDS
        and schedule_type in TYPES_OF_FIELD.get(name, (schedule_type,))
    }


def _plan_change(declared: DeclaredJob, present: Job) -> Change | None:
    # A default that fills an empty field is not a change of the file. A new schedule type is.
    relevant_differences = [
        difference
        for difference in find_differences(whole(present), whole(declared.fields))
        if difference.old is not None or difference.path.partition(".")[0] in declared.fields
    ]
    is_paused = present["status"] == "PAUSED"
    pause_action: Literal["pause", "resume"] | None = None
    if (
        declared.paused is not None
        and present["status"] in LIVE_JOB_STATUSES
        and declared.paused != is_paused
    ):
        pause_action = "pause" if declared.paused else "resume"
    if not relevant_differences and pause_action is None:
        return None
    joins_set = declared.set_name is not None and set_name_of(present) is None
    changed_fields = fields_to_send(relevant_differences, declared.fields)
    return Change(
        declared, present, tuple(relevant_differences), changed_fields, pause_action, joins_set
    )


def _idempotency_key(declared: DeclaredJob, present: PresentJobs) -> str:
    """Return an idempotency key. It is equal for equal declarations, and changes after a cancel."""
    key_parts = [
        declared.set_name,
        declared.name,
        dict(declared.fields),
        present.last_cancelled_id(declared),
    ]
    text = msgspec.json.encode(key_parts, order="deterministic")
    return f"apply/{blake2b(text, digest_size=16).hexdigest()}"
