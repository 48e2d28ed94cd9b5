"""The change feed: one call, and a stream that follows it."""

from collections import OrderedDict
from dataclasses import replace

from punctual.client.answers.changes import Change, ChangePage
from punctual.client.call_steps import ClientSettings, Item, Pause, Steps, Stream, send_request
from punctual.client.errors import Unavailable
from punctual.client.job import Job
from punctual.client.model import decode_model
from punctual.client.wire import Repeat, Request, query_parameters

CHANGE_WAIT_SECONDS = 20  # the longest that the server waits for a change
RECONNECT_PAUSE_SECONDS = 5.0
MAX_RECONNECT_SECONDS = 600.0  # without an answer, after which the stream ends with the error
MAX_KNOWN_VERSIONS = 20_000  # of jobs and runs, to drop repeats


def read_changes(
    settings: ClientSettings,
    *,
    after: str | None = None,
    job_id: str | Job | None = None,
    run_id: str | None = None,
    kind: str | None = None,
    wait_seconds: int = 0,
) -> Steps[ChangePage]:
    """Return the changes since the cursor `after`, or the cursor of now without one."""
    parameters = query_parameters(
        after=after,
        job_id=job_id.job_id if isinstance(job_id, Job) else job_id,
        run_id=run_id,
        kind=kind,
        wait_seconds=wait_seconds or None,
    )
    patient = replace(settings, timeout_seconds=settings.timeout_seconds + wait_seconds)
    request = Request("GET", "/changes", parameters, repeat=Repeat.READS)
    return decode_model(ChangePage, (yield from send_request(patient, request)))


def follow(
    settings: ClientSettings,
    *,
    after: str | None = None,
    job_id: str | Job | None = None,
    run_id: str | None = None,
    kind: str | None = None,
) -> Stream[Change]:
    """Yield every change from the cursor `after` on, or from now on, without an end.

    Repeats are dropped. A lost connection is made again. Where changes are missing, a change of
    the kind `gap` comes: read the lists again then.
    """
    versions = _KnownVersions()
    steady_failure: float | None = None
    while True:
        try:
            page = yield from read_changes(
                settings,
                after=after,
                job_id=job_id,
                run_id=run_id,
                kind=kind,
                wait_seconds=0 if after is None else CHANGE_WAIT_SECONDS,
            )
        except Unavailable:
            steady_failure = steady_failure or settings.steady_clock()
            if settings.steady_clock() - steady_failure > MAX_RECONNECT_SECONDS:
                raise
            yield Pause(RECONNECT_PAUSE_SECONDS)
            continue
        steady_failure = None
        if page.gap:
            versions.clear()
            yield Item(Change(kind="gap"))
        for change in page.changes:
            if versions.is_new(change):
                yield Item(change)
        if page.poll_seconds and after is not None:
            yield Pause(page.poll_seconds)
        after = page.next_cursor


class _KnownVersions:
    """The versions of the jobs and runs that were seen last."""

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str], int] = OrderedDict()

    def is_new(self, change: Change) -> bool:
        if change.kind not in ("job", "run"):
            return True
        key = (change.kind, change.run_id or change.job_id or "")
        if change.state_version <= self._versions.get(key, -1):
            return False
        self._versions[key] = change.state_version
        self._versions.move_to_end(key)
        while len(self._versions) > MAX_KNOWN_VERSIONS:
            self._versions.popitem(last=False)
        return True

    def clear(self) -> None:
        self._versions.clear()
