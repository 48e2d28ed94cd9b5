"""The body of POST /jobs/bulk, and its checks.

Its filter takes the filters of a list as JSON. They become the query of that list, so both have the
same checks.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from msgspec import UNSET
from pydantic import Field

from punctual.domain.errors import Invalid
from punctual.domain.operations.operation import OperationAction
from punctual.engine.operations.commands import BulkRequest
from punctual.engine.operations.matching import BulkFilter
from punctual.engine.ports.lists.job_index import JobFilters
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.web.http.job_filters import JOB_FILTERS, REPEATED_JOB_FILTERS, read_job_filters
from punctual.web.http.json_body import JsonBody, is_payload_too_long
from punctual.web.http.query import Query
from punctual.web.http.run_filters import REPEATED_RUN_FILTERS, RUN_FILTERS, read_run_filters
from punctual.web.models.bodies import MAX_PAUSE_NOTE_CHARACTERS, BodyReader, read_pause
from punctual.web.models.schedule import StrictModel

MAX_FILTER_VALUES = 100
PAUSED_BY, LATEST_ONLY = "paused_by", "latest_only"
# The fields that each action takes, besides those of all actions.
FIELDS_OF_ACTION: Mapping[OperationAction, frozenset[str]] = {
    OperationAction.PAUSE: frozenset({"until", "note"}),
    OperationAction.RESUME: frozenset({"missed"}),
    OperationAction.CANCEL: frozenset(),
    OperationAction.RUN_NOW: frozenset({"payload"}),
    OperationAction.RETRY: frozenset({"payload"}),
}
_ACTION_FIELDS = frozenset().union(*FIELDS_OF_ACTION.values())


class BulkFields(StrictModel):
    action: Literal["pause", "resume", "cancel", "run_now", "retry"]
    filter: dict[str, Any] | None = None
    all: bool | None = None
    dry_run: bool | None = None
    until: str | None = None
    note: Annotated[str, Field(max_length=MAX_PAUSE_NOTE_CHARACTERS)] | None = None
    missed: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None
    payload: Any = None


class BulkBody(NamedTuple):
    request: BulkRequest
    dry_run: bool


def parse_bulk(body: JsonBody, now: datetime) -> BulkBody:
    reader = BodyReader()
    fields = reader.validated(BulkFields, body)
    reader.finish()
    action = OperationAction(fields["action"])
    for name in sorted(_ACTION_FIELDS - FIELDS_OF_ACTION[action]):
        if fields.get(name) is not None or (name == "payload" and name in fields):
            reader.add_error(name, f"is not a field of the action {action.value}")
    filter_json = fields.get("filter") or {}
    bulk_filter = _read_filter(reader, action, filter_json)
    if fields.get("all") and bulk_filter.selects:
        reader.add_error("all", "must not be true with a filter")
    elif not fields.get("all") and not bulk_filter.selects:
        reader.add_error("filter", 'must name a filter; `"all": true` stands for all')
    pause = read_pause(reader, fields, now)
    payload = fields.get("payload", UNSET)
    if payload is not UNSET and is_payload_too_long(payload, body):
        reader.add_error(
            "payload", f"must not be longer than {body.max_payload_bytes} bytes as JSON"
        )
    reader.finish()
    request = BulkRequest(
        action,
        bulk_filter,
        filter_json,
        pause.until,
        pause.note,
        fields.get("missed") or "",
        payload,
    )
    return BulkBody(request, bool(fields.get("dry_run")))


def _read_filter(
    reader: BodyReader, action: OperationAction, filter_json: Mapping[str, Any]
) -> BulkFilter:
    """Return the filter, and note the error of each wrong field."""
    own = LATEST_ONLY if action.is_on_runs else PAUSED_BY
    pairs = list(_filter_pairs(reader, filter_json, own))
    text = urlencode(pairs)
    jobs, runs = JobFilters(), RunFilters()
    if action.is_on_runs:
        query = Query(text, RUN_FILTERS, REPEATED_RUN_FILTERS)
        runs = read_run_filters(query)
    else:
        query = Query(text, JOB_FILTERS, REPEATED_JOB_FILTERS)
        jobs = read_job_filters(query)
    try:
        query.finish()
    except Invalid as invalid:
        for error in invalid.errors:
            reader.add_error(f"filter.{error.field}", error.message)
    return BulkFilter(
        jobs,
        runs,
        _read_paused_by(reader, filter_json) if own == PAUSED_BY else "",
        own == LATEST_ONLY and filter_json.get(LATEST_ONLY) is True,
    )


def _filter_pairs(
    reader: BodyReader, filter_json: Mapping[str, Any], own: str
) -> Iterator[tuple[str, str]]:
    """Yield the parameters of the list. `own` is a field that the list does not have."""
    count = 0
    for name, value in filter_json.items():
        if name == own:
            if own == LATEST_ONLY and not isinstance(value, bool):
                reader.add_error(f"filter.{name}", "must be true or false")
            continue
        values = value if isinstance(value, list) else [value]
        if not values or "" in values:
            reader.add_error(f"filter.{name}", "must not be empty")
        count += len(values)
        if count > MAX_FILTER_VALUES:
            reader.add_error("filter", f"must hold at most {MAX_FILTER_VALUES} values")
            return
        for text in values:
            if isinstance(text, bool) or not isinstance(text, str | int):
                reader.add_error(f"filter.{name}", "must be a text, or a list of texts")
            else:
                yield name, str(text)


def _read_paused_by(reader: BodyReader, filter_json: Mapping[str, Any]) -> str:
    if PAUSED_BY not in filter_json:
        return ""
    try:
        return str(UUID(filter_json[PAUSED_BY]))
    except (AttributeError, TypeError, ValueError):
        reader.add_error(f"filter.{PAUSED_BY}", "must be the id of an operation")
        return ""
