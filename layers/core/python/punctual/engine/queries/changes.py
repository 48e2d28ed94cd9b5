"""Reads the change feed, and loads the jobs and runs that it only names."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.job_state import JobState
from punctual.domain.schedules.upcoming import next_run_at
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.change_feed import (
    MAX_CHANGES_PER_ANSWER,
    MAX_SHOWN_RUN_IDS,
    Change,
    ChangeFeed,
    ChangeFilters,
    ChangeKind,
    ChangePage,
    JobSummary,
)
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.engine.queries.runs.job_labels import JobLabels, load_readable_states
from punctual.engine.queries.slices import Sliced

CHANGES_PER_STEP = 20  # loaded in a step of half a millisecond


class ChangesSince(NamedTuple):
    """The changes since a cursor. After a gap, the client reads the lists again."""

    changes: Sequence[Change]
    cursor: tuple[str, ...]
    has_more: bool = False
    gap: bool = False
    poll_seconds: int = 0


class ChangeQueries:
    def __init__(self, feed: ChangeFeed, job_states: JobStates, history: History) -> None:
        self._feed = feed
        self._job_states = job_states
        self._history = history
        self._labels = JobLabels(job_states)

    def since(
        self,
        tenant: str,
        cursor: tuple[str, ...] | None,
        filters: ChangeFilters,
        now: datetime,
        is_known: bool = True,
    ) -> Sliced[ChangesSince]:
        """Return the changes since the cursor, or the cursor of now if there is none.

        `is_known` is False for a cursor that cannot be decoded.
        """
        start = self._feed.now(tenant, now)  # read first, so that no change falls between
        if cursor is None:
            return self._begin(tenant, start, not is_known, now)
        read_changes: list[Change] = []
        page = ChangePage((), cursor, has_more=True)
        for _ in range(self._feed.reads_per_answer):
            next_page = self._feed.read(tenant, page.cursor, filters, now)
            if next_page is None:
                return self._begin(tenant, start, True, now)
            page = next_page
            read_changes += page.changes
            yield
            if not page.has_more or len(read_changes) >= MAX_CHANGES_PER_ANSWER:
                break
        changes = yield from self._loaded(tenant, _last_of_each_job(read_changes), now)
        page = page._replace(changes=read_changes)
        poll_seconds = self._feed.seconds_to_next_read(tenant, page, now)
        return ChangesSince(changes, page.cursor, page.has_more, False, poll_seconds)

    def _begin(self, tenant: str, start: tuple[str, ...], gap: bool, now: datetime) -> ChangesSince:
        poll_seconds = self._feed.seconds_to_next_read(tenant, ChangePage((), start), now)
        return ChangesSince((), start, gap=gap, poll_seconds=poll_seconds)

    def _loaded(
        self, tenant: str, changes: Sequence[Change], now: datetime
    ) -> Sliced[list[Change]]:
        loaded: list[Change] = []
        for start in range(0, len(changes), CHANGES_PER_STEP):
            loaded += self._load(tenant, changes[start : start + CHANGES_PER_STEP], now)
            yield
        return loaded

    def _load(self, tenant: str, changes: Sequence[Change], now: datetime) -> list[Change]:
        """Return these changes with their content."""
        named = [change for change in changes if not change.is_loaded]
        job_keys = [JobKey(tenant, change.job_id) for change in named if not change.run_id]
        run_keys = [
            RunKey(tenant, change.job_id, change.run_id) for change in named if change.run_id
        ]
        jobs = self._job_summaries(job_keys) if job_keys else {}
        runs = self._history.get(run_keys, now) if run_keys else {}
        loaded: list[Change] = []
        for change in changes:
            if not change.is_loaded and change.run_id:
                run = runs.get(RunKey(tenant, change.job_id, change.run_id), change.run)
                change = change._replace(run=run, is_loaded=True)
            elif not change.is_loaded:
                version, job = jobs.get(change.job_id, (change.version, None))
                change = change._replace(job=job, version=version, is_loaded=True)
            loaded.append(change)
        return self._with_labels(loaded)

    def _with_labels(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes with the name and the tags of the job in each run."""
        keys = {
            JobKey(change.run.tenant, change.job_id)
            for change in changes
            if change.run is not None and change.run.label is None
        }
        labels = self._labels.load(sorted(keys)) if keys else {}
        return [
            change
            if change.run is None or change.run.label is not None
            else change._replace(
                run=replace(change.run, label=labels.get(JobKey(change.run.tenant, change.job_id)))
            )
            for change in changes
        ]

    def _job_summaries(self, keys: Sequence[JobKey]) -> dict[str, tuple[int, JobSummary]]:
        """Return the version and the short form of each job that exists."""
        states = {
            key: stored.state
            for key, stored in load_readable_states(self._job_states, keys).items()
            if not stored.state.is_blank
        }
        refs = {key: state.current_rules.definition_ref for key, state in states.items()}
        definitions = self._job_states.load_definitions(list(refs.items()))
        return {
            key.job_id: (state.version, summarize_job(state, definitions[key, refs[key]].name))
            for key, state in states.items()
            if (key, refs[key]) in definitions
        }


def summarize_job(state: JobState, name: str) -> JobSummary:
    return JobSummary(
        name=name,
        status=state.status,
        kind=state.kind,
        edition=state.edition,
        updated_at=state.updated_at,
        next_run_at=next_run_at(state),
        live_run_ids=tuple(run.run_id for run in state.runs[:MAX_SHOWN_RUN_IDS]),
        waiting_count=len(state.wait_queue),
        pause=state.pause,
    )


def _last_of_each_job(changes: Sequence[Change]) -> list[Change]:
    """Return the changes, but of each job itself only the one of the highest version.

    A part of a batch that is written again comes after the whole batch, and is older.
    """
    versions: dict[str, int] = {}
    for change in changes:
        if change.kind is ChangeKind.JOB:
            versions[change.job_id] = max(change.version, versions.get(change.job_id, 0))
    kept: list[Change] = []
    for change in reversed(changes):
        if change.kind is ChangeKind.JOB:
            if change.version != versions.get(change.job_id):
                continue
            del versions[change.job_id]
        kept.append(change)
    return kept[::-1]
