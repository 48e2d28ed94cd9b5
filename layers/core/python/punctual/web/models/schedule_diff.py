"""The body of POST /schedules/diff, and its checks."""

from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pydantic import Field, ValidationError

from punctual.web.http.json_body import JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.field_errors import (
    MAX_FIELDS,
    FieldPath,
    paths_and_errors,
    without_paths,
)
from punctual.web.models.schedule import ScheduleFields, StrictModel, check_schedule

DEFAULT_DIFF_DAYS = 30
MAX_DIFF_DAYS = 366
_BEFORE_MESSAGE = "must be the id of a job, or the schedule fields of a job"


class ScheduleDiffFields(StrictModel):
    before: Any
    after: Any
    from_: Annotated[str | None, Field(alias="from")] = None
    days: Annotated[int, Field(ge=1, le=MAX_DIFF_DAYS)] | None = None


class DiffRequest(NamedTuple):
    job_id: str | None  # the job that has the old schedule, or None with `before`
    before: dict[str, Any]  # schedule fields
    after: dict[str, Any]
    start: datetime
    days: int


def parse_schedule_diff(body: JsonBody, now: datetime) -> DiffRequest:
    reader = BodyReader()
    fields = reader.validated(ScheduleDiffFields, body)
    start = reader.time(fields, "from") or now
    job_id: str | None = None
    before: dict[str, Any] = {}
    if isinstance(fields.get("before"), str):
        job_id = _parse_job_id(reader, fields["before"])
    elif "before" in fields:
        before = _parse_schedule(reader, "before", fields["before"], start)
    after = _parse_schedule(reader, "after", fields["after"], start) if "after" in fields else {}
    reader.finish()
    return DiffRequest(job_id, before, after, start, fields.get("days") or DEFAULT_DIFF_DAYS)


def _parse_job_id(reader: BodyReader, text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        reader.add_error("before", _BEFORE_MESSAGE)
        return None


def _parse_schedule(reader: BodyReader, name: str, value: Any, start: datetime) -> dict[str, Any]:
    """Return the valid fields of one schedule. Errors carry the path from `name` on."""
    if not isinstance(value, dict):
        reader.add_error(name, _BEFORE_MESSAGE if name == "before" else "must be an object")
        return {}
    if len(value) > MAX_FIELDS:
        reader.add_error(name, f"must have at most {MAX_FIELDS} fields")
        return {}
    paths: list[FieldPath] = []
    try:
        ScheduleFields.__pydantic_validator__.validate_python(value)
    except ValidationError as error:
        for path, field_error in paths_and_errors(error):
            reader.add_error(f"{name}.{field_error.field}", field_error.message)
            paths.append(path)
    schedule = {
        field: field_value
        for field, field_value in without_paths(value, paths).items()
        if field_value is not None
    }
    wrong_names = frozenset(str(path[0]) for path in paths if path)
    check_schedule(
        schedule,
        wrong_names,
        start,
        False,
        lambda field, message: reader.add_error(f"{name}.{field}", message),
    )
    return schedule
