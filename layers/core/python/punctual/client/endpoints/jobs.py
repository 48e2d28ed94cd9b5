"""The calls on jobs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from msgspec import UNSET

from punctual.client.batching import chunks, key_of, settled
from punctual.client.call_steps import Core, Steps, Stream, ask
from punctual.client.errors import Misuse, PunctualError
from punctual.client.fields import JobChanges, JobState, Misfire, Moment, NewJob, ScheduleType
from punctual.client.job import Accepted, Backfill, Batch, Declined, Explanation, Job, JobStatus
from punctual.client.model import one, parsed, part, seen, times
from punctual.client.paging import paged
from punctual.client.poll import until_ended
from punctual.client.run import Run
from punctual.client.wire import Repeat, Request, body, keyed, path, query

JobRef = str | Job
Version = int | str | Job  # "*" and None match any version


def create(
    core: Core, *, idempotency_key: str | None = None, **fields: Unpack[NewJob]
) -> Steps[Job]:
    """Create a job. Retries of the request create only one job."""
    key = keyed(core.new_key() if idempotency_key is None else idempotency_key)
    request = Request("POST", "/jobs", body=body(fields), headers=key, repeat=Repeat.SAFE)
    return one(Job, (yield from ask(core, request)))


def create_many(
    core: Core, jobs: Iterable[Mapping[str, object]], *, idempotency_key: str | None = None
) -> Steps[Batch]:
    """Create jobs in as few requests as possible. Each job is accepted or declined on its own.

    All jobs are encoded before the first request, so an invalid value sends nothing.
    """
    key = core.new_key() if idempotency_key is None else idempotency_key
    results: list[Accepted | Declined] = []
    for number, chunk in enumerate(list(chunks(jobs))):
        try:
            results += yield from settled(core, chunk, key_of(key, number))
        except PunctualError as error:
            error.idempotency_key = key
            if results:
                error.add_note(f"{len(results)} jobs before were answered: the same call goes on.")
            raise
    return Batch(tuple(results), key)


def listed(
    core: Core,
    *,
    status: JobState | Sequence[JobState] | None = None,
    schedule_type: ScheduleType | None = None,
    name_prefix: str | None = None,
    created_by: str | None = None,
    tags: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Stream[Job]:
    """Yield the jobs that match all filters, the newest first, at most `limit` of them."""
    filters = query(
        status=status,
        schedule_type=schedule_type,
        name_prefix=name_prefix,
        created_by=created_by,
        tag=[f"{name}:{value}" for name, value in (tags or {}).items()],
    )
    return paged(core, "/jobs", filters, "jobs", lambda value: seen(Job, value), limit)


def get(core: Core, job: JobRef) -> Steps[Job]:
    request = Request("GET", _path(job), repeat=Repeat.READS)
    return one(Job, (yield from ask(core, request)))


def update(
    core: Core, job: JobRef, *, if_match: Version | None = None, **changes: Unpack[JobChanges]
) -> Steps[Job]:
    """Change the given fields. With `if_match`, change them only if the job has this version."""
    return (yield from _change(core, "PATCH", _path(job), if_match, changes))


def cancel(core: Core, job: JobRef, *, if_match: Version | None = None) -> Steps[Job]:
    """Cancel the job and stop its live runs. A repeated call changes nothing."""
    return (yield from _change(core, "DELETE", _path(job), if_match))


def pause(core: Core, job: JobRef, *, if_match: Version | None = None) -> Steps[Job]:
    """Pause the schedule. Running attempts continue."""
    return (yield from _change(core, "POST", _path(job, "pause"), if_match))


def resume(
    core: Core, job: JobRef, *, missed: Misfire | None = None, if_match: Version | None = None
) -> Steps[Job]:
    """Resume the schedule.

    `missed` is the policy for occurrences during the pause. Without it, the job's misfire policy
    applies.
    """
    sent = {} if missed is None else {"missed": missed}
    return (yield from _change(core, "POST", _path(job, "resume"), if_match, sent))


def run(
    core: Core,
    job: JobRef,
    *,
    payload: Any = UNSET,
    idempotency_key: str | None = None,
    wait: bool = False,
    timeout: float | timedelta | None = None,
) -> Steps[Run]:
    """Start a run now and return it. The schedule does not change.

    With `wait`, return the run after its end, or raise WaitTimeout after `timeout`.
    """
    key = keyed(core.new_key() if idempotency_key is None else idempotency_key)
    sent = body({} if payload is UNSET else {"payload": payload})
    request = Request("POST", _path(job, "runNow"), body=sent, headers=key, repeat=Repeat.SAFE)
    begun = one(Run, (yield from ask(core, request)))
    return (yield from until_ended(core, begun, timeout)) if wait else begun


def backfill(
    core: Core, job: JobRef, from_: Moment, to: Moment, *, dry_run: bool = False
) -> Steps[Backfill]:
    """Run the occurrences in the range that did not run. With `dry_run`, only count them."""
    sent = body({"from": from_, "to": to, "dry_run": dry_run})
    repeat = Repeat.READS if dry_run else Repeat.NEVER
    request = Request("POST", _path(job, "backfill"), body=sent, repeat=repeat)
    value = parsed((yield from ask(core, request)))
    return Backfill(part(value, "runs"), times(value.get("times", [])))


def explain(core: Core, job: JobRef, at: Moment | None = None) -> Steps[Explanation]:
    """Return the outcome at a past or future time, and its reason.

    Without `at`, explain the last due time. A text without an offset is in the job's time zone.
    """
    request = Request("GET", _path(job, "explain"), query(at=at), repeat=Repeat.READS)
    return one(Explanation, (yield from ask(core, request)))


def status(core: Core, job: JobRef) -> Steps[JobStatus]:
    request = Request("GET", _path(job, "status"), repeat=Repeat.READS)
    return one(JobStatus, (yield from ask(core, request)))


def id_of(job: Any) -> str:
    """Return the id of a job, or of an object with a `job_id`."""
    found = job if isinstance(job, str) else getattr(job, "job_id", None)
    if not isinstance(found, str):
        raise Misuse(f"Pass a Job or its job_id, not {job!r:.64}.")
    return found


def _path(job: JobRef, *more: str) -> str:
    return path("jobs", id_of(job), *more)


def _change(
    core: Core, method: str, where: str, if_match: Version | None, sent: Any = None
) -> Steps[Job]:
    headers = () if if_match is None else (("if-match", _version(if_match)),)
    content = None if sent is None else body(sent)
    request = Request(method, where, body=content, headers=headers, repeat=Repeat.SAFE)
    return one(Job, (yield from ask(core, request)))


def _version(wanted: Version) -> str:
    """
    >>> _version(3), _version("*")
    ('"3"', '*')
    """
    version = str(wanted.version if isinstance(wanted, Job) else wanted)
    if version != "*" and not (version.isascii() and version.isdigit()):
        raise Misuse(f"{version!r} is no version: pass the job, its version, or '*'.")
    return "*" if version == "*" else f'"{version}"'
