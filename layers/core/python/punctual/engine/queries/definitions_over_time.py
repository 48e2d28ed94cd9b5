"""Derives which definition of a job was in force when, and its schedule."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from punctual.domain.job_state import JobState, Kind
from punctual.domain.schedules.values import Once, Schedule, counts_from_completion
from punctual.engine.commands.definition import CompiledJob, compile_definition, keep_phase
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


def periods(head: JobState, bodies: Iterable[DefinitionRow]) -> Iterator[Period | None]:
    """Yield the periods of a job, latest first. `bodies` are read on demand.

    A change that keeps the schedule keeps its phase. The first definition with that schedule set
    the phase. Periods with a phase wait here until that definition is read. Each of them yields
    None meanwhile, so a step of the iteration reads one definition.
    """
    of_a_phase: list[Period] = []
    schedule = head.schedule
    following: CompiledJob | None = None
    until: datetime | None = None
    for body in bodies:
        meaning = compile_definition(body.document, head.job_id, body.ref, body.created_at)
        if following is not None and not _goes_on(following, meaning):
            yield from _set(of_a_phase)
            of_a_phase, schedule = [], None
        if schedule is None and not _has_a_phase(meaning):
            schedule = meaning.schedule
        since = body.created_at if body.previous else None
        period = Period(schedule or meaning.schedule, meaning.limits.max_runs, since, until)
        if schedule is None:
            of_a_phase.append(period)
            yield None
        else:
            yield period
        following, until = meaning, body.created_at
    yield from _set(of_a_phase)


def _set(of_a_phase: list[Period]) -> Iterator[Period]:
    return (one._replace(schedule=of_a_phase[-1].schedule) for one in of_a_phase)


def _goes_on(new: CompiledJob, old: CompiledJob) -> bool:
    """Return whether a change kept the schedule. It always does for an immediate job."""
    if new.kind is old.kind is Kind.IMMEDIATE:
        return True
    return keep_phase(new.schedule, old.schedule) is None


def _has_a_phase(meaning: CompiledJob) -> bool:
    """Return whether the creation time of the schedule affects its occurrences."""
    schedule = meaning.schedule
    if isinstance(schedule, Once):
        return meaning.kind is Kind.IMMEDIATE
    return schedule.anchor_at is not None and schedule.start_at is None
