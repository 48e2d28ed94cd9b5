"""Open failures of a job: one for each kind of error, until a run succeeds.

An entry opens with a run that ends FAILED or TIMED_OUT. A success closes the entries with a last
run that began before the successful run. So a long run that began before a failure and succeeds
after it closes nothing. Cancel and expiry of the job close all.

An acknowledgement belongs to one kind of error. It goes with its entry.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.run import Reason, Run, RunStatus
from punctual.domain.timestamps import Moment

FAILED_STATUSES = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})
MAX_FAILURES_PER_JOB = 20  # a further kind replaces the one that last happened first
MAX_FAILURE_LINE_CHARACTERS = 256  # of the shown line
_KIND_BYTES = 6
_MAX_COMPARED_CHARACTERS = 512
_FIRST_LINE = re.compile(r"\S[^\r\n]*")
# A word with a digit: a number, a time, an id, an address, a version.
_NUMBER = re.compile(r"[\w.:+-]*\d[\w.:+-]*")
_DATE = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* +#"
)
_NUMBERS = re.compile(r"#(?:[\s,/]*#)+")


class Acknowledgement(Struct, frozen=True, omit_defaults=True, gc=False):
    """A person knows of a failure."""

    by: str
    at: Moment
    note: str = ""


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """One kind of error of one job, which has happened since its last success."""

    job_id: str
    kind: str
    error: str  # the first line of the last error
    status: RunStatus
    first_at: Moment
    last_at: Moment
    last_run_id: str
    last_began_at: Moment
    count: int = 1
    acknowledged: Acknowledgement | None = None

    @property
    def failure_id(self) -> str:
        return f"{self.job_id}-{self.kind}"


class EndedRun(Struct, frozen=True, gc=False):
    """What decides about failures of a run that ended."""

    run: Run
    error: str = ""
    exit_code: int | None = None
    http_status: int | None = None


def parse_failure_id(failure_id: str) -> tuple[str, str]:
    """Return the job and the kind of an id. A text that is no id names no job.

    >>> parse_failure_id("01900000-0000-7000-8000-000000000001-a1b2c3d4e5f6")
    ('01900000-0000-7000-8000-000000000001', 'a1b2c3d4e5f6')
    """
    job_id, _, kind = failure_id.rpartition("-")
    return job_id, kind


def after_run(failures: Sequence[Failure], job_id: str, ended: EndedRun) -> Sequence[Failure]:
    """Return the open failures of a job after the end of this run.

    A run that was counted already changes nothing.
    """
    run = ended.run
    if run.status is RunStatus.SUCCESS:
        return [failure for failure in failures if failure.last_began_at >= _began_at(run)]
    if run.status not in FAILED_STATUSES or any(
        failure.last_run_id == run.run_id for failure in failures
    ):
        return failures
    kind = kind_of(ended)
    former = next((failure for failure in failures if failure.kind == kind), None)
    others = [failure for failure in failures if failure.kind != kind]
    if former is None and len(others) >= MAX_FAILURES_PER_JOB:
        others.remove(min(others, key=lambda failure: (failure.last_at, failure.kind)))
    return [*others, _new_failure(job_id, kind, ended) if former is None else _again(former, ended)]


def _new_failure(job_id: str, kind: str, ended: EndedRun) -> Failure:
    run, at = ended.run, _ended_at(ended.run)
    return Failure(job_id, kind, error_line(ended), run.status, at, at, run.run_id, _began_at(run))


def _again(failure: Failure, ended: EndedRun) -> Failure:
    run = ended.run
    return replace(
        failure,
        error=error_line(ended),
        first_at=min(failure.first_at, _ended_at(run)),
        last_at=max(failure.last_at, _ended_at(run)),
        last_run_id=run.run_id,
        last_began_at=max(failure.last_began_at, _began_at(run)),
        count=failure.count + 1,
    )


def _ended_at(run: Run) -> datetime:
    return run.ended_at or run.changed_at


def _began_at(run: Run) -> datetime:
    """Return when the work began. A run that never began counts from its end."""
    return run.attempt_at or _ended_at(run)


def error_line(ended: EndedRun) -> str:
    """Return the first line of the error, or what else is known of it."""
    match = _FIRST_LINE.search(ended.error)
    if match is not None:
        return match[0].rstrip()[:MAX_FAILURE_LINE_CHARACTERS]
    if ended.exit_code is not None:
        return f"exit code {ended.exit_code}"
    if ended.http_status is not None:
        return f"HTTP status {ended.http_status}"
    if ended.run.status is RunStatus.TIMED_OUT:
        return "timed out"
    return "lost" if ended.run.reason is Reason.LOST else "failed"


def kind_of(ended: EndedRun) -> str:
    """Return the kind of an error as a short digest. Ids, numbers and times are left out."""
    match = _FIRST_LINE.search(ended.error[: 2 * _MAX_COMPARED_CHARACTERS])
    line = "" if match is None else match[0][:_MAX_COMPARED_CHARACTERS]
    run = ended.run
    parts = (run.status, run.reason, ended.exit_code, ended.http_status, without_numbers(line))
    text = "\0".join("" if part is None else str(part) for part in parts)
    return blake2b(text.encode(errors="replace"), digest_size=_KIND_BYTES).hexdigest()


def without_numbers(line: str) -> str:
    """Return a line of an error with `#` in place of ids, numbers and times.

    >>> without_numbers("run 7 of 0193e2b4-7b12-7000 failed at 12:00:03 after 1.5 s")
    'run # of # failed at # after # s'
    """
    text = _DATE.sub("#", _NUMBER.sub("#", line))
    return " ".join(_NUMBERS.sub("#", text).split())
