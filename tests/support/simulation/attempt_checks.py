"""Check how attempts follow each other, from executors' reports and from leases."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from punctual.domain.job_state import JobState, Rules
from punctual.domain.run import Lease, Reason, Run, RunStatus
from punctual.engine.ports.rows import JobKey

SKEW = timedelta(seconds=5)  # the largest difference of two clocks
MAX_LOST_ATTEMPTS = 5  # attempts
ROUNDING = timedelta(milliseconds=1)
LETTERS = {RunStatus.FAILED: "F", RunStatus.TIMED_OUT: "T"}
RETURNS = [15, 30, 60, 120, 240, 300]  # seconds until a returned run is tried again


@dataclass
class Reports:
    """The reports of executors, by token."""

    ends: dict[tuple[JobKey, str, int], RunStatus] = field(default_factory=dict)
    # True if the attempt had begun
    returns: dict[tuple[JobKey, str, int], bool] = field(default_factory=dict)


def check_attempt(
    reports: Reports,
    key: JobKey,
    was: Run,
    run: Run,
    rules: Rules,
    lease: Lease | None,
    now: datetime,
) -> None:
    """Check a run after its holder lost or gave up its token."""
    token = (key, was.run_id, was.token)
    reported, returned = reports.ends.get(token), reports.returns.get(token)
    letters = run.past_attempts.removeprefix(was.past_attempts)
    is_lost = "L" in letters or run.reason is Reason.LOST
    if was.cancel_reason:
        stops = run.status in (RunStatus.CANCELLED, RunStatus.SUCCESS)
        assert stops, f"rule 5: {was.run_id} was cancelled, and is {run.status}"
    if run.status in (RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.TIMED_OUT) and not is_lost:
        assert reported is run.status, f"rule 4: {run.status}, and its holder reported {reported}"
    if is_lost and returned is None:
        until = lease.until if lease is not None else (was.attempt_at or was.changed_at)
        assert until <= now + SKEW, f"its holder had until {until}, and counts as lost"
    if run.status is RunStatus.CANCELLED and not (letters or returned is not None):
        stopped = was.cancel_reason or reported is RunStatus.CANCELLED
        assert stopped, f"{was.run_id} is cancelled while it runs, without a stop request"
    failures, losses = len(was.past_attempts.replace("L", "")), was.past_attempts.count("L")
    if run.status is RunStatus.FAILED and is_lost:
        assert rules.at_most_once or losses + 1 == MAX_LOST_ATTEMPTS, (
            f"failed after {losses + 1} lost attempts"
        )
    elif run.status in (RunStatus.FAILED, RunStatus.TIMED_OUT):
        assert rules.at_most_once or failures == rules.max_retries, (
            f"{run.status} after {failures} retries of {rules.max_retries}"
        )
    if run.status in (RunStatus.WAITING, RunStatus.QUEUED):
        _check_again(run, letters, rules, reported, returned, failures)


def _check_again(
    run: Run,
    letters: str,
    rules: Rules,
    reported: RunStatus | None,
    returned: bool | None,
    failures: int,
) -> None:
    """Check that a new try is within the retries, and after the delay of its rules."""
    if not letters:  # returned before it began
        assert returned is not None, "the run is queued again, and its holder did not return it"
        assert not returned, "the run was returned after it began, but counts as not begun"
        assert not rules.at_most_once, "AT_MOST_ONCE: returned, and tried again"
        if run.reason is Reason.BACKOFF:
            assert run.next_at is not None
            seconds = RETURNS[min(run.return_count - 1, len(RETURNS) - 1)]
            assert run.next_at - run.changed_at == timedelta(seconds=seconds)
        return
    assert not rules.at_most_once, "AT_MOST_ONCE: tried again"
    if letters == "L":
        return
    assert reported is not None, "the run is tried again without a report of its holder"
    assert LETTERS.get(reported) == letters, (
        f"its holder reported {reported}, and {letters} is stored"
    )
    assert failures < rules.max_retries, f"tried again after {failures} retries"
    assert run.next_at is not None
    retry = rules.retry
    whole = min(retry.backoff_seconds * retry.multiplier**failures, retry.max_backoff_seconds)
    least = whole / 2 if retry.jitter else whole
    waits = run.next_at - run.changed_at
    assert timedelta(seconds=least) - ROUNDING <= waits <= timedelta(seconds=whole) + ROUNDING, (
        f"the run waits {waits} after {failures + 1} failures"
    )


def rules_of(old: JobState, new: JobState, definition: int) -> Rules:
    return {**new.rules, **old.rules}[definition]
