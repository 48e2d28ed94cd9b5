"""The claims of one executor: leases are renewed beside the work, and lost attempts stop."""

from collections.abc import Callable, Sequence

import msgspec

from punctual.domain.durations import BEAT, HOLD
from punctual.domain.run import Reason, Run
from punctual.engine.execution.executor import Assignment, Executor, RenewalResult
from punctual.engine.ports.attempts import Stoppable
from punctual.engine.ports.rows import Key

_BEAT = BEAT.total_seconds()


class _Held(msgspec.Struct):
    assignment: Assignment
    stop: Stoppable
    beaten: float  # monotonic, as is `renewed`; a set wall clock would stop renewals
    renewed: float
    beats: int = 0


class LeaseKeeper:
    """Keeps the leases of running attempts.

    One thread adds and removes attempts, and another may renew leases. An attempt is stopped only
    through its `stop`.
    """

    def __init__(self, executor: Executor, monotonic: Callable[[], float]) -> None:
        self._executor = executor
        self._monotonic = monotonic
        self._held: dict[tuple[str, int], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, assignment: Assignment, stop: Stoppable) -> None:
        now = self._monotonic()
        self._held[_mark(assignment)] = _Held(assignment, stop, now, now)

    def holds(self, run: Run) -> bool:
        return (run.run_id, run.token) in self._held

    def let_go(self, assignment: Assignment) -> None:
        self._held.pop(_mark(assignment), None)

    def stop(self, run_ids: Sequence[str]) -> None:
        for held in list(self._held.values()):
            if held.assignment.run.run_id in run_ids:
                held.stop.stop("CANCEL")

    def names(self) -> list[str]:
        """Return the names of the jobs with held runs."""
        return sorted(held.assignment.body.name for held in list(self._held.values()))

    def stop_all(self) -> None:
        for held in list(self._held.values()):
            held.stop.stop("SHUTDOWN")

    def beat(self, early: bool = False) -> list[Assignment]:
        """Renew the leases that are due, or all if `early`. Return those with a first renewal.

        From now on a timer ends each of these leases.
        """
        now = self._monotonic()
        all_held = list(self._held.values())
        due = [held for held in all_held if early or now - held.beaten >= _BEAT]
        new = [held for held in due if not held.beats]
        known = [held for held in due if held.beats]
        try:
            for first, group in ((True, new), (False, known)):
                if group:
                    found = self._executor.beat([_claim(held) for held in group], first)
                    for held, alive in zip(group, found, strict=True):
                        _note(held, alive, now)
        finally:
            self.end_the_lost()
        return [held.assignment for held in new]

    def end_the_lost(self) -> None:
        for held in list(self._held.values()):
            if self.is_lost(held.assignment):
                held.stop.stop("LOST")

    def is_lost(self, assignment: Assignment) -> bool:
        """Return True if the lease is so old that another executor may hold the run."""
        held = self._held.get(_mark(assignment))
        return held is not None and self._monotonic() - held.renewed > HOLD.total_seconds()

    def next_beat(self) -> float | None:
        """Return when the next renewal is due, by the monotonic clock."""
        return min((held.beaten + _BEAT for held in list(self._held.values())), default=None)


def _mark(assignment: Assignment) -> tuple[str, int]:
    return assignment.run.run_id, assignment.run.token


def _claim(held: _Held) -> tuple[Key, str, int]:
    run = held.assignment.run
    return held.assignment.key, run.run_id, run.token


def _note(held: _Held, alive: RenewalResult, now: float) -> None:
    held.beaten = now
    held.beats += 1
    if not alive.held:
        held.stop.stop("LOST")
        return
    held.renewed = now
    if alive.cancel is not Reason.NONE:
        held.stop.stop("CANCEL")
