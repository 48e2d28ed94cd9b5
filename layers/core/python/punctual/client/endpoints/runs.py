"""The calls on runs."""

import codecs
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from msgspec import UNSET

from punctual.client.call_steps import ClientSettings, Item, Steps, Stream, send_request
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.changes import reconnecting
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.errors import Conflict, Misuse, NotFound, Refused, Unexpected
from punctual.client.fields import ReasonCode, RunStatusName, RunTime, TimeValue, Trigger
from punctual.client.model import convert_model, decode_model
from punctual.client.run import Logs, Output, Run, SavedOutput
from punctual.client.run_watch import RunWatch, read_run, wait_for_run, watch_run
from punctual.client.wire import (
    SUCCESS_STATUSES,
    Answer,
    Repeat,
    Request,
    ResponseFile,
    build_path,
    encode_body,
    idempotency_headers,
    query_parameters,
)

LOG_WAIT_SECONDS = 1.0  # between two reads of a log, if the server waits for changes
# A runner on AWS sends new text each 4 s, and it must be shown within 5 s.
LOG_POLL_SECONDS = 0.5

RunRef = JobRef | Run  # a run, or its job together with `run_id`
_decoder = partial(codecs.getincrementaldecoder("utf-8"), errors="replace")
_REDIRECT_STATUSES = frozenset({302, 303, 307})


