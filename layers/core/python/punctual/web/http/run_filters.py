"""Read the filters of a list of runs from the parameters of a call."""

from punctual.domain.run import RunStatus, Trigger
from punctual.engine.queries.filters import RunFilters, TimeField
from punctual.web.http.query import Query

RUN_FILTERS = ("status", "trigger", "from", "to", "by")
REPEATED_RUN_FILTERS = ("status",)


def read_run_filters(query: Query) -> RunFilters:
    start, end = query.range("from", "to")
    time_name = query.choice("by", tuple(field.value for field in TimeField))
    return RunFilters(
        status=query.choices("status", tuple(status.value for status in RunStatus)),
        trigger=query.choice("trigger", tuple(trigger.value for trigger in Trigger)),
        start=start,
        end=end,
        time_field=TimeField(time_name or "scheduled"),
    )
