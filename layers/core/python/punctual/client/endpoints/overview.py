"""The calls that say how things stand."""

from punctual.client.answers.overview import Failure, Overview
from punctual.client.call_steps import ClientSettings, Steps, Stream, send_request
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.job_references import JobRef, job_id_of
from punctual.client.model import convert_model, decode_model
from punctual.client.wire import Repeat, Request, build_path, encode_body, query_parameters


def overview(settings: ClientSettings) -> Steps[Overview]:
    """Return whether everything is all right, as one sentence and its facts."""
    request = Request("GET", "/overview", repeat=Repeat.READS)
    return decode_model(Overview, (yield from send_request(settings, request)))


def failures(
    settings: ClientSettings, *, job: JobRef | None = None, limit: int | None = None
) -> Stream[Failure]:
    """Yield what failed and has not succeeded since, of one job or of all jobs.

    The last that happened comes first.
    """
    job_id = None if job is None else (yield from job_id_of(settings, job))
    filters = query_parameters(job_id=job_id)
    yield from stream_pages(
        settings,
        "/failures",
        filters,
        "failures",
        lambda value: convert_model(Failure, value),
        limit,
    )


def acknowledge(
    settings: ClientSettings, failure: str | Failure, *, note: str | None = None
) -> Steps[Failure]:
    """Acknowledge a failure, by its id. It holds for this kind of error until a run succeeds."""
    failure_id = failure if isinstance(failure, str) else failure.failure_id
    content = encode_body({} if note is None else {"note": note})
    url_path = build_path("failures", failure_id, "acknowledge")
    request = Request("POST", url_path, body=content, repeat=Repeat.SAFE)
    return decode_model(Failure, (yield from send_request(settings, request)))
