"""Finds the occurrences of a past range that did not run."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from punctual.domain.durations import RETENTION
from punctual.domain.errors import FieldError, Invalid
from punctual.domain.identifiers import derived_id, occurrence_id, sortable_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import NOT_RUN, Reason, Run, Trigger
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import occurrences
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import DefinitionRow, Key, RunKey
from punctual.engine.queries.definitions_over_time import Period, periods
from punctual.engine.queries.slices import Sliced

MOST = 1_000
CHANGES = 1_000  # definitions read for one range, one read each
_INSTANT = timedelta(microseconds=1)
_ROWS = 200
_PIECE = 500  # times handled in one step
T = TypeVar("T")


class _Times(NamedTuple):
    """The times of a range, and those that `max_runs` may have cut off."""

    all: list[datetime]
    counted: list[datetime]


class Backfiller:
    def __init__(self, history: History, documents: Definitions) -> None:
        self._history = history
        self._documents = documents

    def missing(
        self,
        key: Key,
        head: JobState,
        body: DefinitionRow,
        start: datetime,
        end: datetime,
        now: datetime,
    ) -> Sliced[Sequence[tuple[str, datetime]]]:
        """Return the nominal times in [start, end) without a run, each with a new run id.

        Each time follows the definition in force then, and times before the job follow the first
        one. A run id derives from the time, so a repeated backfill adds no run.
        """
        if end > now:
            raise Invalid.of(FieldError("to", "must not be in the future"))
        if end <= start:
            return []
        times, counted = yield from self._times(key, head, body, start, end, now)
        ids: dict[datetime, str] = {}
        for piece in _pieces(times):
            ids.update((at, occurrence_id(key.job_id, at)) for at in piece)
            yield
        outcomes = yield from self._outcomes(key, head, list(ids.values()), now)
        taken = _alive(head) | {run.run_id for run in outcomes.values() if _ran(run)}
        never = self._cut_off(key, outcomes, taken, ids, counted, now)
        free = [at for at in times if ids[at] not in taken and at not in never]
        missing = yield from self._unfilled(key, head, free, now)
        if len(missing) > MOST:
            raise _too_many(len(missing))
        return missing

    def _times(
        self,
        key: Key,
        head: JobState,
        body: DefinitionRow,
        start: datetime,
        end: datetime,
        now: datetime,
    ) -> Sliced[_Times]:
        if head.state is JobStatus.SCHEDULED and head.next_at is not None:
            end = min(end, head.next_at)  # the next occurrence gets its outcome from the scheduler
        parts: list[tuple[Period, datetime, datetime]] = []
        for period in self._in_force(key, head, body, start, end):
            yield
            if period is None:
                continue
            low, high = max(start, period.since or start), min(end, period.until or end)
            if low < high:
                parts.append((period, low - _INSTANT, high - _INSTANT))
        if any(period.counts_from_completion for period, *_ in parts):
            text = "an interval that counts from completion has no past times"
            raise Invalid.of(FieldError("from", text))
        number = sum(count_times(period.schedule, low, high) for period, low, high in parts)
        if number > MOST * 10:
            raise _too_many(number)
        found: list[datetime] = []
        counted: list[datetime] = []
        on_record = max(head.created_at, now - RETENTION)
        for period, low, high in parts:
            here: list[datetime] = []
            for at in occurrences(period.schedule, low, high):
                here.append(at)
                if len(here) % _PIECE == 0:
                    yield
            found += here
            if period.max_runs is not None:
                counted += [at for at in here if at >= on_record]
        return _Times(sorted(found), sorted(counted))

    def _in_force(
        self, key: Key, head: JobState, body: DefinitionRow, start: datetime, end: datetime
    ) -> Iterator[Period | None]:
        """Yield the periods of the range, latest first, and None for each other definition."""
        for period in periods(head, _bounded(self._documents.history(key, body))):
            is_later = period is None or (period.since is not None and period.since >= end)
            yield None if is_later else period
            if period is not None and period.since is not None and period.since <= start:
                return

    def _cut_off(
        self,
        key: Key,
        outcomes: Mapping[str, Run],
        taken: set[str],
        ids: Mapping[datetime, str],
        counted: Sequence[datetime],
        now: datetime,
    ) -> set[datetime]:
        """Return the times that never fired because `max_runs` was reached.

        Each occurrence that fired has a recorded outcome, even if it did not run. Bulk entries
        follow each other without overlap. So only the last entry before the range can reach into
        it.
        """
        if not counted:
            return set()
        fell = [run for run in outcomes.values() if _fell(run)]
        until = sortable_id(counted[0] + timedelta(milliseconds=1), bytes(10))
        before = self._history.page(key, until, None, _ROWS, now)
        fell += [run for run in (row.run for row in before) if _fell(run)][:1]
        spans = sorted((run.scheduled_at, run.last_at or run.scheduled_at) for run in fell)
        begun = [span[0] for span in spans]

        def has_fallen(at: datetime) -> bool:
            place = bisect_right(begun, at)
            return ids[at] in taken or (place > 0 and at <= spans[place - 1][1])

        return {at for at in counted if not has_fallen(at)}

    def _unfilled(
        self, key: Key, head: JobState, times: Sequence[datetime], now: datetime
    ) -> Sliced[Sequence[tuple[str, datetime]]]:
        """Return the times that no backfill has run.

        A MISSED backfill run is repeated with a new id.
        """
        free: list[tuple[str, datetime]] = []
        again = 0
        while times:
            ids: dict[datetime, str] = {}
            for piece in _pieces(times):
                ids.update((at, backfill_id(key.job_id, at, again)) for at in piece)
                yield
            outcomes = yield from self._outcomes(key, head, list(ids.values()), now)
            taken = _alive(head) | outcomes.keys()
            free += [(ids[at], at) for at in times if ids[at] not in taken]
            times = [at for at in times if ids[at] in outcomes and not _ran(outcomes[ids[at]])]
            again += 1
        return sorted(free, key=lambda found: found[1])

    def _outcomes(
        self, key: Key, head: JobState, ids: Sequence[str], now: datetime
    ) -> Sliced[Mapping[str, Run]]:
        """Return the recorded outcomes of these runs, and the ended runs in the job state."""
        found = {run.run_id: run for run in head.ended}
        for piece in _pieces(ids):
            rows = self._history.get([RunKey(*key, run_id) for run_id in piece], now)
            found.update((row.run.run_id, row.run) for row in rows.values())
            yield
        return found


def backfill_id(job_id: str, at: datetime, again: int) -> str:
    """Return the id of a backfill run. `again` counts the earlier backfill runs of the time."""
    return derived_id(at, job_id, "backfill", at.isoformat(), str(again))


def _pieces(some: Sequence[T]) -> Iterator[Sequence[T]]:
    return (some[index : index + _PIECE] for index in range(0, len(some), _PIECE))


def _alive(head: JobState) -> set[str]:
    return {run.run_id for run in head.runs} | {waiting.run_id for waiting in head.line}


def _ran(run: Run) -> bool:
    return run.status not in NOT_RUN


def _fell(run: Run) -> bool:
    """Return whether the run counts as fired.

    A run in the wait queue is cut off too when the last of `max_runs` starts.
    """
    return run.trigger is Trigger.SCHEDULE and run.reason is not Reason.MAX_RUNS


def _bounded(bodies: Iterable[DefinitionRow]) -> Iterator[DefinitionRow]:
    for number, body in enumerate(bodies):
        if number == CHANGES:
            text = f"lies more than {CHANGES:,} changes of the job back"
            raise Invalid.of(FieldError("from", text))
        yield body


def _too_many(count: int) -> Invalid:
    text = f"the range holds {count} occurrences, {MOST} can be run at once"
    return Invalid.of(FieldError("to", text))
