"""Writes the list of runs over all jobs, from changes of job states and from job states."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.aws.dynamodb.lists.runs import LIVE_RUN_RETENTION, RunEntry, TenantRunList
from punctual.aws.dynamodb.stream_records import Record
from punctual.aws.ports import AwsPorts
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, task_type_of
from punctual.domain.run import Run
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.changes.run_results import RunResults
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import JobKey, JobLabel, RunKey, RunRow
from punctual.engine.queries.run_views import run_of_waiting
from punctual.lambdas.status.changes import Changes, RunChange
from punctual.lambdas.status.definitions import DefinitionCache

LONG_LIVED_RUN_AGE = timedelta(hours=1)  # from this age on the daily walk writes a live run again


class RunListWriter:
    def __init__(
        self, run_list: TenantRunList, history: History, definitions: DefinitionCache
    ) -> None:
        self._run_list = run_list
        self._history = history
        self._definitions = definitions

    def write_changes(
        self, changes: Sequence[tuple[Record, Changes]], now: datetime
    ) -> Mapping[RunKey, RunRow]:
        """Write each run that changed in its last form: live, ended or withdrawn. Return them.

        A run that ends within the batch takes one entry, like a run that begins in it.
        """
        last_changes = {
            RunKey(record.state.tenant, record.state.job_id, change.run.run_id): (record, change)
            for record, job_changes in changes
            for change in job_changes.runs
        }
        if not last_changes:
            return {}
        labels = self._load_labels(record.state for record, _ in last_changes.values())
        rows = [_listed(row, labels) for row in self._rows(last_changes, now)]
        self._run_list.append(
            [
                RunEntry(row, record.sequence, change.after is None)
                for row, (record, change) in zip(rows, last_changes.values(), strict=True)
                if row.expires_at > now
            ]
        )
        return dict(zip(last_changes, rows, strict=True))

    def write_long_lived(self, states: Sequence[JobState], now: datetime) -> int:
        """Write the entries of live runs again, before they expire. Return their number.

        The stream has told of a run once, when it last changed. A younger run needs no second
        entry.
        """
        long_lived = [
            (state, run)
            for state in states
            if not state.is_blank
            for run in _live_runs(state)
            if run.changed_at <= now - LONG_LIVED_RUN_AGE
        ]
        if not long_lived:
            return 0
        labels = self._load_labels(state for state, _ in long_lived)
        self._run_list.append(
            [
                RunEntry(_listed(_live_row(state, None, run, now), labels), state.version)
                for state, run in long_lived
            ]
        )
        return len(long_lived)

    def _load_labels(self, states: Iterable[JobState]) -> Mapping[JobKey, JobLabel]:
        """Return the labels of these jobs by their definitions in force."""
        ids = {
            key: (key, state.current_rules.definition_ref)
            for state in states
            for key in [JobKey(state.tenant, state.job_id)]
        }
        heads = self._definitions.load(ids.values())
        return {
            key: JobLabel(heads[definition_id].name, heads[definition_id].tags)
            for key, definition_id in ids.items()
            if definition_id in heads
        }

    def _rows(
        self, changes: Mapping[RunKey, tuple[Record, RunChange]], now: datetime
    ) -> Iterator[RunRow]:
        """Yield the row of each run. Those of ended runs are history rows."""
        ended = {
            key: record_change
            for key, record_change in changes.items()
            if record_change[1].has_ended
        }
        claimed = [
            key
            for key, (_, change) in ended.items()
            if change.run.token and not change.run.inline_output
        ]
        stored_rows = self._history.get(claimed, now) if claimed else {}
        results = RunResults(self._history)
        for key, (record, change) in changes.items():
            if key not in ended:
                yield _live_row(record.state, record.old, change.run, record.changed_at)
            elif key in stored_rows:
                yield stored_rows[key]
            else:
                yield _ended_row(key, record, change.run, results, now)


def build_run_list_writer(ports: AwsPorts) -> RunListWriter:
    return RunListWriter(ports.run_index, ports.history, DefinitionCache(ports.job_states))


def _ended_row(key: RunKey, record: Record, run: Run, results: RunResults, now: datetime) -> RunRow:
    """Return the row of a run without a history row, by the results of its last attempt."""
    detail = results.stored_result(key, run, now)
    expires_at = (run.ended_at or run.changed_at) + HISTORY_RETENTION
    task_type = task_type_of(run, record.new, record.old)
    return RunRow(key.tenant, key.job_id, run, expires_at, TZDATA_VERSION, detail, task_type)


def _live_row(state: JobState, old: JobState | None, run: Run, at: datetime) -> RunRow:
    return RunRow(
        *(state.tenant, state.job_id, run, at + LIVE_RUN_RETENTION, TZDATA_VERSION),
        task_type=task_type_of(run, state, old),
    )


def _live_runs(state: JobState) -> Iterable[Run]:
    yield from state.runs
    for waiting in state.wait_queue:
        yield run_of_waiting(state, waiting)


def _listed(row: RunRow, labels: Mapping[JobKey, JobLabel]) -> RunRow:
    """Return the row with its label, and without values that lists do not show.

    Lists show only that an output exists.
    """
    detail = replace(row.detail, output=b"") if row.detail.output else row.detail
    run = replace(row.run, nonce="", inline_output="")
    return replace(row, run=run, detail=detail, label=labels.get(JobKey(row.tenant, row.job_id)))