def list_runs(
    settings: ClientSettings,
    job: JobRef | None = None,
    *,
    status: RunStatusName | Sequence[RunStatusName] | None = None,
    trigger: Trigger | None = None,
    from_: TimeValue | None = None,
    to: TimeValue | None = None,
    by: RunTime | None = None,
    reason: ReasonCode | Sequence[ReasonCode] | None = None,
    min_duration: float | timedelta | None = None,
    max_duration: float | timedelta | None = None,
    job_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Stream[Run]:
    """Yield runs of one job or of all jobs, the newest first, without their attempts.

    `by` selects the time that `from_` and `to` filter on. It defaults to the scheduled time.
    A duration is that of the last attempt of an ended run, in seconds. `job_name` and `tags`
    select runs of all jobs with that name and these tags. `limit` is the largest number of runs.
    """
    filters = query_parameters(
        status=status,
        trigger=trigger,
        from_=from_,
        to=to,
        by=by,
        reason=reason,
        duration_ms=_duration_range(min_duration, max_duration),
        job_name=job_name,
        tag=[f"{name}:{value}" for name, value in (tags or {}).items()],
    )
    return _stream_runs(settings, job, filters, limit)


def _stream_runs(
    settings: ClientSettings,
    job: JobRef | None,
    filters: tuple[tuple[str, str], ...],
    limit: int | None,
) -> Stream[Run]:
    list_path = "/runs"
    if job is not None:
        list_path = build_path("jobs", (yield from job_id_of(settings, job)), "runs")
    yield from stream_pages(
        settings, list_path, filters, "runs", lambda value: convert_model(Run, value), limit
    )


def _duration_range(low: float | timedelta | None, high: float | timedelta | None) -> str | None:
    """Return the filter of two durations, or None without any.

    >>> _duration_range(timedelta(seconds=1.5), None), _duration_range(None, 0.25)
    ('1500..', '..250')
    """
    if low is None and high is None:
        return None
    return f"{_milliseconds_text(low)}..{_milliseconds_text(high)}"


def _milliseconds_text(duration: float | timedelta | None) -> str:
    if duration is None:
        return ""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 0:
        raise Misuse(f"A duration must not be negative; got {seconds:g} s.")
    return str(round(seconds * 1_000))


def get(settings: ClientSettings, run: RunRef, run_id: str | None = None) -> Steps[Run]:
    """Return a run with all its attempts."""
    return (yield from read_run(settings, *(yield from _run_ids(settings, run, run_id))))


def cancel(settings: ClientSettings, run: RunRef, run_id: str | None = None) -> Steps[Run]:
    """Cancel a run. Raise Conflict if it had already ended."""
    ids = yield from _run_ids(settings, run, run_id)
    request = Request("POST", _run_path(ids, "cancel"), repeat=Repeat.SAFE)
    try:
        return decode_model(Run, (yield from send_request(settings, request)))
    except Conflict as error:
        if not error.uncertain:
            raise
        # An earlier, unanswered attempt of this call may have cancelled the run.
        present_run = yield from read_run(settings, *ids)
        if present_run.status != "CANCELLED":
            raise
        return present_run


def retry(
    settings: ClientSettings,
    run: RunRef,
    run_id: str | None = None,
    *,
    payload: Any = UNSET,
    idempotency_key: str | None = None,
) -> Steps[Run]:
    """Start a new run of the job's current definition, with the payload of this run or another."""
    key_headers = idempotency_headers(
        settings.new_idempotency_key() if idempotency_key is None else idempotency_key
    )
    retry_path = _run_path((yield from _run_ids(settings, run, run_id)), "retry")
    content = encode_body({} if payload is UNSET else {"payload": payload})
    request = Request("POST", retry_path, body=content, headers=key_headers, repeat=Repeat.SAFE)
    return decode_model(Run, (yield from send_request(settings, request)))


def output(settings: ClientSettings, run: RunRef, run_id: str | None = None) -> Steps[Output]:
    """Return the output of a run. `save_output` takes one that is too long for the memory."""
    ids = yield from _run_ids(settings, run, run_id)
    answer, is_truncated = yield from _read_output(settings, ids)
    return Output(answer.body, _content_type(answer), is_truncated)


def save_output(
    settings: ClientSettings,
    run: RunRef,
    run_id: str | None = None,
    *,
    to: str | os.PathLike[str] | BinaryIO,
) -> Steps[SavedOutput]:
    """Write the output of a run to a path or a binary stream, never held in memory as a whole.

    A path gets a new content with each attempt. A stream gets one attempt once it has content.
    """
    file = ResponseFile(to)
    ids = yield from _run_ids(settings, run, run_id)
    answer, is_truncated = yield from _read_output(settings, ids, file)
    return SavedOutput(file.size, _content_type(answer), is_truncated)


def logs(
    settings: ClientSettings, run: RunRef, run_id: str | None = None, *, after: int = 0
) -> Steps[Logs]:
    """Return the log of the current or last attempt so far, from the offset `offset` on."""
    ids = yield from _run_ids(settings, run, run_id)
    pieces: list[bytes] = []
    while True:
        data, next_offset = yield from _read_log_piece(settings, ids, after)
        if not data:
            return Logs(b"".join(pieces).decode(errors="replace"), next_offset)
        pieces.append(data)
        after = next_offset


def follow_logs(
    settings: ClientSettings, run: RunRef, run_id: str | None = None, *, after: int = 0
) -> Stream[str]:
    """Yield the log of each attempt as it grows, until the run has ended."""
    # Log text is not in the change feed. So the log of an attempt that goes on is read again and
    # again. The feed says when the attempt or the run has ended, and is the pause between reads.
    ids = yield from _run_ids(settings, run, run_id)
    run_watch = RunWatch(settings, ids, run if isinstance(run, Run) else None)
    present_run = yield from run_watch.begin()
    decoder = _decoder()
    while True:
        read_piece = partial(_read_log_piece_if_any, settings, ids, after)
        data, after = (yield from reconnecting(settings, read_piece)) or (b"", after)
        if text := decoder.decode(data, final=present_run.ended and not data):
            yield Item(text)
        if data:
            continue
        if present_run.ended:
            return
        attempt_number = present_run.attempt_number
        max_seconds = LOG_WAIT_SECONDS if run_watch.server_waits else LOG_POLL_SECONDS
        is_running = present_run.status == "RUNNING"  # a log grows only then
        present_run = yield from run_watch.next(max_seconds if is_running else inf)
        if present_run.attempt_number != attempt_number:
            after, decoder = 0, _decoder()  # each attempt has its own log


def watch(
    settings: ClientSettings, run: Run, *, timeout: float | timedelta | None = None
) -> Stream[Run]:
    """Yield the run now, and after each change until it has ended.

    Raise WaitTimeout if it has not ended after `timeout`.
    """
    return watch_run(settings, run, timeout)


def wait_for(
    settings: ClientSettings, run: Run, *, timeout: float | timedelta | None = None
) -> Steps[Run]:
    """Return the run after its end. Raise WaitTimeout if it has not ended after `timeout`."""
    return (yield from wait_for_run(settings, run, timeout))


def _read_log_piece(
    settings: ClientSettings, ids: tuple[str, str], offset: int
) -> Steps[tuple[bytes, int]]:
    request = Request(
        "GET", _run_path(ids, "logs"), query_parameters(after=offset), repeat=Repeat.READS
    )
    answer = yield from send_request(settings, request)
    next_offset = answer.headers.get("x-next-offset", "")
    return answer.body, int(next_offset) if next_offset.isdigit() else offset + len(answer.body)


def _read_log_piece_if_any(
    settings: ClientSettings, ids: tuple[str, str], offset: int
) -> Steps[tuple[bytes, int]]:
    """Return the next piece of the log, or no bytes if there is no log yet.

    A 404 is ignored here. The caller reads the run next, which fails if the run does not exist.
    """
    try:
        return (yield from _read_log_piece(settings, ids, offset))
    except NotFound:
        return b"", offset


def _read_output(
    settings: ClientSettings, ids: tuple[str, str], file: ResponseFile | None = None
) -> Steps[tuple[Answer, bool]]:
    """Return the answer with the output, and whether the output is truncated."""
    request = Request(
        "GET",
        _run_path(ids, "output"),
        repeat=Repeat.READS,
        expected=SUCCESS_STATUSES | _REDIRECT_STATUSES,
        to=file,
    )
    answer = yield from send_request(settings, request)
    is_truncated = answer.headers.get("x-output-truncated") == "true"
    if answer.status in _REDIRECT_STATUSES:
        answer = yield from _follow_redirect(settings, answer, file)
    return answer, is_truncated


def _content_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "application/octet-stream")


def _follow_redirect(
    settings: ClientSettings, answer: Answer, file: ResponseFile | None
) -> Steps[Answer]:
    """Fetch the bytes from the redirect target. Its signed URL needs no token."""
    location = answer.headers.get("location", "")
    if not location.startswith(("https://", "http://")):
        raise Unexpected("The server redirected the call without a location.")
    request = Request("GET", location, repeat=Repeat.READS, with_token=False, to=file)
    try:
        return (yield from send_request(settings, request))
    except Refused as error:
        # An error of the store does not concern the caller's token or ids.
        host = urlsplit(location).hostname
        text = f"The store {host} answered {error.status}. Repeat the call."
        raise Unexpected(text, problem=error.problem) from error


def _run_ids(settings: ClientSettings, run: RunRef, run_id: str | None) -> Steps[tuple[str, str]]:
    if run_id is not None:
        return (yield from job_id_of(settings, run)), run_id
    if isinstance(run, Run):
        return run.job_id, run.run_id
    raise Misuse("The arguments must be a Run, or a job and a run_id.")


def _run_path(ids: tuple[str, str], action: str) -> str:
    return build_path("jobs", ids[0], "runs", ids[1], action)
