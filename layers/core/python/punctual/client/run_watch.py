"""Wait for the end of a run by the change feed.

The feed says when to read the run. An entry has no attempts, and a waiting run is QUEUED in it. So
the run itself is read after each entry that differs from what is known.
"""

from collections import deque
from datetime import timedelta
from functools import partial
from math import inf

from punctual.client.answers.changes import Change
from punctual.client.call_steps import (
    ClientSettings,
    Item,
    Steps,
    Stream,
    each_item,
    send_request,
)
from punctual.client.endpoints.changes import ANSWER_SECONDS, Follower, reconnecting
from punctual.client.errors import WaitTimeout
from punctual.client.model import decode_model
from punctual.client.run import Run
from punctual.client.wire import Repeat, Request, build_path

MAX_WATCH_POLL_SECONDS = 3.0  # between two reads of a feed that does not wait
RUN_READ_SECONDS = 60.0  # a run is read so often also without an entry


class RunWatch:
    """Reads a run now, and again after each of its changes. `run` is its last known state."""

    def __init__(
        self,
        settings: ClientSettings,
        ids: tuple[str, str],
        run: Run | None = None,
        steady_deadline: float = inf,
    ) -> None:
        self.run = run
        self._settings = settings
        self._ids = ids
        self._steady_deadline = steady_deadline
        self._steady_read = 0.0
        self._follower = Follower(
            settings,
            job_id=ids[0],
            run_id=ids[1],
            kind="run",
            max_poll_seconds=MAX_WATCH_POLL_SECONDS,
        )

    @property
    def is_over(self) -> bool:
        return self._settings.steady_clock() >= self._steady_deadline

    @property
    def server_waits(self) -> bool:
        return self._follower.server_waits

    def begin(self) -> Steps[Run]:
        """Return the run of now. The cursor comes first, so that no change falls in between.

        A run that has ended needs no call.
        """
        if self.run is not None and self.run.ended:
            return self.run
        yield from reconnecting(self._settings, self._follower.begin, self._steady_deadline)
        return (yield from self._read())

    def next(self, max_seconds: float = inf) -> Steps[Run]:
        """Return the run after its next change, or as it is after this time."""
        clock = self._settings.steady_clock
        steady_end = min(clock() + max_seconds, self._steady_deadline)
        while (now := clock()) < steady_end:
            page = yield from self._follower.read(steady_end - now)
            is_changed = page.gap or any(self._differs(change) for change in page.changes[-1:])
            if is_changed or clock() >= self._steady_read + RUN_READ_SECONDS:
                break
        else:
            if self.run is not None and not self.is_over:
                return self.run
        return (yield from self._read())

    def _differs(self, change: Change) -> bool:
        return change.run is None or self.run is None or state_of(change.run) != state_of(self.run)

    def _read(self) -> Steps[Run]:
        read = partial(read_run, self._settings, *self._ids, self._steady_deadline)
        run = yield from reconnecting(self._settings, read, self._steady_deadline)
        self._steady_read = self._settings.steady_clock()
        self.run = run or self.run
        assert self.run is not None  # only a wait with a deadline can end without an answer
        return self.run


def read_run(
    settings: ClientSettings, job_id: str, run_id: str, steady_end: float = inf
) -> Steps[Run]:
    path = build_path("jobs", job_id, "runs", run_id)
    steady_deadline = None if steady_end == inf else steady_end + ANSWER_SECONDS
    request = Request("GET", path, repeat=Repeat.READS)
    return decode_model(Run, (yield from send_request(settings, request, steady_deadline)))


def state_of(run: Run) -> tuple[str, int | None, str | None]:
    """Return what a change of a run shows in: its status, its attempt and its reason."""
    return run.status, run.attempt_number, None if run.reason is None else run.reason.code


def watch_run(settings: ClientSettings, run: Run, timeout: float | timedelta | None) -> Stream[Run]:
    """Yield the run after each change. Raise WaitTimeout after `timeout` seconds."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    deadline = inf if seconds is None else settings.steady_clock() + seconds
    watch = RunWatch(settings, (run.job_id, run.run_id), run, deadline)
    run = yield from watch.begin()
    while True:
        yield Item(run)
        if run.ended:
            return
        if watch.is_over:
            raise _wait_timeout(run, seconds or 0)
        run = yield from watch.next()


def wait_for_run(
    settings: ClientSettings, run: Run, timeout: float | timedelta | None
) -> Steps[Run]:
    last_run = deque([run], maxlen=1)
    yield from each_item(watch_run(settings, run, timeout), last_run.append)
    return last_run[0]


def _wait_timeout(run: Run, seconds: float) -> WaitTimeout:
    text = (
        f"Run {run.run_id} of job {run.job_id} is {run.status} after {seconds:g} s. "
        "It continues. Wait longer, or cancel it."
    )
    return WaitTimeout(text, run)
