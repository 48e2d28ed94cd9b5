"""The models of answers about times to come."""

from typing import Annotated, Literal

from pydantic import Field

from punctual.web.openapi.answers import Count, PreviewTime, ResponseModel, Time


class ForecastMinute(ResponseModel):
    minute: Time
    starts: Count


class Forecast(ResponseModel):
    from_: Annotated[Time, Field(alias="from")]
    to: Time
    step_seconds: Literal[60, 3_600]
    minutes: list[ForecastMinute]
    busiest: ForecastMinute | None
    starts: Count
    jobs: Count
    from_completion_jobs: Count


class DiffTimes(ResponseModel):
    count: Count
    times: list[PreviewTime]


class MovedTime(ResponseModel):
    before: PreviewTime
    after: PreviewTime


class MovedTimes(ResponseModel):
    count: Count
    shift_seconds: float | None
    times: list[MovedTime]


class ScheduleDiff(ResponseModel):
    from_: Annotated[Time, Field(alias="from")]
    to: Time
    added: DiffTimes
    removed: DiffTimes
    moved: MovedTimes
    unchanged: DiffTimes
    warnings: list[str]
    tzdata: str
