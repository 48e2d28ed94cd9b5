"""Which job an argument of a call means: a Job, the id of a job, or an exact name."""

import re
from collections.abc import Sequence
from typing import Any

from punctual.client.call_steps import ClientSettings, Steps, collect_items
from punctual.client.calls.paging import stream_pages
from punctual.client.errors import AmbiguousName, Misuse, NotFound, Problem
from punctual.client.job import Job
from punctual.client.model import convert_model
from punctual.client.wire import query_parameters

JobRef = str | Job
MAX_LISTED_IDS = 5  # of jobs that share a name, in a message
LIVE_JOB_STATUSES = ("SCHEDULED", "PAUSED")

_JOB_ID_FORM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def job_id_of(settings: ClientSettings, job: Any) -> Steps[str]:
    """Return the id of a job. Only a name takes a call.

    A text with the form of an id is an id. A name means the job of exactly this name that has not
    ended, or the newest one if all have ended.
    """
    job_id = parse_job_id(job)
    return (yield from _find_by_name(settings, job)) if job_id is None else job_id


def parse_job_id(job: Any) -> str | None:
    """Return the id of a job, of an object with a `job_id`, or of a text. None means a name."""
    reference = job if isinstance(job, str) else getattr(job, "job_id", None)
    if not isinstance(reference, str) or not reference:
        raise Misuse(f"job must be a Job, its job_id or its name; got {job!r:.64}.")
    if not isinstance(job, str):
        return reference
    return reference.lower() if _JOB_ID_FORM.fullmatch(reference.lower()) else None


def _find_by_name(settings: ClientSettings, name: str) -> Steps[str]:
    live_jobs = yield from _list_named(settings, name, MAX_LISTED_IDS + 1, LIVE_JOB_STATUSES)
    jobs = live_jobs or (yield from _list_named(settings, name, 1))
    if not jobs:
        raise _no_such_job(name)
    if len(jobs) > 1:
        raise _ambiguous_name(name, jobs)
    return jobs[0].job_id


def _list_named(
    settings: ClientSettings, name: str, limit: int, status: Sequence[str] | None = None
) -> Steps[list[Job]]:
    filters = query_parameters(name=name, status=status)
    listed = stream_pages(
        settings, "/jobs", filters, "jobs", lambda value: convert_model(Job, value), limit
    )
    return (yield from collect_items(listed))


def _no_such_job(name: str) -> NotFound:
    text = f"There is no job {name!r}."
    return NotFound(
        f"{text} Check its name, the address of the API, and the tenant of the token.",
        problem=Problem(404, "NOT_FOUND", "Not Found", text),
    )


def _ambiguous_name(name: str, jobs: Sequence[Job]) -> AmbiguousName:
    shown_ids = [job.job_id for job in jobs[:MAX_LISTED_IDS]]
    is_cut = len(jobs) > MAX_LISTED_IDS
    count = f"More than {MAX_LISTED_IDS}" if is_cut else str(len(jobs))
    end = ", …" if is_cut else "."
    text = f"{count} jobs are named {name!r}. Use an id: {', '.join(shown_ids)}{end}"
    return AmbiguousName(
        text,
        problem=Problem(409, "AMBIGUOUS_NAME", "Conflict", text, raw={"job_ids": shown_ids}),
    )
