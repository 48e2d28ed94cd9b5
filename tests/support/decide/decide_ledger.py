"""Check that each occurrence has exactly one outcome, is alive, or is still to come."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Event, Update
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Run, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Every, Once, Schedule, occurrences
from tests.support.builders_jobs import Story
from tests.support.decide.decide_rules import checked_decide

_FOREVER = datetime.max.replace(tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)
_SLACK = timedelta(seconds=5)


class Period(NamedTuple):
    """A schedule and the nominal times that it covers, after `since` and up to `until`."""

    schedule: Schedule
    since: datetime
    until: datetime


@lru_cache(maxsize=64)
def _times(schedule: Schedule, since: datetime, until: datetime) -> tuple[datetime, ...]:
    return tuple(occurrences(schedule, since, until))


def counts_from_completion(schedule: Schedule) -> bool:
    return isinstance(schedule, Every) and schedule.from_completion


class World(Story):
    """A story that checks every step and counts the occurrences independently."""

    def __init__(self, head: JobState, now: datetime) -> None:
        super().__init__(head, now)
        assert head.schedule is not None
        assert head.planned_until is not None
        self.periods = [Period(head.schedule, head.planned_until, _FOREVER)]
        self.used_up = False
        self.trail: tuple[tuple[datetime, Event], ...] = ()  # all events with their times

    def decide(self, event: Event, known: frozenset[str]) -> Decision:
        before = self.state
        self.trail = (*self.trail, (self.now, event))
        decision = checked_decide(before, event, self.now, "w", known)
        for run in decision.runs_to_record:
            assert self.ledger.get(run.run_id, run) == run, "an outcome has changed"
        self._follow(before, event, decision)
        return decision

    def _follow(self, before: JobState, event: Event, decision: Decision) -> None:
        if isinstance(event, Update) and event.schedule is not None:
            if decision.verdict is Verdict.OK:
                self._change_schedule(event.schedule, decision)
        elif (
            before.status is not JobStatus.CANCELLED
            and decision.state.status is JobStatus.CANCELLED
        ):
            self._end_period(decision)
        limit = decision.state.limits.max_runs
        self.used_up = self.used_up or (limit is not None and decision.state.started_runs >= limit)

    def _end_period(self, decision: Decision) -> datetime:
        """End the present schedule's period.

        Return its end: now, or its last run that was fired early.
        """
        last = self.periods.pop()
        runs = (*self.ledger.values(), *decision.runs_to_record, *decision.state.runs)
        alive: list[Run | WaitingRun] = [*runs, *decision.state.wait_queue]
        fired = [run.scheduled_at for run in alive if run.trigger is Trigger.SCHEDULE]
        fired += [run.last_at for run in runs if run.last_at is not None]
        until = max([self.now, last.since, *fired])
        self.periods.append(last._replace(until=until))
        return until

    def _change_schedule(self, schedule: Schedule, decision: Decision) -> None:
        since = self._end_period(decision)
        is_just_past = isinstance(schedule, Once) and self.now - _SLACK <= schedule.at <= since
        if isinstance(schedule, Once) and is_just_past:
            has_run = any(schedule.at in _times(*period) for period in self.periods)
            since = since if has_run else schedule.at - _INSTANT
        self.periods.append(Period(schedule, since, _FOREVER))

    def is_time_of_an_earlier_schedule(self, at: datetime) -> bool:
        """Return True if an earlier schedule has this time."""
        return any(at in _times(*period) for period in self.periods[:-1])

    def check_ledger(self) -> None:
        """Compare recorded, live and future occurrences with the schedules."""
        if self.state.catch_up is not None:
            return
        if any(counts_from_completion(period.schedule) for period in self.periods):
            self._check_singles()
            return
        expected = Counter(at for period in self.periods for at in self._times(period))
        counted = Counter(at for run in self.ledger.values() for at in self._stands_for(run))
        alive: list[Run | WaitingRun] = [*self.state.runs, *self.state.wait_queue]
        counted += Counter(run.scheduled_at for run in alive if run.trigger is Trigger.SCHEDULE)
        assert not counted - expected, "more than the schedule says"
        if not self.used_up:
            assert not expected - counted, "an occurrence is lost"

    def _check_singles(self) -> None:
        """Check that no time occurs twice.

        Schedules from completion have no fixed list of times.
        """
        alive: list[Run | WaitingRun] = [*self.state.runs, *self.state.wait_queue]
        scheduled = [run.scheduled_at for run in alive if run.trigger is Trigger.SCHEDULE]
        ended = [
            run.scheduled_at for run in self.ledger.values() if run.trigger is Trigger.SCHEDULE
        ]
        assert len(scheduled + ended) == len(set(scheduled + ended))

    def _times(self, period: Period) -> tuple[datetime, ...]:
        until = (
            min(period.until, self._judged_until()) if period is self.periods[-1] else period.until
        )
        return _times(period.schedule, period.since, until)

    def _judged_until(self) -> datetime:
        """Return the time up to which each occurrence of the schedule must have a state."""
        if self.state.next_at is not None:
            return self.state.next_at - _INSTANT
        return max(self.now, self.state.planned_until or self.now)

    def _stands_for(self, run: Run) -> tuple[datetime, ...]:
        if run.trigger is not Trigger.SCHEDULE:
            return ()
        if run.occurrence_count == 1:
            return (run.scheduled_at,)
        assert run.last_at is not None
        times = self._between(run.scheduled_at, run.last_at)
        assert len(times) == run.occurrence_count
        return times

    def _between(self, first: datetime, last: datetime) -> tuple[datetime, ...]:
        for period in self.periods:
            if period.since < first <= period.until:
                return _times(period.schedule, first - _INSTANT, last)
        raise AssertionError("an entry of no schedule")
