"""The other bodies that calls take."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import UNSET
from pydantic import Field, ValidationError

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.job_state import Misfire
from punctual.web.http import timestamps
from punctual.web.http.json_body import JsonBody, is_payload_too_long, value_errors
from punctual.web.models.field_errors import Path, invalid_fields, paths_and_errors, without_paths
from punctual.web.models.schedule import ScheduleFields, StrictModel, check_schedule

MAX_BATCH_JOBS = 500
MAX_PREVIEW_TIMES = 100
DEFAULT_PREVIEW_TIMES = 10
MAX_FIELDS = 200

ModelType = TypeVar("ModelType", bound=StrictModel)


class NoFields(StrictModel):
    """The body of a call that takes none."""


class ResumeFields(StrictModel):
    missed: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None


class RunNowFields(StrictModel):
    payload: Any = None


class BackfillFields(StrictModel):
    from_: Annotated[str, Field(alias="from")]
    to: str
    dry_run: bool | None = None


class BatchFields(StrictModel):
    jobs: Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH_JOBS)]


class PreviewFields(ScheduleFields):
    from_: Annotated[str | None, Field(alias="from")] = None
    count: Annotated[int, Field(ge=1, le=MAX_PREVIEW_TIMES)] | None = None


class BackfillRequest(NamedTuple):
    start: datetime
    end: datetime
    dry_run: bool


class PreviewRequest(NamedTuple):
    """The schedule fields of a preview, from when, and how many times at most."""

    fields: dict[str, Any]
    start: datetime
    most: int


class BodyReader:
    """Every wrong field of one body, the first word about each."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, field: str, problem: str) -> None:
        self.found.setdefault(field, problem)

    def finish(self) -> None:
        if self.found:
            raise invalid_fields(self.found)

    def validated(self, model: type[StrictModel], parsed: JsonBody) -> dict[str, Any]:
        if len(parsed.value) > MAX_FIELDS:
            raise invalid_fields({"body": f"must have at most {MAX_FIELDS} fields"})
        paths: list[Path] = []
        for problem in value_errors(parsed.value, parsed):
            self.add(*problem)
            paths.append((problem.field,))
        try:
            model.__pydantic_validator__.validate_python(parsed.value)
        except ValidationError as error:
            for path, problem in paths_and_errors(error):
                self.add(*problem)
                paths.append(path)
        return without_paths(parsed.value, paths)

    def moment(self, fields: Mapping[str, Any], name: str) -> datetime | None:
        if fields.get(name) is None:
            return None
        try:
            return timestamps.parse_time(fields[name])
        except ValueError as error:
            self.add(name, str(error))
            return None


def parse_no_fields(parsed: JsonBody) -> None:
    _parse_fields(NoFields, parsed)


def parse_resume(parsed: JsonBody) -> Misfire | None:
    missed = _parse_fields(ResumeFields, parsed).get("missed")
    return None if missed is None else Misfire(missed)


def parse_run_now(parsed: JsonBody) -> Any:
    """The payload that takes the job's place; UNSET where none was sent."""
    fields = _parse_fields(RunNowFields, parsed)
    if "payload" not in fields:
        return UNSET
    if is_payload_too_long(fields["payload"], parsed):
        text = f"must not be longer than {parsed.max_payload_bytes} bytes as JSON"
        raise Invalid.of(FieldError("payload", text))
    return fields["payload"]


def parse_batch(parsed: JsonBody) -> Sequence[Any]:
    """Jobs still to be looked at, each on its own."""
    findings = BodyReader()
    shallow = parsed._replace(may_be_too_deep=False, may_contain_nul=False)
    jobs: list[Any] = findings.validated(BatchFields, shallow).get("jobs", [])
    findings.finish()
    return jobs


def parse_backfill(parsed: JsonBody) -> BackfillRequest:
    findings = BodyReader()
    fields = findings.validated(BackfillFields, parsed)
    start, end = findings.moment(fields, "from"), findings.moment(fields, "to")
    if start is not None and end is not None and end <= start:
        findings.add("to", "must be after from")
    findings.finish()
    assert start is not None
    assert end is not None
    return BackfillRequest(start, end, bool(fields.get("dry_run")))


def parse_preview(parsed: JsonBody, now: datetime) -> PreviewRequest:
    findings = BodyReader()
    fields = findings.validated(PreviewFields, parsed)
    start = findings.moment(fields, "from") or now
    schedule = {n: v for n, v in fields.items() if n not in ("from", "count") and v is not None}
    check_schedule(schedule, frozenset(findings.found), start, False, findings.add)
    findings.finish()
    return PreviewRequest(schedule, start, fields.get("count") or DEFAULT_PREVIEW_TIMES)


def _parse_fields(model: type[StrictModel], parsed: JsonBody) -> dict[str, Any]:
    findings = BodyReader()
    fields = findings.validated(model, parsed)
    findings.finish()
    return fields
