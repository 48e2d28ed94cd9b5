"""Compares two job states and returns the changes of the job and of each run."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import ENDED_RUN_STATUSES, Run, RunStatus
from punctual.domain.task_limits import LATER_STARTING_TASK_TYPES, MAX_WAITED_SCRIPT_SECONDS
from punctual.engine.ports.quotas import EndedClaim
from punctual.engine.queries.run_views import run_of_waiting


class JobChange(NamedTuple):
    before: JobStatus | None  # None: the job is new
    after: JobStatus | None  # None: the job has expired
    reason: str


class RunChange(NamedTuple):
    before: Run | None
    after: Run | None  # None: the run was fired ahead of time and withdrawn

    @property
    def run(self) -> Run:
        run = self.after or self.before
        assert run is not None
        return run

    @property
    def has_ended(self) -> bool:
        return self.after is not None and self.after.status in ENDED_RUN_STATUSES


class Changes(NamedTuple):
    job: JobChange | None
    runs: tuple[RunChange, ...]


def compare_states(old: JobState | None, new: JobState | None) -> Changes:
    """Return the changes between two job states. A blank state counts as no job."""
    before = None if old is None or old.is_blank else old
    after = None if new is None or new.is_blank else new
    return Changes(_job_change(before, after), _run_changes(before, after))


def ended_claims(old: JobState | None, new: JobState | None) -> Iterator[EndedClaim]:
    """Yield the claims of detached runners and containers that the change has ended.

    Only they may hold a place beyond the invocation of an executor.
    """
    if old is None:
        return
    held_tokens = {} if new is None else {run.run_id: run.token for run in new.runs if run.is_held}
    for run in old.runs:
        if run.is_held and held_tokens.get(run.run_id) != run.token:
            rules = old.rules[run.definition]
            is_script = rules.task_type == "script"
            # A script with a short timeout is handed over only with an artifact, or late.
            is_detached = (
                rules.timeout_seconds > MAX_WAITED_SCRIPT_SECONDS
                or run.status is RunStatus.CLAIMED
                or bool(run.runner_id)
            )
            if rules.task_type in LATER_STARTING_TASK_TYPES or (is_script and is_detached):
                yield EndedClaim(old.tenant, run.nonce, is_script)


def _job_change(old: JobState | None, new: JobState | None) -> JobChange | None:
    if old is None:
        return None if new is None else JobChange(None, new.status, "CREATED")
    if new is None:
        return JobChange(old.status, None, "EXPIRED")
    if old.status is new.status:
        return None if old.edition == new.edition else JobChange(old.status, new.status, "CHANGED")
    reason = new.status.value
    if new.status is JobStatus.SCHEDULED:
        reason = "RESUMED" if old.status is JobStatus.PAUSED else "REOPENED"
    return JobChange(old.status, new.status, reason)


def _run_changes(old: JobState | None, new: JobState | None) -> tuple[RunChange, ...]:
    """Return runs that are new, changed or gone.

    An ended run leaves its job state without a change.
    """
    before, after = _runs_by_id(old), _runs_by_id(new)
    changed = [
        RunChange(before.get(run_id), run)
        for run_id, run in after.items()
        if run_id not in before or _compared_values(before[run_id]) != _compared_values(run)
    ]
    removed = [
        RunChange(run, None)
        for run_id, run in before.items()
        if run_id not in after and run.status not in ENDED_RUN_STATUSES
    ]
    return (*changed, *removed)


def _compared_values(run: Run) -> tuple[RunStatus, int, str, str, int]:
    """Return the values that differ between two states of one run."""
    return run.status, run.token, run.past_attempts, run.reason, run.occurrence_count


def _runs_by_id(state: JobState | None) -> Mapping[str, Run]:
    if state is None:
        return {}
    waiting = (run_of_waiting(state, waiting_run) for waiting_run in state.wait_queue)
    return {run.run_id: run for run in (*state.unrecorded, *waiting, *state.runs)}
