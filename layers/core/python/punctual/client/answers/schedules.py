"""Answers about schedules and times to come."""

from punctual.client.model import AwareDatetime, Model


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
