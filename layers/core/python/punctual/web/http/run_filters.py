"""Read the filters of a list of runs from the parameters of a call."""

import re
from datetime import timedelta

from punctual.domain.run import Reason, RunStatus, Trigger
from punctual.domain.utc import MILLISECOND
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.web.http.job_filters import MAX_FILTER_TEXT_CHARACTERS
from punctual.web.http.query import Query

RUN_STATUSES = tuple(status.value for status in RunStatus)
TRIGGERS = tuple(trigger.value for trigger in Trigger)
REASONS = tuple(reason.value for reason in Reason if reason)
TIME_CHOICES = tuple(field.value for field in TimeField)
DURATION_RANGE_PATTERN = r"^(\d{1,12}\.\.\d{0,12}|\.\.\d{1,12})$"

JOB_RUN_FILTERS = ("status", "trigger", "from", "to", "by", "reason", "duration_ms")
RUN_FILTERS = (*JOB_RUN_FILTERS, "job_name", "tag")  # of the list over all jobs
REPEATED_RUN_FILTERS = ("status", "reason", "tag")
_DURATION_RANGE = re.compile(DURATION_RANGE_PATTERN, re.ASCII)


def read_run_filters(query: Query) -> RunFilters:
    """Return the filters, and note an error for each wrong one."""
    start, end = query.range("from", "to")
    time_name = query.choice("by", TIME_CHOICES)
    min_duration, max_duration = _read_durations(query)
    job_name = query.filter_text("job_name")
    if len(job_name) > MAX_FILTER_TEXT_CHARACTERS:
        query.add_error("job_name", f"must have at most {MAX_FILTER_TEXT_CHARACTERS} characters")
    return RunFilters(
        status=query.choices("status", RUN_STATUSES),
        trigger=query.choice("trigger", TRIGGERS),
        start=start,
        end=end,
        time_field=TimeField(time_name) if time_name in TIME_CHOICES else TimeField.SCHEDULED,
        reasons=query.choices("reason", REASONS),
        min_duration=min_duration,
        max_duration=max_duration,
        job_name=job_name,
        tags=query.tags(),
    )


def _read_durations(query: Query) -> tuple[timedelta | None, timedelta | None]:
    """Return the bounds of `duration_ms`, which is `min..max` with either side open."""
    text = query.filter_text("duration_ms")
    if not text:
        return None, None
    if not _DURATION_RANGE.fullmatch(text):
        query.add_error("duration_ms", "must be a range of milliseconds: 1000.., ..500 or 100..500")
        return None, None
    low, high = ((int(side) * MILLISECOND if side else None) for side in text.split(".."))
    if low is not None and high is not None and high < low:
        query.add_error("duration_ms", "must not end before it begins")
    return low, high
