"""The claims of one executor. Leases are renewed during the work, and lost attempts stop."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from punctual.domain.leases import RENEWAL_INTERVAL, RENEWAL_TIMEOUT
from punctual.domain.run import Reason, Run
from punctual.engine.execution.executor import Assignment, Executor, RenewalResult
from punctual.engine.ports.rows import JobKey

_RENEWAL_INTERVAL_SECONDS = RENEWAL_INTERVAL.total_seconds()


class Stoppable(Protocol):
    """Work that can be stopped."""

    def request_stop(self, reason: Literal["CANCEL", "SHUTDOWN", "LOST"], /) -> None: ...


class _HeldRun(msgspec.Struct):
    assignment: Assignment
    work: Stoppable
    # By the monotonic clock, as `renewed_steady`. A set wall clock would stop renewals.
    renewal_tried_steady: float
    renewed_steady: float
    renewal_count: int = 0


class LeaseKeeper:
    """Keeps the leases of running attempts.

    One thread adds and removes attempts, and another may renew leases. An attempt is stopped only
    through `request_stop`.
    """

    def __init__(self, executor: Executor, steady: Callable[[], float]) -> None:
        self._executor = executor
        self._steady = steady
        self._held_runs: dict[tuple[str, int], _HeldRun] = {}

    def __len__(self) -> int:
        return len(self._held_runs)

    def add(self, assignment: Assignment, work: Stoppable) -> None:
        steady = self._steady()
        self._held_runs[_attempt_key(assignment)] = _HeldRun(assignment, work, steady, steady)

    def holds_run(self, run: Run) -> bool:
        return (run.run_id, run.token) in self._held_runs

    def remove(self, assignment: Assignment) -> None:
        self._held_runs.pop(_attempt_key(assignment), None)

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        for held_run in list(self._held_runs.values()):
            if held_run.assignment.run.run_id in run_ids:
                held_run.work.request_stop("CANCEL")

    def job_names(self) -> list[str]:
        """Return the names of the jobs with held runs."""
        return sorted(
            held_run.assignment.definition.name for held_run in list(self._held_runs.values())
        )

    def stop_all(self) -> None:
        for held_run in list(self._held_runs.values()):
            held_run.work.request_stop("SHUTDOWN")

    def renew(self, renews_all: bool = False) -> list[Assignment]:
        """Renew the leases that are due, or all if `renews_all`. Return those with a first renewal.

        From now on a timer ends each of these leases.
        """
        steady = self._steady()
        held_runs = list(self._held_runs.values())
        due = [
            held_run
            for held_run in held_runs
            if renews_all or steady - held_run.renewal_tried_steady >= _RENEWAL_INTERVAL_SECONDS
        ]
        not_renewed = [held_run for held_run in due if not held_run.renewal_count]
        renewed = [held_run for held_run in due if held_run.renewal_count]
        try:
            for is_first, group in ((True, not_renewed), (False, renewed)):
                if group:
                    results = self._executor.renew(
                        [_claim_of(held_run) for held_run in group], is_first
                    )
                    for held_run, result in zip(group, results, strict=True):
                        _record_renewal(held_run, result, steady)
        finally:
            self.stop_lost()
        return [held_run.assignment for held_run in not_renewed]

    def stop_lost(self) -> None:
        for held_run in list(self._held_runs.values()):
            if self.is_lost(held_run.assignment):
                held_run.work.request_stop("LOST")

    def is_lost(self, assignment: Assignment) -> bool:
        """Return True if the lease is so old that another executor may hold the run."""
        held_run = self._held_runs.get(_attempt_key(assignment))
        return (
            held_run is not None
            and self._steady() - held_run.renewed_steady > RENEWAL_TIMEOUT.total_seconds()
        )

    def next_renewal_steady(self) -> float | None:
        """Return when the next renewal is due, by the monotonic clock."""
        return min(
            (
                held_run.renewal_tried_steady + _RENEWAL_INTERVAL_SECONDS
                for held_run in list(self._held_runs.values())
            ),
            default=None,
        )


def _attempt_key(assignment: Assignment) -> tuple[str, int]:
    return assignment.run.run_id, assignment.run.token


def _claim_of(held_run: _HeldRun) -> tuple[JobKey, str, int]:
    run = held_run.assignment.run
    return held_run.assignment.key, run.run_id, run.token


def _record_renewal(held_run: _HeldRun, result: RenewalResult, steady: float) -> None:
    held_run.renewal_tried_steady = steady
    held_run.renewal_count += 1
    if not result.is_held:
        held_run.work.request_stop("LOST")
        return
    held_run.renewed_steady = steady
    if result.cancel_reason is not Reason.NONE:
        held_run.work.request_stop("CANCEL")
