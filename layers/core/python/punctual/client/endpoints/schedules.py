"""The calls on schedules and times to come."""

from typing import Unpack

from punctual.client.answers.schedules import Forecast, Preview, ScheduleDiff, Upcoming
from punctual.client.call_steps import ClientSettings, Steps, Stream, send_request
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.fields import ScheduleFields, TimeValue
from punctual.client.job import Job
from punctual.client.model import convert_model, decode_model
from punctual.client.wire import Repeat, Request, encode_body, query_parameters


def preview(
    settings: ClientSettings,
    *,
    from_: TimeValue | None = None,
    count: int | None = None,
    **schedule: Unpack[ScheduleFields],
) -> Steps[Preview]:
    """Return the times of a schedule after `from_`, with warnings about clock changes."""
    range_fields = {"from": from_, "count": count}
    content = encode_body(
        {**schedule, **{name: value for name, value in range_fields.items() if value is not None}}
    )
    request = Request("POST", "/schedules/preview", body=content, repeat=Repeat.READS)
    return decode_model(Preview, (yield from send_request(settings, request)))


def upcoming(
    settings: ClientSettings,
    job: JobRef | None = None,
    *,
    from_: TimeValue | None = None,
    to: TimeValue | None = None,
    limit: int | None = None,
) -> Stream[Upcoming]:
    """Yield the occurrences of one job or of all jobs in order of time, for at most 31 days."""
    job_id = None if job is None else (yield from job_id_of(settings, job))
    filters = query_parameters(job_id=job_id, from_=from_, to=to)
    yield from stream_pages(
        settings,
        "/schedules/upcoming",
        filters,
        "times",
        lambda value: convert_model(Upcoming, value),
        limit,
    )


def diff(
    settings: ClientSettings,
    before: JobRef | ScheduleFields,
    after: ScheduleFields,
    *,
    from_: TimeValue | None = None,
    days: int | None = None,
) -> Steps[ScheduleDiff]:
    """Return what a change of the schedule adds, removes, moves and leaves in the next days.

    `before` is a job, the id or the name of a job, or the fields of a schedule.
    """
    range_fields = {"from": from_, "days": days}
    present: str | ScheduleFields = (
        (yield from job_id_of(settings, before)) if isinstance(before, str | Job) else before
    )
    content = encode_body(
        {
            "before": present,
            "after": after,
            **{name: value for name, value in range_fields.items() if value is not None},
        }
    )
    request = Request("POST", "/schedules/diff", body=content, repeat=Repeat.READS)
    return decode_model(ScheduleDiff, (yield from send_request(settings, request)))


def forecast(settings: ClientSettings, *, hours: int | None = None) -> Steps[Forecast]:
    """Return the scheduled starts of the coming hours: by minute to 24, by hour to 168."""
    request = Request("GET", "/forecast", query_parameters(hours=hours), repeat=Repeat.READS)
    return decode_model(Forecast, (yield from send_request(settings, request)))
