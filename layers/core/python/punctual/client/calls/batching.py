"""Submit many jobs in as few requests as the limits on their number and length allow."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from punctual.client.call_steps import ClientSettings, Pause, Steps, send_request
from punctual.client.calls.error_mapping import error_of_problem, parse_problem
from punctual.client.calls.retrying import retry_delay
from punctual.client.errors import Misuse, Unexpected
from punctual.client.job import Accepted, Declined
from punctual.client.model import decode_json, required_field
from punctual.client.wire import Repeat, Request, encode_body, idempotency_headers

MAX_BATCH_KEY_CHARACTERS = 240
MAX_BATCH_JOBS = 500
MAX_BATCH_BYTES = 5 * 1024 * 1024
_BATCH_TEMPLATE = b'{"jobs":[%b]}'
_MAX_JOBS_BYTES_IN_BATCH = MAX_BATCH_BYTES - len(_BATCH_TEMPLATE)


class Chunk(NamedTuple):
    body: bytes
    job_count: int


def split_into_chunks(jobs: Iterable[Mapping[str, object]]) -> Iterator[Chunk]:
    """Yield the request bodies for the jobs.

    The same jobs always give the same chunks. So an idempotency key and an index identify one job
    in a retry.
    """
    texts: list[bytes] = []
    size = 0
    for job in jobs:
        text = encode_body(job)
        if texts and (
            len(texts) == MAX_BATCH_JOBS or size + len(text) + 1 > _MAX_JOBS_BYTES_IN_BATCH
        ):
            yield _make_chunk(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 1
    if texts:
        yield _make_chunk(texts)


def chunk_key(key: str, number: int) -> str:
    """Return the idempotency key of one request of a batch.

    The server appends a slash and the index of a job, so the key must be shorter than usual.
    """
    if len(key) > MAX_BATCH_KEY_CHARACTERS:
        raise Misuse(
            f"idempotency_key must be at most {MAX_BATCH_KEY_CHARACTERS} characters for many jobs."
        )
    return f"{key}.{number}" if number else key


def submit_chunk(
    settings: ClientSettings, chunk: Chunk, key: str
) -> Steps[list[Accepted | Declined]]:
    """Return the result of each job in the chunk.

    If a store does not answer, jobs are declined with 503. The request is then retried under the
    retry policy.
    """
    request = Request(
        "POST", "/jobs/batch", body=chunk.body, headers=idempotency_headers(key), repeat=Repeat.SAFE
    )
    steady_start, attempt = settings.steady_clock(), 0
    while True:
        attempt += 1
        answer = yield from send_request(settings, request)
        results = _parse_results(decode_json(answer), chunk.job_count)
        if not any(
            isinstance(result, Declined) and result.problem.status == 503 for result in results
        ):
            return results
        elapsed_seconds, unavailable_answer = (
            settings.steady_clock() - steady_start,
            answer._replace(status=503),
        )
        delay = retry_delay(
            settings.retries,
            request,
            unavailable_answer,
            attempt,
            elapsed_seconds,
            settings.random_fraction(),
        )
        if delay is None:
            return results
        yield Pause(delay)


def _parse_results(answer: Any, count: int) -> list[Accepted | Declined]:
    results = required_field(answer, "results")
    if not isinstance(results, list) or len(results) != count:
        raise Unexpected(f"The server did not answer with {count} results.")
    return [_parse_result(result) for result in results]


def _make_chunk(texts: list[bytes]) -> Chunk:
    return Chunk(_BATCH_TEMPLATE % b",".join(texts), len(texts))


def _parse_result(result: Any) -> Accepted | Declined:
    if required_field(result, "status") == 202:
        return Accepted(required_field(result, "job_id"), result.get("location"))
    problem = parse_problem(result.get("problem"), result["status"])
    return Declined(problem, error_of_problem(problem))
