"""The change feed: one call, and the follower that every wait of the client uses."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf
from typing import TypeVar

from punctual.client.answers.changes import Change, ChangePage
from punctual.client.call_steps import ClientSettings, Item, Pause, Steps, Stream, send_request
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.errors import RateLimited, Unavailable
from punctual.client.model import decode_model
from punctual.client.wire import Repeat, Request, query_parameters

CHANGE_WAIT_SECONDS = 20  # the longest that the server waits for a change
RECONNECT_PAUSE_SECONDS = 5.0
ANSWER_SECONDS = 1.0  # that an answer may come after its wait
EARLY_ANSWER_PAUSE_SECONDS = 0.2
MAX_KNOWN_VERSIONS = 20_000  # of jobs, runs and operations, to drop repeats

T = TypeVar("T")


def read_changes(
    settings: ClientSettings,
    *,
    after: str | None = None,
    job: JobRef | None = None,
    run_id: str | None = None,
    kind: str | None = None,
    wait_seconds: int = 0,
) -> Steps[ChangePage]:
    """Return the changes since the cursor `after`, or the cursor of now without one."""
    job_id = None if job is None else (yield from job_id_of(settings, job))
    filters = _filters(job_id, run_id, kind)
    return (yield from _read(settings, after, filters, wait_seconds))


def follow(
    settings: ClientSettings,
    *,
    after: str | None = None,
    job: JobRef | None = None,
    run_id: str | None = None,
    kind: str | None = None,
) -> Stream[Change]:
    """Yield every change from the cursor `after` on, or from now on, without an end.

    Repeats are dropped. A lost connection is made again, for the `reconnect_seconds` of the
    client's retries. Where changes are missing, a change of the kind `gap` comes: read the lists
    again then.
    """
    job_id = None if job is None else (yield from job_id_of(settings, job))
    follower = Follower(settings, after=after, job_id=job_id, run_id=run_id, kind=kind)
    if after is None:
        yield from follower.begin()
    while True:
        page = yield from follower.read()
        if page.gap:
            yield Item(Change(kind="gap"))
        for change in page.changes:
            yield Item(change)


class Follower:
    """A place in the change feed, from which it is read on.

    A server that can wait answers with the next change. Another one says when to ask again, and
    `max_poll_seconds` bounds this time.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        after: str | None = None,
        job_id: str | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        max_poll_seconds: float = inf,
    ) -> None:
        self._settings = settings
        self._after = after
        self._filters = _filters(job_id, run_id, kind)
        self._max_poll_seconds = max_poll_seconds
        self._versions = _KnownVersions()
        self._steady_next_read = -inf
        self.server_waits = True

    def begin(self) -> Steps[None]:
        """Take the cursor of now. Read the lists after it, so that no change falls in between."""
        self._after = (yield from _read(self._settings, None, self._filters, 0)).next_cursor

    def read(self, max_seconds: float = inf) -> Steps[ChangePage]:
        """Return the next answer without repeats, or no changes if none come in `max_seconds`.

        The server waits for whole seconds, so this may take up to a second longer.
        """
        clock = self._settings.steady_clock
        steady_end = clock() + max_seconds
        pause = self._steady_next_read - clock()
        if pause > 0:
            yield Pause(min(pause, max_seconds))
            if pause >= max_seconds:
                return ChangePage(next_cursor=self._after or "")
        steady_start = clock()
        wait_seconds = ceil(max(0.0, min(CHANGE_WAIT_SECONDS, steady_end - steady_start)))
        page = yield from reconnecting(
            self._settings,
            lambda: _read(self._settings, self._after, self._filters, wait_seconds, steady_end),
            steady_end,
        )
        if page is None:
            return ChangePage(next_cursor=self._after or "")
        self._after = page.next_cursor
        self.server_waits = not page.poll_seconds
        pause = min(page.poll_seconds, self._max_poll_seconds)
        if wait_seconds and not page.changes and clock() - steady_start < wait_seconds / 2:
            pause = max(pause, EARLY_ANSWER_PAUSE_SECONDS)  # a server that stops does not wait
        self._steady_next_read = clock() + pause
        if page.gap:
            self._versions.clear()
        new_changes = filter(self._versions.is_new, page.changes)
        return ChangePage(changes=tuple(new_changes), next_cursor=page.next_cursor, gap=page.gap)


def reconnecting(
    settings: ClientSettings, call: Callable[[], Steps[T]], steady_end: float = inf
) -> Steps[T | None]:
    """Return the answer of a read, or None after `steady_end`.

    While the server restarts or the network fails, the call is repeated.
    """
    steady_failure: float | None = None
    while True:
        try:
            return (yield from call())
        except (Unavailable, RateLimited) as error:
            now = settings.steady_clock()
            if now >= steady_end:
                return None
            steady_failure = now if steady_failure is None else steady_failure
            if now - steady_failure > settings.retries.reconnect_seconds:
                raise
            pause = max(RECONNECT_PAUSE_SECONDS, error.retry_after or 0.0)
            yield Pause(min(pause, steady_end - now))


def _filters(
    job_id: str | None, run_id: str | None, kind: str | None
) -> tuple[tuple[str, str], ...]:
    return query_parameters(job_id=job_id, run_id=run_id, kind=kind)


def _read(
    settings: ClientSettings,
    after: str | None,
    filters: tuple[tuple[str, str], ...],
    wait_seconds: int,
    steady_end: float = inf,
) -> Steps[ChangePage]:
    place = query_parameters(after=after, wait_seconds=wait_seconds or None)
    patient = replace(settings, timeout_seconds=settings.timeout_seconds + wait_seconds)
    request = Request("GET", "/changes", (*place, *filters), repeat=Repeat.READS)
    steady_deadline = None if steady_end == inf else steady_end + ANSWER_SECONDS
    answer = yield from send_request(patient, request, steady_deadline)
    return decode_model(ChangePage, answer)


class _KnownVersions:
    """The versions of the jobs, runs and operations that were seen last."""

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str], int] = OrderedDict()

    def is_new(self, change: Change) -> bool:
        operation_id = change.operation and change.operation.operation_id
        key = (change.kind, operation_id or change.run_id or change.job_id or "")
        if change.state_version <= self._versions.get(key, -1):
            return False
        self._versions[key] = change.state_version
        self._versions.move_to_end(key)
        while len(self._versions) > MAX_KNOWN_VERSIONS:
            self._versions.popitem(last=False)
        return True

    def clear(self) -> None:
        self._versions.clear()
