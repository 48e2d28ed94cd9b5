"""The calls on runs."""

import codecs
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit

from punctual.client.call_steps import Core, Give, Pause, Steps, Stream, ask
from punctual.client.endpoints.jobs import id_of
from punctual.client.errors import Conflict, Misuse, NotFound, Refused, Unexpected
from punctual.client.fields import Moment, RunState, RunTime, Trigger
from punctual.client.job import Job
from punctual.client.model import one, seen
from punctual.client.paging import paged
from punctual.client.poll import LATER, SLOWER, SOON, read_run, until_ended
from punctual.client.run import Logs, Output, Run
from punctual.client.wire import SUCCESSFUL, Answer, Repeat, Request, keyed, path, query

RunRef = str | Job | Run  # a run, or its job together with `run_id`
_decoder = partial(codecs.getincrementaldecoder("utf-8"), errors="replace")
_ELSEWHERE = frozenset({302, 303, 307})


def listed(
    core: Core,
    job: str | Job | None = None,
    *,
    status: RunState | Sequence[RunState] | None = None,
    trigger: Trigger | None = None,
    from_: Moment | None = None,
    to: Moment | None = None,
    by: RunTime | None = None,
    limit: int | None = None,
) -> Stream[Run]:
    """Yield runs of one job or of all jobs, the newest first, without their attempts.

    `by` selects the time that `from_` and `to` filter on. It defaults to the scheduled time.
    `limit` is the largest number of runs.
    """
    filters = query(status=status, trigger=trigger, from_=from_, to=to, by=by)
    where = "/runs" if job is None else path("jobs", id_of(job), "runs")
    return paged(core, where, filters, "runs", lambda value: seen(Run, value), limit)


def get(core: Core, run: RunRef, run_id: str | None = None) -> Steps[Run]:
    """Return a run with all its attempts."""
    return (yield from read_run(core, *_ids(run, run_id)))


def cancel(core: Core, run: RunRef, run_id: str | None = None) -> Steps[Run]:
    """Cancel a run. Raise Conflict if it had already ended."""
    ids = _ids(run, run_id)
    request = Request("POST", _path(ids, "cancel"), repeat=Repeat.SAFE)
    try:
        return one(Run, (yield from ask(core, request)))
    except Conflict as error:
        if not error.uncertain:
            raise
        # An earlier, unanswered attempt of this call may have cancelled the run.
        found = yield from read_run(core, *ids)
        if found.status != "CANCELLED":
            raise
        return found


def retry(
    core: Core, run: RunRef, run_id: str | None = None, *, idempotency_key: str | None = None
) -> Steps[Run]:
    """Start a new run with the payload of this run and the job's current definition."""
    key = keyed(core.new_key() if idempotency_key is None else idempotency_key)
    where = _path(_ids(run, run_id), "retry")
    request = Request("POST", where, headers=key, repeat=Repeat.SAFE)
    return one(Run, (yield from ask(core, request)))


def output(core: Core, run: RunRef, run_id: str | None = None) -> Steps[Output]:
    """Return the output of a run."""
    request = Request(
        "GET",
        _path(_ids(run, run_id), "output"),
        repeat=Repeat.READS,
        expected=SUCCESSFUL | _ELSEWHERE,
    )
    answer = yield from ask(core, request)
    cut = answer.headers.get("x-output-truncated") == "true"
    if answer.status in _ELSEWHERE:
        answer = yield from _fetched(core, answer)
    kind = answer.headers.get("content-type", "application/octet-stream")
    return Output(answer.body, kind, cut)


def logs(core: Core, run: RunRef, run_id: str | None = None, *, after: int = 0) -> Steps[Logs]:
    """Return the log of the current or last attempt so far, from the offset `after` on."""
    ids = _ids(run, run_id)
    pieces: list[bytes] = []
    while True:
        data, following = yield from _piece(core, ids, after)
        if not data:
            return Logs(b"".join(pieces).decode(errors="replace"), following)
        pieces.append(data)
        after = following


def follow_logs(
    core: Core, run: RunRef, run_id: str | None = None, *, after: int = 0
) -> Stream[str]:
    """Yield the log of each attempt as it grows, until the run has ended."""
    ids = _ids(run, run_id)
    decoder = _decoder()
    delay, seen_last = SOON, None
    while True:
        data, after = yield from _piece_if_any(core, ids, after)
        ended = seen_last is not None and seen_last.ended
        if text := decoder.decode(data, final=ended and not data):
            yield Give(text)
        if data:
            delay = SOON
            continue
        if ended:
            return
        now = yield from read_run(core, *ids)
        if seen_last is not None and now.attempt_number != seen_last.attempt_number:
            after, decoder = 0, _decoder()  # each attempt has its own log
        elif not now.ended:
            yield Pause(delay)
            delay = min(LATER, delay * SLOWER)
        seen_last = now


def wait_for(core: Core, run: Run, *, timeout: float | timedelta | None = None) -> Steps[Run]:
    """Return the run after its end. Raise WaitTimeout if it has not ended after `timeout`."""
    return (yield from until_ended(core, run, timeout))


def _piece(core: Core, ids: tuple[str, str], after: int) -> Steps[tuple[bytes, int]]:
    request = Request("GET", _path(ids, "logs"), query(after=after), repeat=Repeat.READS)
    answer = yield from ask(core, request)
    following = answer.headers.get("x-next-offset", "")
    return answer.body, int(following) if following.isdigit() else after + len(answer.body)


def _piece_if_any(core: Core, ids: tuple[str, str], after: int) -> Steps[tuple[bytes, int]]:
    """Return the next piece of the log, or no bytes if there is no log yet.

    A 404 is ignored here. The caller reads the run next, which fails if the run does not exist.
    """
    try:
        return (yield from _piece(core, ids, after))
    except NotFound:
        return b"", after


def _fetched(core: Core, answer: Answer) -> Steps[Answer]:
    """Fetch the bytes from the redirect target. Its signed URL needs no token."""
    where = answer.headers.get("location", "")
    if not where.startswith(("https://", "http://")):
        raise Unexpected("The server sent us on, and did not say where to.")
    request = Request("GET", where, repeat=Repeat.READS, with_token=False)
    try:
        return (yield from ask(core, request))
    except Refused as error:
        # An error of the store does not concern the caller's token or ids.
        host = urlsplit(where).hostname
        text = f"The bytes are kept at {host}, which answers {error.status}: ask for them again."
        raise Unexpected(text, problem=error.problem) from error


def _ids(run: RunRef, run_id: str | None) -> tuple[str, str]:
    if run_id is not None:
        return id_of(run), run_id
    if isinstance(run, Run):
        return run.job_id, run.run_id
    raise Misuse("Pass a Run, or the job_id and the run_id.")


def _path(ids: tuple[str, str], what: str) -> str:
    return path("jobs", ids[0], "runs", ids[1], what)
