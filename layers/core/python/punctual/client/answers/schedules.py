"""Answers about schedules and times to come."""

from dataclasses import dataclass
from datetime import datetime

from punctual.client.model import AwareDatetime, Model
from punctual.client.run import Run


class Time(Model, frozen=True, kw_only=True):
    """An instant in UTC and in the time zone of the schedule."""

    utc: AwareDatetime
    local: AwareDatetime


class Preview(Model, frozen=True, kw_only=True):
    times: tuple[Time, ...] = ()
    description: str = ""
    warnings: tuple[str, ...] = ()
    tzdata: str | None = None


class Upcoming(Model, frozen=True, kw_only=True):
    job_id: str
    name: str
    utc: AwareDatetime
    local: AwareDatetime


class ForecastMinute(Model, frozen=True, kw_only=True):
    """The number of starts in a minute, or in an hour of a longer forecast."""

    minute: AwareDatetime
    starts: int


class Forecast(Model, frozen=True, kw_only=True):
    """The scheduled starts of the coming hours over all jobs."""

    minutes: tuple[ForecastMinute, ...] = ()
    busiest: ForecastMinute | None = None
    step_seconds: int = 60
    starts: int = 0
    jobs: int = 0
    from_completion_jobs: int = 0
    to: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An outcome of a job, or a time that is planned.

    `status` is that of the run, or PLANNED without one. A bulk entry stands for `count` times from
    `scheduled_time` to `last_scheduled_time`.
    """

    scheduled_time: datetime
    status: str
    run: Run | None = None

    @property
    def count(self) -> int:
        return 1 if self.run is None else self.run.count

    @property
    def last_scheduled_time(self) -> datetime:
        run = self.run
        return (run and run.last_scheduled_time) or self.scheduled_time


class DiffTimes(Model, frozen=True, kw_only=True):
    """The number of times of one kind, and the first of them."""

    count: int
    times: tuple[Time, ...] = ()


class MovedTime(Model, frozen=True, kw_only=True):
    before: Time
    after: Time


class MovedTimes(Model, frozen=True, kw_only=True):
    """`shift_seconds` is set if each time moves equally far."""

    count: int
    shift_seconds: float | None = None
    times: tuple[MovedTime, ...] = ()


class ScheduleDiff(Model, frozen=True, kw_only=True):
    """What a change of a schedule does to the times of a range."""

    added: DiffTimes
    removed: DiffTimes
    moved: MovedTimes
    unchanged: DiffTimes
    to: AwareDatetime | None = None
    warnings: tuple[str, ...] = ()
    tzdata: str | None = None
