"""The row of a job in its tenant's list: what filters and orders of lists need, in few bytes.

It is derived from a job state and its definition. The last outcomes are packed on their own,
because they also come from runs that the job state has forgotten.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import Reason, Run, RunStatus
from punctual.domain.schedules.upcoming import may_repeat, upcoming_at
from punctual.domain.utc import EPOCH, MICROSECOND

MAX_RECENT_OUTCOMES = 30  # outcomes that the row of a job keeps
# Codes of packed outcomes. A status keeps its place; new ones are added at the end.
_OUTCOME_STATUSES = (
    RunStatus.SUCCESS,
    RunStatus.FAILED,
    RunStatus.TIMED_OUT,
    RunStatus.CANCELLED,
    RunStatus.SKIPPED,
    RunStatus.MISSED,
)
_TEXT_ID_MARK = b"text of a run id:"  # longer than the 16 bytes of a UUID
_CODE_BY_STATUS = {status: code for code, status in enumerate(_OUTCOME_STATUSES)}


class DefinitionHead(NamedTuple):
    """What lists show and filter of a definition."""

    name: str
    tags: dict[str, str]
    created_by: str


NO_HEAD = DefinitionHead("", {}, "")


class RecentOutcome(NamedTuple):
    scheduled_at: datetime
    run_id: str
    status: RunStatus
    duration: timedelta | None = None  # of a success


class JobRow(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The values of a job in a list, as of one version of its state."""

    edition: int
    definition_ref: str
    name: str
    tags: dict[str, str]
    created_by: str
    status: JobStatus
    kind: ScheduleKind
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None = None  # before it no occurrence is to come
    repeats: bool = False  # whether occurrences may follow the next one
    live_runs: int = 0  # live and waiting runs
    held_runs: int = 0
    has_run: bool = False
    # The earliest due time of a run that waits for nothing of its own job.
    unstarted_due_at: datetime | None = None
    pause_until: datetime | None = None

    @property
    def next_run_at(self) -> datetime | None:
        """Return the next time that lists show and sort by, or None unless SCHEDULED."""
        return self.next_at if self.status is JobStatus.SCHEDULED else None


_encode_row = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(JobRow).decode
_encode_outcomes = msgspec.msgpack.Encoder().encode
_decode_outcomes = msgspec.msgpack.Decoder(list[tuple[int, int, bytes | None, int | None]]).decode


def derive_job_row(state: JobState, definition: DefinitionHead) -> JobRow:
    return JobRow(
        edition=state.edition,
        definition_ref=state.current_rules.definition_ref,
        name=definition.name,
        tags=definition.tags,
        created_by=definition.created_by,
        status=state.status,
        kind=state.kind,
        created_at=state.created_at,
        updated_at=state.updated_at,
        next_at=upcoming_at(state),
        repeats=may_repeat(state),
        live_runs=len(state.runs) + len(state.wait_queue),
        held_runs=sum(run.is_held for run in state.runs),
        has_run=bool(state.latest_run_id),
        unstarted_due_at=min(
            (run.due_at for run in state.runs if _is_startable(run)), default=None
        ),
        pause_until=None if state.pause is None else state.pause.until,
    )


def outcome_of(run: Run) -> RecentOutcome:
    duration = run.duration if run.status is RunStatus.SUCCESS else None
    return RecentOutcome(run.scheduled_at, run.run_id, run.status, duration)


def merge_outcomes(
    stored: Iterable[RecentOutcome], added: Iterable[RecentOutcome]
) -> list[RecentOutcome]:
    """Return the newest outcomes of both, newest first, each run once.

    The order of merges does not matter, and a repeated merge changes nothing.
    """
    by_run_id = {outcome.run_id: outcome for outcome in (*added, *stored)}
    return sorted(by_run_id.values(), reverse=True)[:MAX_RECENT_OUTCOMES]


def pack_row(row: JobRow) -> bytes:
    return _encode_row(row)


def unpack_row(data: bytes) -> JobRow:
    return _decode_row(data)


def pack_outcomes(job_id: str, outcomes: Sequence[RecentOutcome]) -> bytes:
    """Return the outcomes, newest first, in about 13 bytes each.

    Times are differences, and the id of an occurrence follows from its job and its time.
    """
    times = [(outcome.scheduled_at - EPOCH) // MICROSECOND for outcome in outcomes]
    steps = [*times[:1], *(newer - older for newer, older in pairwise(times))]
    return _encode_outcomes(
        [
            (
                _CODE_BY_STATUS[outcome.status],
                step,
                _pack_run_id(job_id, outcome),
                None if outcome.duration is None else outcome.duration // MICROSECOND,
            )
            for outcome, step in zip(outcomes, steps, strict=True)
        ]
    )


def unpack_outcomes(job_id: str, data: bytes) -> list[RecentOutcome]:
    outcomes = []
    microseconds = 0
    for index, (code, step, packed_id, length) in enumerate(_decode_outcomes(data)):
        microseconds = microseconds - step if index else step
        scheduled_at = EPOCH + microseconds * MICROSECOND
        run_id = _unpack_run_id(job_id, scheduled_at, packed_id)
        duration = None if length is None else length * MICROSECOND
        outcomes.append(RecentOutcome(scheduled_at, run_id, _OUTCOME_STATUSES[code], duration))
    return outcomes


def _pack_run_id(job_id: str, outcome: RecentOutcome) -> bytes | None:
    """Return nothing for an occurrence, the bytes of a UUID, or a mark and other text."""
    run_id = outcome.run_id
    if run_id == occurrence_id(job_id, outcome.scheduled_at):
        return None
    try:
        packed = UUID(run_id)
    except ValueError:
        return _TEXT_ID_MARK + run_id.encode()
    return packed.bytes if str(packed) == run_id else _TEXT_ID_MARK + run_id.encode()


def _unpack_run_id(job_id: str, scheduled_at: datetime, packed_id: bytes | None) -> str:
    if packed_id is None:
        return occurrence_id(job_id, scheduled_at)
    if packed_id.startswith(_TEXT_ID_MARK):
        return packed_id.removeprefix(_TEXT_ID_MARK).decode()
    return str(UUID(bytes=packed_id))


def _is_startable(run: Run) -> bool:
    """Return whether only executors, or a limit over several jobs, keep the run from starting."""
    return run.status is RunStatus.QUEUED or (
        run.status is RunStatus.WAITING and run.reason is Reason.RESOURCES
    )
