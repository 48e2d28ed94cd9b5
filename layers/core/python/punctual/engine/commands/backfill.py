"""Find the occurrences of a past range that did not run."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import FieldError, Invalid
from punctual.domain.identifiers import derived_id, occurrence_id, sortable_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import NOT_RUN_STATUSES, Reason, Run, Trigger
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import occurrences
from punctual.domain.utc import MICROSECOND, MILLISECOND
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import DefinitionRow, JobKey, RunKey
from punctual.engine.queries.definitions_over_time import Period, periods
from punctual.engine.queries.slices import Sliced

MAX_BACKFILL_RUNS = 1_000
MAX_BACKFILL_DEFINITIONS = 1_000  # definitions read for one range, one read each
HISTORY_PAGE_SIZE = 200
_ITEMS_PER_STEP = 500  # times handled in one step
T = TypeVar("T")


class _RangeTimes(NamedTuple):
    """The times of a range, and those that `max_runs` may have cut off."""

    times: list[datetime]
    limited_times: list[datetime]


class Backfiller:
    """Finds the runs that a backfill starts."""

    def __init__(self, history: History, definitions: Definitions) -> None:
        self._history = history
        self._definitions = definitions

    def find_missing(
        self,
        key: JobKey,
        state: JobState,
        definition: DefinitionRow,
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
        times, limited_times = yield from self._range_times(key, state, definition, start, end, now)
        ids: dict[datetime, str] = {}
        for batch in _batches(times):
            ids.update((at, occurrence_id(key.job_id, at)) for at in batch)
            yield
        outcomes = yield from self._find_outcomes(key, state, list(ids.values()), now)
        used_ids = _live_run_ids(state) | {run.run_id for run in outcomes.values() if _has_run(run)}
        cut_off_times = self._cut_off_times(key, outcomes, used_ids, ids, limited_times, now)
        open_times = [at for at in times if ids[at] not in used_ids and at not in cut_off_times]
        missing = yield from self._without_backfill(key, state, open_times, now)
        if len(missing) > MAX_BACKFILL_RUNS:
            raise _too_many_occurrences(len(missing))
        return missing

    def _range_times(
        self,
        key: JobKey,
        state: JobState,
        definition: DefinitionRow,
        start: datetime,
        end: datetime,
        now: datetime,
    ) -> Sliced[_RangeTimes]:
        if state.status is JobStatus.SCHEDULED and state.next_at is not None:
            end = min(end, state.next_at)  # the next occurrence gets its outcome from the scheduler
        parts: list[tuple[Period, datetime, datetime]] = []
        for period in self._periods_in_range(key, state, definition, start, end):
            yield
            if period is None:
                continue
            low, high = max(start, period.since or start), min(end, period.until or end)
            if low < high:
                parts.append((period, low - MICROSECOND, high - MICROSECOND))
        if any(period.counts_from_completion for period, *_ in parts):
            text = "an interval that counts from completion has no past times"
            raise Invalid.of(FieldError("from", text))
        count = sum(count_times(period.schedule, low, high) for period, low, high in parts)
        if count > MAX_BACKFILL_RUNS * 10:
            raise _too_many_occurrences(count)
        times: list[datetime] = []
        limited_times: list[datetime] = []
        recorded_since = max(state.created_at, now - HISTORY_RETENTION)
        for period, low, high in parts:
            period_times: list[datetime] = []
            for at in occurrences(period.schedule, low, high):
                period_times.append(at)
                if len(period_times) % _ITEMS_PER_STEP == 0:
                    yield
            times += period_times
            if period.max_runs is not None:
                limited_times += [at for at in period_times if at >= recorded_since]
        return _RangeTimes(sorted(times), sorted(limited_times))

    def _periods_in_range(
        self,
        key: JobKey,
        state: JobState,
        definition: DefinitionRow,
        start: datetime,
        end: datetime,
    ) -> Iterator[Period | None]:
        """Yield the periods of the range, latest first, and None for each other definition."""
        for period in periods(
            state, _limit_definitions(self._definitions.history(key, definition))
        ):
            is_later = period is None or (period.since is not None and period.since >= end)
            yield None if is_later else period
            if period is not None and period.since is not None and period.since <= start:
                return

    def _cut_off_times(
        self,
        key: JobKey,
        outcomes: Mapping[str, Run],
        used_ids: set[str],
        ids: Mapping[datetime, str],
        limited_times: Sequence[datetime],
        now: datetime,
    ) -> set[datetime]:
        """Return the times that never fired because `max_runs` was reached.

        Each occurrence that fired has a recorded outcome, even if it did not run. Bulk entries
        follow each other without overlap. So only the last entry before the range can reach into
        it.
        """
        if not limited_times:
            return set()
        fired_runs = [run for run in outcomes.values() if _counts_as_fired(run)]
        until = sortable_id(limited_times[0] + MILLISECOND, bytes(10))
        earlier_rows = self._history.page(key, until, None, HISTORY_PAGE_SIZE, now)
        fired_runs += [run for run in (row.run for row in earlier_rows) if _counts_as_fired(run)][
            :1
        ]
        spans = sorted((run.scheduled_at, run.last_at or run.scheduled_at) for run in fired_runs)
        span_starts = [span[0] for span in spans]

        def has_fired(at: datetime) -> bool:
            span_count = bisect_right(span_starts, at)
            return ids[at] in used_ids or (span_count > 0 and at <= spans[span_count - 1][1])

        return {at for at in limited_times if not has_fired(at)}

    def _without_backfill(
        self, key: JobKey, state: JobState, times: Sequence[datetime], now: datetime
    ) -> Sliced[Sequence[tuple[str, datetime]]]:
        """Return the times that no backfill has run.

        A MISSED backfill run is repeated with a new id.
        """
        open_occurrences: list[tuple[str, datetime]] = []
        repeats = 0
        while times:
            ids: dict[datetime, str] = {}
            for batch in _batches(times):
                ids.update((at, backfill_id(key.job_id, at, repeats)) for at in batch)
                yield
            outcomes = yield from self._find_outcomes(key, state, list(ids.values()), now)
            used_ids = _live_run_ids(state) | outcomes.keys()
            open_occurrences += [(ids[at], at) for at in times if ids[at] not in used_ids]
            times = [at for at in times if ids[at] in outcomes and not _has_run(outcomes[ids[at]])]
            repeats += 1
        return sorted(open_occurrences, key=lambda id_and_time: id_and_time[1])

    def _find_outcomes(
        self, key: JobKey, state: JobState, ids: Sequence[str], now: datetime
    ) -> Sliced[Mapping[str, Run]]:
        """Return the recorded outcomes of these runs, and the ended runs in the job state."""
        runs = {run.run_id: run for run in state.unrecorded}
        for batch in _batches(ids):
            rows = self._history.get([RunKey(*key, run_id) for run_id in batch], now)
            runs.update((row.run.run_id, row.run) for row in rows.values())
            yield
        return runs


def backfill_id(job_id: str, at: datetime, repeats: int) -> str:
    """Return the id of a backfill run. `repeats` counts the earlier backfill runs of the time."""
    return derived_id(at, job_id, "backfill", at.isoformat(), str(repeats))


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (
        items[index : index + _ITEMS_PER_STEP] for index in range(0, len(items), _ITEMS_PER_STEP)
    )


def _live_run_ids(state: JobState) -> set[str]:
    return {run.run_id for run in state.runs} | {waiting.run_id for waiting in state.wait_queue}


def _has_run(run: Run) -> bool:
    return run.status not in NOT_RUN_STATUSES


def _counts_as_fired(run: Run) -> bool:
    """Return whether the run counts as fired.

    A run in the wait queue is cut off too when the last of `max_runs` starts.
    """
    return run.trigger is Trigger.SCHEDULE and run.reason is not Reason.MAX_RUNS


def _limit_definitions(definitions: Iterable[DefinitionRow]) -> Iterator[DefinitionRow]:
    for count, definition in enumerate(definitions):
        if count == MAX_BACKFILL_DEFINITIONS:
            text = f"must be within the last {MAX_BACKFILL_DEFINITIONS:,} changes of the job"
            raise Invalid.of(FieldError("from", text))
        yield definition


def _too_many_occurrences(count: int) -> Invalid:
    text = f"the range holds {count} occurrences; at most {MAX_BACKFILL_RUNS} can run at once"
    return Invalid.of(FieldError("to", text))
