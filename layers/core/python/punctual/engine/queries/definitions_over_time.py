"""Derives which definition of a job was in force when, and its schedule."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from punctual.domain.job_state import JobState, ScheduleKind
from punctual.domain.schedules.values import Once, Schedule, counts_from_completion
from punctual.engine.commands.definition import CompiledJob, changed_schedule, compile_definition
from punctual.engine.ports.rows import DefinitionRow


class Period(NamedTuple):
    """A definition in force from `since` to `until`. `since` is None for the first definition.

    The first definition also applies to times before the job.
    """

    schedule: Schedule
    max_runs: int | None
    since: datetime | None
    until: datetime | None

    @property
    def counts_from_completion(self) -> bool:
        return counts_from_completion(self.schedule)


def periods(state: JobState, definitions: Iterable[DefinitionRow]) -> Iterator[Period | None]:
    """Yield the periods of a job, latest first. `definitions` are read on demand.

    A change that keeps the schedule keeps its phase. The first definition with that schedule set
    the phase. Periods with a phase wait here until that definition is read. Each of them yields
    None meanwhile, so a step of the iteration reads one definition.
    """
    waiting_periods: list[Period] = []
    schedule = state.schedule
    newer: CompiledJob | None = None
    until: datetime | None = None
    for definition in definitions:
        compiled = compile_definition(
            definition.document, state.job_id, definition.ref, definition.created_at
        )
        if newer is not None and not _keeps_schedule(newer, compiled):
            yield from _with_phase(waiting_periods)
            waiting_periods, schedule = [], None
        if schedule is None and not _depends_on_creation_time(compiled):
            schedule = compiled.schedule
        since = definition.created_at if definition.previous_ref else None
        period = Period(schedule or compiled.schedule, compiled.limits.max_runs, since, until)
        if schedule is None:
            waiting_periods.append(period)
            yield None
        else:
            yield period
        newer, until = compiled, definition.created_at
    yield from _with_phase(waiting_periods)


def _with_phase(waiting_periods: list[Period]) -> Iterator[Period]:
    return (period._replace(schedule=waiting_periods[-1].schedule) for period in waiting_periods)


def _keeps_schedule(new: CompiledJob, old: CompiledJob) -> bool:
    """Return whether a change kept the schedule. It always does for an immediate job."""
    if new.kind is old.kind is ScheduleKind.IMMEDIATE:
        return True
    return changed_schedule(new.schedule, old.schedule) is None


def _depends_on_creation_time(compiled: CompiledJob) -> bool:
    """Return whether the creation time of the schedule affects its occurrences."""
    schedule = compiled.schedule
    if isinstance(schedule, Once):
        return compiled.kind is ScheduleKind.IMMEDIATE
    return schedule.anchor_at is not None and schedule.start_at is None
