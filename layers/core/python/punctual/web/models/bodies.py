"""The models of all request bodies but that of a job, and their checks."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import UNSET
from pydantic import Field, ValidationError

from punctual.domain import timestamps
from punctual.domain.errors import FieldError, Invalid
from punctual.domain.job_state import MisfirePolicy
from punctual.web.http.json_body import (
    CONTROL_CHARACTER,
    JsonBody,
    is_payload_too_long,
    value_errors,
)
from punctual.web.models.field_errors import (
    MAX_FIELDS,
    FieldPath,
    invalid_fields,
    paths_and_errors,
    without_paths,
)
from punctual.web.models.schedule import ScheduleFields, StrictModel, check_schedule

MAX_BATCH_JOBS = 500
MAX_PREVIEW_TIMES = 100
DEFAULT_PREVIEW_TIMES = 10
MAX_PAUSE_DAYS = 366
MAX_PAUSE_NOTE_CHARACTERS = 256

ModelType = TypeVar("ModelType", bound=StrictModel)


class NoFields(StrictModel):
    """The body of a call that takes no fields."""


class PauseFields(StrictModel):
    until: str | None = None
    note: Annotated[str, Field(max_length=MAX_PAUSE_NOTE_CHARACTERS)] | None = None


class ResumeFields(StrictModel):
    missed: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None


class RunNowFields(StrictModel):
    payload: Any = None


class RetryRunFields(RunNowFields):
    pass


class BackfillFields(StrictModel):
    from_: Annotated[str, Field(alias="from")]
    to: str
    dry_run: bool | None = None


class BatchFields(StrictModel):
    jobs: Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH_JOBS)]


class PreviewFields(ScheduleFields):
    from_: Annotated[str | None, Field(alias="from")] = None
    count: Annotated[int, Field(ge=1, le=MAX_PREVIEW_TIMES)] | None = None


class PauseRequest(NamedTuple):
    until: datetime | None
    note: str


class BackfillRequest(NamedTuple):
    start: datetime
    end: datetime
    dry_run: bool


class PreviewRequest(NamedTuple):
    fields: dict[str, Any]  # of the schedule
    start: datetime
    max_times: int


class BodyReader:
    """Read the fields of one body, and collect the first error of each field."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    def add_error(self, field: str, message: str) -> None:
        self.errors.setdefault(field, message)

    def finish(self) -> None:
        if self.errors:
            raise invalid_fields(self.errors)

    def validated(self, model: type[StrictModel], body: JsonBody) -> dict[str, Any]:
        """Return the fields with the right type, and note an error for each other field."""
        if len(body.value) > MAX_FIELDS:
            raise invalid_fields({"body": f"must have at most {MAX_FIELDS} fields"})
        paths: list[FieldPath] = []
        for field_error in value_errors(body.value, body):
            self.add_error(*field_error)
            paths.append((field_error.field,))
        try:
            model.__pydantic_validator__.validate_python(body.value)
        except ValidationError as error:
            for path, field_error in paths_and_errors(error):
                self.add_error(*field_error)
                paths.append(path)
        return without_paths(body.value, paths)

    def time(self, fields: Mapping[str, Any], name: str, path: str = "") -> datetime | None:
        """Return a time, or None if it is absent or wrong. `path` leads to the fields."""
        if fields.get(name) is None:
            return None
        try:
            return timestamps.parse_time(fields[name])
        except ValueError as error:
            self.add_error(f"{path}.{name}" if path else name, str(error))
            return None


def parse_no_fields(body: JsonBody) -> None:
    _parse_fields(NoFields, body)


def parse_pause(body: JsonBody, now: datetime) -> PauseRequest:
    reader = BodyReader()
    fields = reader.validated(PauseFields, body)
    request = read_pause(reader, fields, now)
    reader.finish()
    return request


def read_pause(reader: BodyReader, fields: Mapping[str, Any], now: datetime) -> PauseRequest:
    """Return `until` and `note` of these fields, and note an error for a wrong one."""
    until, note = reader.time(fields, "until"), fields.get("note") or ""
    if until is not None and until <= now:
        reader.add_error("until", "must lie in the future")
    elif until is not None and until > now + timedelta(days=MAX_PAUSE_DAYS):
        reader.add_error("until", f"must lie within {MAX_PAUSE_DAYS} days")
    if CONTROL_CHARACTER.search(note):
        reader.add_error("note", "must not hold control characters")
    return PauseRequest(until, note)


def parse_resume(body: JsonBody) -> MisfirePolicy | None:
    missed = _parse_fields(ResumeFields, body).get("missed")
    return None if missed is None else MisfirePolicy(missed)


def parse_run_now(body: JsonBody) -> Any:
    """Return the payload that replaces the one of the job, or UNSET."""
    return _parse_payload(RunNowFields, body)


def parse_retry(body: JsonBody) -> Any:
    """Return the payload that replaces the one of the former run, or UNSET."""
    return _parse_payload(RetryRunFields, body)


def _parse_payload(model: type[StrictModel], body: JsonBody) -> Any:
    fields = _parse_fields(model, body)
    if "payload" not in fields:
        return UNSET
    if is_payload_too_long(fields["payload"], body):
        text = f"must not be longer than {body.max_payload_bytes} bytes as JSON"
        raise Invalid.of(FieldError("payload", text))
    return fields["payload"]


def parse_batch(body: JsonBody) -> Sequence[Any]:
    """Return the jobs of a batch. The caller checks each job by itself."""
    reader = BodyReader()
    shallow = body._replace(may_be_too_deep=False, may_contain_nul=False)
    jobs: list[Any] = reader.validated(BatchFields, shallow).get("jobs", [])
    reader.finish()
    return jobs


def parse_backfill(body: JsonBody) -> BackfillRequest:
    reader = BodyReader()
    fields = reader.validated(BackfillFields, body)
    start, end = reader.time(fields, "from"), reader.time(fields, "to")
    if start is not None and end is not None and end <= start:
        reader.add_error("to", "must be after from")
    reader.finish()
    assert start is not None
    assert end is not None
    return BackfillRequest(start, end, bool(fields.get("dry_run")))


def parse_preview(body: JsonBody, now: datetime) -> PreviewRequest:
    reader = BodyReader()
    fields = reader.validated(PreviewFields, body)
    start = reader.time(fields, "from") or now
    schedule = {
        name: value
        for name, value in fields.items()
        if name not in ("from", "count") and value is not None
    }
    check_schedule(schedule, frozenset(reader.errors), start, False, reader.add_error)
    reader.finish()
    return PreviewRequest(schedule, start, fields.get("count") or DEFAULT_PREVIEW_TIMES)


def _parse_fields(model: type[StrictModel], body: JsonBody) -> dict[str, Any]:
    reader = BodyReader()
    fields = reader.validated(model, body)
    reader.finish()
    return fields
