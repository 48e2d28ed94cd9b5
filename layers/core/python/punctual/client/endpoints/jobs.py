"""The calls on jobs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from msgspec import UNSET

from punctual.client.answers.versions import JobVersion
from punctual.client.call_steps import ClientSettings, Steps, Stream, send_request
from punctual.client.calls.batching import chunk_key, split_into_chunks, submit_chunk
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.errors import Misuse, PunctualError
from punctual.client.fields import (
    JobChanges,
    JobHealth,
    JobSort,
    JobStatusName,
    MisfirePolicy,
    NewJob,
    ScheduleType,
    TimeValue,
)
from punctual.client.job import Accepted, Backfill, Batch, Declined, Explanation, Job, JobStatus
from punctual.client.model import (
    convert_model,
    convert_times,
    decode_json,
    decode_model,
    required_field,
)
from punctual.client.run import Run
from punctual.client.run_watch import wait_for_run
from punctual.client.wire import (
    Repeat,
    Request,
    build_path,
    encode_body,
    idempotency_headers,
    query_parameters,
)

Version = int | str | Job  # "*" and None match any version


def create(
    settings: ClientSettings, *, idempotency_key: str | None = None, **fields: Unpack[NewJob]
) -> Steps[Job]:
    """Create a job. Retries of the request create only one job."""
    key_headers = idempotency_headers(
        settings.new_idempotency_key() if idempotency_key is None else idempotency_key
    )
    request = Request(
        "POST", "/jobs", body=encode_body(fields), headers=key_headers, repeat=Repeat.SAFE
    )
    return decode_model(Job, (yield from send_request(settings, request)))


def create_many(
    settings: ClientSettings,
    jobs: Iterable[Mapping[str, object]],
    *,
    idempotency_key: str | None = None,
) -> Steps[Batch]:
    """Create jobs in as few requests as possible. Each job is accepted or declined on its own.

    All jobs are encoded before the first request, so an invalid value sends nothing.
    """
    batch_key = settings.new_idempotency_key() if idempotency_key is None else idempotency_key
    results: list[Accepted | Declined] = []
    for number, chunk in enumerate(list(split_into_chunks(jobs))):
        try:
            results += yield from submit_chunk(settings, chunk, chunk_key(batch_key, number))
        except PunctualError as error:
            error.idempotency_key = batch_key
            if results:
                error.add_note(
                    f"{len(results)} earlier jobs were answered. Repeat the call to continue."
                )
            raise
    return Batch(tuple(results), batch_key)


def list_jobs(
    settings: ClientSettings,
    *,
    status: JobStatusName | Sequence[JobStatusName] | None = None,
    schedule_type: ScheduleType | None = None,
    name: str | None = None,
    name_prefix: str | None = None,
    text: str | None = None,
    created_by: str | None = None,
    tags: Mapping[str, str] | None = None,
    health: JobHealth | None = None,
    sort: JobSort | None = None,
    recent: int | None = None,
    limit: int | None = None,
) -> Stream[Job]:
    """Yield the jobs that match all filters, at most `limit` of them.

    `text` is searched in names and tags. The newest job is the first, unless `sort` says otherwise.
    With `recent`, each job has the outcomes of so many of its last runs, 30 at most.
    """
    filters = query_parameters(
        status=status,
        schedule_type=schedule_type,
        name=name,
        name_prefix=name_prefix,
        text=text,
        created_by=created_by,
        tag=[f"{key}:{value}" for key, value in (tags or {}).items()],
        health=health,
        sort=sort,
        recent=recent,
    )
    return stream_pages(
        settings, "/jobs", filters, "jobs", lambda value: convert_model(Job, value), limit
    )


def get(settings: ClientSettings, job: JobRef) -> Steps[Job]:
    path = yield from _job_path(settings, job)
    request = Request("GET", path, repeat=Repeat.READS)
    return decode_model(Job, (yield from send_request(settings, request)))


def id_of(settings: ClientSettings, job: JobRef) -> Steps[str]:
    """Return the id of a job. An id is not checked, so only a name takes a call."""
    return (yield from job_id_of(settings, job))


def update(
    settings: ClientSettings,
    job: JobRef,
    *,
    if_match: Version | None = None,
    **changes: Unpack[JobChanges],
) -> Steps[Job]:
    """Change the given fields. With `if_match`, change them only if the job has this version."""
    path = yield from _job_path(settings, job)
    return (yield from _send_change(settings, "PATCH", path, if_match, changes))


def cancel(settings: ClientSettings, job: JobRef, *, if_match: Version | None = None) -> Steps[Job]:
    """Cancel the job and stop its live runs. A repeated call changes nothing."""
    path = yield from _job_path(settings, job)
    return (yield from _send_change(settings, "DELETE", path, if_match))


def pause(
    settings: ClientSettings,
    job: JobRef,
    *,
    until: TimeValue | None = None,
    note: str | None = None,
    if_match: Version | None = None,
) -> Steps[Job]:
    """Pause the schedule. Running attempts continue.

    At `until` the job resumes by itself. A second call replaces `until` and `note`.
    """
    content = {
        name: value for name, value in (("until", until), ("note", note)) if value is not None
    }
    path = yield from _job_path(settings, job, "pause")
    return (yield from _send_change(settings, "POST", path, if_match, content))


def resume(
    settings: ClientSettings,
    job: JobRef,
    *,
    missed: MisfirePolicy | None = None,
    if_match: Version | None = None,
) -> Steps[Job]:
    """Resume the schedule.

    `missed` is the policy for occurrences during the pause. Without it, the job's misfire policy
    applies.
    """
    content = {} if missed is None else {"missed": missed}
    path = yield from _job_path(settings, job, "resume")
    return (yield from _send_change(settings, "POST", path, if_match, content))


def run(
    settings: ClientSettings,
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
    key_headers = idempotency_headers(
        settings.new_idempotency_key() if idempotency_key is None else idempotency_key
    )
    content = encode_body({} if payload is UNSET else {"payload": payload})
    path = yield from _job_path(settings, job, "runNow")
    request = Request("POST", path, body=content, headers=key_headers, repeat=Repeat.SAFE)
    started_run = decode_model(Run, (yield from send_request(settings, request)))
    return (yield from wait_for_run(settings, started_run, timeout)) if wait else started_run


def backfill(
    settings: ClientSettings, job: JobRef, from_: TimeValue, to: TimeValue, *, dry_run: bool = False
) -> Steps[Backfill]:
    """Run the occurrences in the range that did not run. With `dry_run`, only count them."""
    content = encode_body({"from": from_, "to": to, "dry_run": dry_run})
    repeat = Repeat.READS if dry_run else Repeat.NEVER
    path = yield from _job_path(settings, job, "backfill")
    request = Request("POST", path, body=content, repeat=repeat)
    value = decode_json((yield from send_request(settings, request)))
    return Backfill(required_field(value, "runs"), convert_times(value.get("times", [])))


def explain(
    settings: ClientSettings, job: JobRef, at: TimeValue | None = None
) -> Steps[Explanation]:
    """Return the outcome at a past or future time, and its reason.

    Without `at`, explain the last due time. A text without an offset is in the job's time zone.
    """
    path = yield from _job_path(settings, job, "explain")
    request = Request("GET", path, query_parameters(at=at), repeat=Repeat.READS)
    return decode_model(Explanation, (yield from send_request(settings, request)))


def versions(
    settings: ClientSettings, job: JobRef, *, limit: int | None = None
) -> Stream[JobVersion]:
    """Yield the versions of the job, newest first, at most `limit` of them."""
    path = yield from _job_path(settings, job, "versions")
    yield from stream_pages(
        settings, path, (), "versions", lambda value: convert_model(JobVersion, value), limit
    )


def status(settings: ClientSettings, job: JobRef) -> Steps[JobStatus]:
    path = yield from _job_path(settings, job, "status")
    request = Request("GET", path, repeat=Repeat.READS)
    return decode_model(JobStatus, (yield from send_request(settings, request)))


def _job_path(settings: ClientSettings, job: JobRef, *parts: str) -> Steps[str]:
    return build_path("jobs", (yield from job_id_of(settings, job)), *parts)


def _send_change(
    settings: ClientSettings,
    method: str,
    job_path: str,
    if_match: Version | None,
    fields: Any = None,
) -> Steps[Job]:
    headers = () if if_match is None else (("if-match", _version_tag(if_match)),)
    content = None if fields is None else encode_body(fields)
    request = Request(method, job_path, body=content, headers=headers, repeat=Repeat.SAFE)
    return decode_model(Job, (yield from send_request(settings, request)))


def _version_tag(reference: Version) -> str:
    """
    >>> _version_tag(3), _version_tag("*")
    ('"3"', '*')
    """
    version = str(reference.version if isinstance(reference, Job) else reference)
    if version != "*" and not (version.isascii() and version.isdigit()):
        raise Misuse(f"if_match must be a job, its version, or '*'; got {version!r}.")
    return "*" if version == "*" else f'"{version}"'
