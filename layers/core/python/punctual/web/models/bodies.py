"""The other bodies that calls take."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import UNSET
from pydantic import Field, ValidationError

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.job_state import Misfire
from punctual.web.http import timestamps
from punctual.web.http.json_body import Parsed, is_too_long, value_problems
from punctual.web.models.field_errors import Path, paths_and_errors, refusal, without
from punctual.web.models.schedule import ScheduleFields, Strict, check_schedule

MAX_BATCH = 500
MAX_PREVIEW = 100
DEFAULT_PREVIEW = 10
MAX_FIELDS = 200

M = TypeVar("M", bound=Strict)


class NoFields(Strict):
    """The body of a call that takes none."""


class ResumeFields(Strict):
    missed: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None


class RunNowFields(Strict):
    payload: Any = None


class BackfillFields(Strict):
    from_: Annotated[str, Field(alias="from")]
    to: str
    dry_run: bool | None = None


class BatchFields(Strict):
    jobs: Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH)]


class PreviewFields(ScheduleFields):
    from_: Annotated[str | None, Field(alias="from")] = None
    count: Annotated[int, Field(ge=1, le=MAX_PREVIEW)] | None = None


class Backfill(NamedTuple):
    start: datetime
    end: datetime
    dry_run: bool


class PreviewOf(NamedTuple):
    """The schedule fields of a preview, from when, and how many times at most."""

    fields: dict[str, Any]
    start: datetime
    most: int


class Findings:
    """Every wrong field of one body, the first word about each."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, field: str, problem: str) -> None:
        self.found.setdefault(field, problem)

    def finish(self) -> None:
        if self.found:
            raise refusal(self.found)

    def right_part(self, model: type[Strict], parsed: Parsed) -> dict[str, Any]:
        if len(parsed.value) > MAX_FIELDS:
            raise refusal({"body": f"must have at most {MAX_FIELDS} fields"})
        paths: list[Path] = []
        for problem in value_problems(parsed.value, parsed):
            self.add(*problem)
            paths.append((problem.field,))
        try:
            model.__pydantic_validator__.validate_python(parsed.value)
        except ValidationError as error:
            for path, problem in paths_and_errors(error):
                self.add(*problem)
                paths.append(path)
        return without(parsed.value, paths)

    def moment(self, fields: Mapping[str, Any], name: str) -> datetime | None:
        if fields.get(name) is None:
            return None
        try:
            return timestamps.parsed(fields[name])
        except ValueError as error:
            self.add(name, str(error))
            return None


def no_fields(parsed: Parsed) -> None:
    _fields(NoFields, parsed)


def resume(parsed: Parsed) -> Misfire | None:
    missed = _fields(ResumeFields, parsed).get("missed")
    return None if missed is None else Misfire(missed)


def run_now(parsed: Parsed) -> Any:
    """The payload that takes the job's place; UNSET where none was sent."""
    fields = _fields(RunNowFields, parsed)
    if "payload" not in fields:
        return UNSET
    if is_too_long(fields["payload"], parsed):
        text = f"must not be longer than {parsed.payload_most} bytes as JSON"
        raise Invalid.of(FieldError("payload", text))
    return fields["payload"]


def batch(parsed: Parsed) -> Sequence[Any]:
    """Jobs still to be looked at, each on its own."""
    findings = Findings()
    shallow = parsed._replace(may_be_deep=False, may_hold_nul=False)
    jobs: list[Any] = findings.right_part(BatchFields, shallow).get("jobs", [])
    findings.finish()
    return jobs


def backfill(parsed: Parsed) -> Backfill:
    findings = Findings()
    fields = findings.right_part(BackfillFields, parsed)
    start, end = findings.moment(fields, "from"), findings.moment(fields, "to")
    if start is not None and end is not None and end <= start:
        findings.add("to", "must be after from")
    findings.finish()
    assert start is not None
    assert end is not None
    return Backfill(start, end, bool(fields.get("dry_run")))


def preview(parsed: Parsed, now: datetime) -> PreviewOf:
    findings = Findings()
    fields = findings.right_part(PreviewFields, parsed)
    start = findings.moment(fields, "from") or now
    schedule = {n: v for n, v in fields.items() if n not in ("from", "count") and v is not None}
    check_schedule(schedule, frozenset(findings.found), start, False, findings.add)
    findings.finish()
    return PreviewOf(schedule, start, fields.get("count") or DEFAULT_PREVIEW)


def _fields(model: type[Strict], parsed: Parsed) -> dict[str, Any]:
    findings = Findings()
    fields = findings.right_part(model, parsed)
    findings.finish()
    return fields
