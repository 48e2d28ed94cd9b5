"""The outcomes and the planned times of a job, joined from two lists."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from punctual.client.answers.schedules import Occurrence, Upcoming
from punctual.client.call_steps import ClientSettings, Steps, collect_items
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.endpoints.runs import list_runs
from punctual.client.endpoints.schedules import upcoming
from punctual.client.errors import Misuse
from punctual.client.fields import TimeValue

PLANNED = "PLANNED"
MAX_UPCOMING_RANGE = timedelta(days=31)  # of one call


def occurrences(
    settings: ClientSettings, job: JobRef, from_: TimeValue, to: TimeValue
) -> Steps[tuple[Occurrence, ...]]:
    """Return what happened and what is planned from `from_` to before `to`, earliest first.

    Each run with its scheduled time in the range is an item, also a SKIPPED or MISSED one. A bulk
    entry is one item with its `count`. A planned time has the status PLANNED.
    """
    start, end = _parse_time("from_", from_), _parse_time("to", to)
    job_id = yield from job_id_of(settings, job)
    # The plan is read first. So a job that fires in between is in both lists, and never in none.
    planned: list[Upcoming] = []
    for range_start, range_end in _ranges(start, end):
        planned += yield from collect_items(
            upcoming(settings, job_id, from_=range_start, to=range_end)
        )
    runs = yield from collect_items(list_runs(settings, job_id, from_=start, to=end))
    outcomes = [
        Occurrence(run.scheduled_time, run.status, run) for run in runs if run.scheduled_time
    ]
    fired = {
        item.scheduled_time for item in outcomes if item.run and item.run.trigger == "SCHEDULE"
    }
    plan = [Occurrence(time.utc, PLANNED) for time in planned if time.utc not in fired]
    return tuple(sorted([*outcomes, *plan], key=lambda item: item.scheduled_time))


def _ranges(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of a range that one call takes. An empty range is one part."""
    while end - start > MAX_UPCOMING_RANGE:
        yield start, start + MAX_UPCOMING_RANGE
        start += MAX_UPCOMING_RANGE
    yield start, end


def _parse_time(name: str, value: TimeValue) -> datetime:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError:
        raise Misuse(f"{name} must be an RFC 3339 time; got {value!r}.") from None
    if at.tzinfo is None:
        raise Misuse(f"{name} needs a time zone.")
    return at
