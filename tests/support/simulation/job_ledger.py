"""Each job's occurrences from an independent calculation, and the outcome of each."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Run, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Every, Once, Schedule
from tests.support.simulation.attempt_checks import SKEW
from tests.support.simulation.change_checks import (
    Requests,
    StateChange,
    check_ended,
    check_fired,
    check_order,
    check_withdrawn,
)
from tests.support.simulation.schedule_times import first_of, is_time, times

_INSTANT = timedelta(microseconds=1)
AHEAD = timedelta(seconds=65)  # the earliest firing, by a clock that is ahead


@dataclass
class Span:
    """A time span after `since`, up to `until`. None means that it has not ended."""

    since: datetime
    until: datetime | None = None

    def holds(self, at: datetime) -> bool:
        return self.since < at and (self.until is None or at <= self.until)


@dataclass
class Period:
    schedule: Schedule
    span: Span


def counts_from_completion(schedule: Schedule) -> bool:
    return isinstance(schedule, Every) and schedule.from_completion


class JobLedger:
    """The record of one job."""

    def __init__(self) -> None:
        self.requests = Requests()
        self.periods: list[Period] = []
        self.used_up: list[Span] = []  # while the last of max_runs had begun
        self.begun = 0  # scheduled runs since the last change of the schedule
        self.fired: dict[str, datetime] = {}  # the firing times of occurrences that became runs
        self.ended: dict[str, Run] = {}

    def watch(self, old: JobState | None, new: JobState) -> None:
        """Check each change of a swap against the schedule and the policies."""
        assert new.schedule is not None
        if old is None or old.is_blank:
            self._begin(new)
            old = replace(new, runs=(), wait_queue=(), unrecorded=())
        change = StateChange(old, new, self.requests, self.begun)
        if change.is_rescheduled:
            self.begun = 0
            change.begun = 0
        self._check_alive(change)
        self._check_ended(change)
        check_order(change)
        check_withdrawn(change)
        self._update_spans(change)

    def _begin(self, new: JobState) -> None:
        assert new.schedule is not None
        since = new.created_at
        if isinstance(new.schedule, Once):
            since = min(since, new.schedule.at - _INSTANT)
        self.periods.append(Period(new.schedule, Span(since)))

    def _check_alive(self, change: StateChange) -> None:
        old, new = change.old, change.new
        remaining = {run.run_id for run in (*new.runs, *new.unrecorded)} | {
            w.run_id for w in new.wait_queue
        }
        for run in old.runs:
            if run.run_id not in remaining:
                self.fired.pop(run.run_id, None)  # withdrawn
        was = {run.run_id: run for run in old.runs}
        for run in new.runs:
            before = was.get(run.run_id)
            starts = run.has_begun and not (before is not None and before.has_begun)
            if starts and run.trigger is Trigger.SCHEDULE:
                self.begun += 1
                max_runs = new.limits.max_runs
                assert max_runs is None or self.begun <= max_runs, (
                    f"{self.begun} runs begin of {max_runs}"
                )
        for waiting in new.wait_queue:
            self._record_fired(change, waiting, is_waiting=True)
        for run in new.runs:
            self._record_fired(change, run, is_waiting=False)
        change.begun = self.begun

    def _record_fired(self, change: StateChange, run: Run | WaitingRun, is_waiting: bool) -> None:
        if run.trigger is not Trigger.SCHEDULE or run.run_id in self.fired:
            return
        assert run.run_id not in self.ended, "rule 2: a run that has its outcome came back"
        self._check_time(change, run.scheduled_at)
        self.fired[run.run_id] = run.scheduled_at
        check_fired(change, run, is_waiting)

    def _check_time(self, change: StateChange, at: datetime) -> None:
        schedules = [change.old.schedule, change.new.schedule]
        assert any(
            schedule is not None and (counts_from_completion(schedule) or is_time(schedule, at))
            for schedule in schedules
        ), f"rule 2: {at} is no occurrence of {schedules}"

    def _check_ended(self, change: StateChange) -> None:
        was: dict[str, Run | WaitingRun] = {run.run_id: run for run in change.old.runs}
        was.update((waiting.run_id, waiting) for waiting in change.old.wait_queue)
        for run in change.new.unrecorded:
            known = self.ended.get(run.run_id)
            if known is not None and known.occurrence_count == run.occurrence_count:
                continue
            self.ended[run.run_id] = run
            if run.trigger is Trigger.SCHEDULE and run.run_id not in self.fired:
                for at in self.times_of(run):
                    self._check_time(change, at)
                if run.occurrence_count == 1:
                    self.fired[run.run_id] = run.scheduled_at
            check_ended(change, was.get(run.run_id), run)

    def times_of(self, run: Run) -> list[datetime]:
        """Return the occurrences that an entry stands for."""
        if run.occurrence_count == 1:
            return [run.scheduled_at]
        assert run.last_at is not None
        for period in reversed(self.periods):
            candidates = times(period.schedule, run.scheduled_at - _INSTANT, run.last_at)
            if len(candidates) == run.occurrence_count and (candidates[0], candidates[-1]) == (
                run.scheduled_at,
                run.last_at,
            ):
                return candidates
        raise AssertionError(
            f"rule 2: {run.occurrence_count} occurrences from {run.scheduled_at} do not exist"
        )

    def _last_fired(self) -> datetime | None:
        ended = [run.last_at for run in self.ended.values() if run.last_at is not None]
        return max([*self.fired.values(), *ended], default=None)

    def _last_end(self, old: JobState) -> datetime | None:
        """Return the last end of a run, up to which a schedule from completion is settled."""
        if old.schedule is None or not counts_from_completion(old.schedule):
            return None
        mine = [run for run in self.ended.values() if run.trigger is Trigger.SCHEDULE]
        return max([run.ended_at for run in mine if run.ended_at is not None], default=None)

    def _update_spans(self, change: StateChange) -> None:
        """Open and close the spans with expected occurrences."""
        new, now = change.new, change.new.updated_at
        assert new.schedule is not None
        last = self._last_fired()
        max_runs = new.limits.max_runs
        is_used_up = max_runs is not None and self.begun >= max_runs
        was_used_up = bool(self.used_up) and self.used_up[-1].until is None
        if is_used_up:
            self._check_no_next_occurrence(new)
        if is_used_up and not was_used_up:
            assert last is not None
            self.used_up.append(Span(last))
        elif was_used_up and not is_used_up:
            self.used_up[-1].until = max(now, last or now)
        current = self.periods[-1].span
        if change.is_rescheduled:
            current.until = now
            since = max(now, last or now, self._last_end(change.old) or now)
            if isinstance(new.schedule, Once):
                since = min(since, new.schedule.at - _INSTANT)
            self.periods.append(Period(new.schedule, Span(since)))
        elif new.status is JobStatus.CANCELLED and current.until is None:
            current.until = now

    def _check_no_next_occurrence(self, head: JobState) -> None:
        waiting: list[Run | WaitingRun] = [run for run in head.runs if not run.has_begun]
        waiting += head.wait_queue
        remaining = [run.scheduled_at for run in waiting if run.trigger is Trigger.SCHEDULE]
        assert not remaining, f"the last of max_runs has begun, and {remaining} wait"
        assert head.next_at is None, "the last of max_runs has begun, and more is to come"

    def check_end(self, now: datetime) -> None:
        """Check that each occurrence has exactly one outcome, and that no other outcome exists."""
        runs = [run for run in self.ended.values() if run.trigger is Trigger.SCHEDULE]
        runs.sort(key=lambda run: run.scheduled_at)
        covered = Counter(at for run in runs for at in self.times_of(run))
        repeated = [str(at) for at, number in covered.items() if number > 1]
        assert not repeated, f"rule 2: two outcomes for {repeated}"
        for period in self.periods:
            if counts_from_completion(period.schedule):
                self._check_chain(period, runs, now)
        missing = sorted(str(at) for at in self._expected(now) if at not in covered)
        assert not missing, f"rule 2: no outcome for {missing}"
        extra = sorted(str(at) for at in covered if not self._is_expected(at, now))
        assert not extra, f"rule 2: an outcome without an occurrence: {extra}"

    def _expected(self, now: datetime) -> Iterator[datetime]:
        for period in self.periods:
            span = period.span
            if not counts_from_completion(period.schedule):
                for at in times(period.schedule, span.since, span.until or now):
                    if not any(used_up.holds(at) for used_up in self.used_up):
                        yield at

    def _is_expected(self, at: datetime, now: datetime) -> bool:
        return any(
            counts_from_completion(period.schedule)
            or (
                is_time(period.schedule, at)
                and period.span.since < at <= (period.span.until or now) + AHEAD
            )
            for period in self.periods
        )

    def _check_chain(self, period: Period, runs: list[Run], now: datetime) -> None:
        """Check that an interval from completion continues from each end."""
        schedule, span = period.schedule, period.span
        assert isinstance(schedule, Every)
        chain = [run for run in runs if span.holds(run.scheduled_at) and not self._is_fixed(run)]
        step = timedelta(seconds=schedule.seconds)
        if chain:
            first = chain[0].scheduled_at
            assert first == first_of(schedule) or first >= span.since, "a chain with a wrong start"
        for after in chain[1:]:
            former = [run for run in runs if run.scheduled_at < after.scheduled_at]
            ends = [max(run.ended_at or now, run.scheduled_at) for run in former]
            # If several runs ended almost together, the clocks' differences allow any of them to be
            # last.
            counts_from = [end for end in ends if end >= max(ends) - SKEW]
            # After a higher max_runs it counts from that change, by the changing process's clock.
            counts_from += [raised.until for raised in self.used_up if raised.until is not None]
            assert after.scheduled_at - step in counts_from, (
                "rule 2: an interval from completion lost its count"
            )

    def _is_fixed(self, run: Run) -> bool:
        """Return True if the run's time is one of a schedule with fixed times."""
        return any(
            not counts_from_completion(period.schedule)
            and is_time(period.schedule, run.scheduled_at)
            for period in self.periods
        )
