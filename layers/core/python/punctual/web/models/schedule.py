"""The types of the schedule fields, and the checks of what they mean together."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from punctual.domain import timestamps
from punctual.domain.durations import SCHEDULE_TIME_TOLERANCE
from punctual.domain.schedules import schedule
from punctual.domain.schedules.schedule import MAX_INTERVAL_SECONDS, Cron, Every, next_after
from punctual.domain.utc import EPOCH, MICROSECOND
from punctual.web.models.schedule_types import RECURRING_TYPES, TYPES_OF_FIELD

MAX_EXCLUDED_DATES = 366
MAX_SCHEDULE_RUNS = 2_147_483_647
TIME_FIELDS = ("schedule_time", "start_time", "end_time")

REQUIRED_FIELDS = {
    "FUTURE": "schedule_time",
    "CRON": "cron_expression",
    "INTERVAL": "interval_seconds",
}
SCHEDULE_FIELDS = frozenset({"schedule_type", *TYPES_OF_FIELD})
ScheduleType = Literal["IMMEDIATE", "FUTURE", "CRON", "INTERVAL"]


class StrictModel(BaseModel):
    """A model without type conversion. An unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class ScheduleFields(StrictModel):
    schedule_type: ScheduleType
    schedule_time: str | None = None
    cron_expression: str | None = None
    timezone: str | None = None
    dst_gap: Literal["NEXT", "SKIP", "SHIFT"] | None = None
    dst_fold: Literal["FIRST", "SECOND", "BOTH"] | None = None
    interval_seconds: Annotated[int, Field(ge=1, le=MAX_INTERVAL_SECONDS)] | None = None
    interval_from: Literal["SCHEDULED", "COMPLETED"] | None = None
    start_time: str | None = None
    end_time: str | None = None
    max_runs: Annotated[int, Field(ge=1, le=MAX_SCHEDULE_RUNS)] | None = None
    exclude: Annotated[list[str], Field(max_length=MAX_EXCLUDED_DATES)] | None = None


AddError = Callable[[str, str], object]


def check_schedule(
    fields: Mapping[str, Any],
    wrong_names: frozenset[str],
    now: datetime | None,
    needs_next_time: bool,
    add_error: AddError,
) -> Mapping[str, datetime | None]:
    """Check what the schedule fields mean, and return the parsed times by field.

    - `wrong_names` names the fields that have a wrong type. They are not in `fields`.
    - `now` is None if an unchanged schedule passed the checks of its times before.
    - `needs_next_time` is True for a new job. A change may end a schedule.
    """
    schedule_type = fields.get("schedule_type")
    if schedule_type is not None:
        _check_fields_of_type(fields, schedule_type, wrong_names, add_error)
    times = {}
    for name in TIME_FIELDS:
        if fields.get(name) is not None:
            times[name] = _parse_time_field(fields, name, add_error)
    exclude = _parse_excluded_dates(fields, add_error) if fields.get("exclude") else ()
    at = times.get("schedule_time")
    if at is not None and now is not None and at < now - SCHEDULE_TIME_TOLERANCE:
        seconds = SCHEDULE_TIME_TOLERANCE.total_seconds()
        add_error("schedule_time", f"is more than {seconds:g} seconds in the past")
    recurs = schedule_type in RECURRING_TYPES
    if recurs or fields.get("cron_expression") is not None or fields.get("timezone") is not None:
        compiled = _compile_schedule(fields, times, exclude, now)
        errors = schedule.find_schedule_errors(compiled)
        for error in errors:
            add_error(*error)
        required = fields.get(REQUIRED_FIELDS.get(schedule_type or "", ""))
        if needs_next_time and not errors and required is not None and now is not None:
            _check_has_next_time(compiled, now, add_error)
    return times


def _check_fields_of_type(
    fields: Mapping[str, Any], schedule_type: str, wrong_names: frozenset[str], add_error: AddError
) -> None:
    required = REQUIRED_FIELDS.get(schedule_type)
    if required is not None and fields.get(required) is None and required not in wrong_names:
        add_error(required, f"is required when schedule_type is {schedule_type}")
    for name, value in fields.items():
        kinds = TYPES_OF_FIELD.get(name)
        if kinds is not None and schedule_type not in kinds and value is not None and value != []:
            add_error(
                name, f"belongs to schedule_type {' or '.join(kinds)}, not to {schedule_type}"
            )


def _parse_time_field(fields: Mapping[str, Any], name: str, add_error: AddError) -> datetime | None:
    try:
        return timestamps.parse_time(fields[name])
    except ValueError as error:
        add_error(name, str(error))
        return None


def _parse_excluded_dates(fields: Mapping[str, Any], add_error: AddError) -> tuple[date, ...]:
    days = []
    for index, text in enumerate(fields["exclude"]):
        if text is None:
            continue
        try:
            day = date.fromisoformat(text)
        except ValueError:
            day = None
        # Python accepts more forms of a date than RFC 3339.
        if day is None or day.isoformat() != text:
            add_error(f"exclude.{index}", "must be a date such as 2026-12-24")
        else:
            days.append(day)
    return tuple(sorted(set(days)))


def _compile_schedule(
    fields: Mapping[str, Any],
    times: Mapping[str, datetime | None],
    exclude: tuple[date, ...],
    now: datetime | None,
) -> Cron | Every:
    """Return the schedule of the valid fields. An absent field has any valid value."""
    timezone = fields.get("timezone")
    common: dict[str, Any] = {
        "timezone": "UTC" if timezone is None else timezone,
        "start_at": times.get("start_time"),
        "end_at": times.get("end_time"),
        "exclude": exclude,
    }
    expression = fields.get("cron_expression")
    if expression is None:
        return Every(fields.get("interval_seconds") or 1, now or EPOCH, **common)
    gap, fold = fields.get("dst_gap") or "", fields.get("dst_fold") or ""
    return Cron(expression, dst_gap=gap, dst_fold=fold, anchor_at=now, **common)


def _check_has_next_time(compiled: Cron | Every, now: datetime, add_error: AddError) -> None:
    is_bounded = compiled.end_at is not None or compiled.exclude
    if isinstance(compiled, Every) and not is_bounded:
        return
    if next_after(compiled, now - MICROSECOND) is not None:
        return
    if compiled.end_at is not None:
        add_error("end_time", "can never fire: no future time is before end_time")
    elif compiled.exclude:
        add_error("exclude", "can never fire: every future time is excluded")
    else:
        add_error("cron_expression", "can never fire: it has no future time")
