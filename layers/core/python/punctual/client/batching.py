"""Submit many jobs in as few requests as the limits on their number and length allow."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from punctual.client.call_steps import Core, Pause, Steps, ask
from punctual.client.error_mapping import of_problem, problem_in
from punctual.client.errors import Misuse, Unexpected
from punctual.client.job import Accepted, Declined
from punctual.client.model import parsed, part
from punctual.client.retrying import again_in
from punctual.client.wire import Repeat, Request, body, keyed

LONGEST_KEY = 240
MOST_JOBS = 500
MOST_BYTES = 5 * 1024 * 1024
_AROUND = b'{"jobs":[%b]}'
_ROOM = MOST_BYTES - len(_AROUND)


class Chunk(NamedTuple):
    body: bytes
    jobs: int


def chunks(jobs: Iterable[Mapping[str, object]]) -> Iterator[Chunk]:
    """Yield the request bodies for the jobs.

    The same jobs always give the same chunks. So an idempotency key and an index identify one job
    in a retry.
    """
    texts: list[bytes] = []
    size = 0
    for job in jobs:
        text = body(job)
        if texts and (len(texts) == MOST_JOBS or size + len(text) + 1 > _ROOM):
            yield _chunk(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 1
    if texts:
        yield _chunk(texts)


def key_of(key: str, number: int) -> str:
    """Return the idempotency key of one request of a batch.

    The server appends a slash and the index of a job, so the key must be shorter than usual.
    """
    if len(key) > LONGEST_KEY:
        raise Misuse(f"An idempotency_key for many jobs has at most {LONGEST_KEY} characters.")
    return f"{key}.{number}" if number else key


def settled(core: Core, chunk: Chunk, key: str) -> Steps[list[Accepted | Declined]]:
    """Return the result of each job in the chunk.

    If a store does not answer, jobs are declined with 503. The request is then retried under the
    retry policy.
    """
    request = Request(
        "POST", "/jobs/batch", body=chunk.body, headers=keyed(key), repeat=Repeat.SAFE
    )
    begun, attempt = core.seconds(), 0
    while True:
        attempt += 1
        answer = yield from ask(core, request)
        results = _items(parsed(answer), chunk.jobs)
        if not any(isinstance(one, Declined) and one.problem.status == 503 for one in results):
            return results
        spent, as_a_whole = core.seconds() - begun, answer._replace(status=503)
        delay = again_in(core.retries, request, as_a_whole, attempt, spent, core.chance())
        if delay is None:
            return results
        yield Pause(delay)


def _items(answer: Any, count: int) -> list[Accepted | Declined]:
    results = part(answer, "results")
    if not isinstance(results, list) or len(results) != count:
        raise Unexpected(f"The server answered something else than {count} results.")
    return [_item(result) for result in results]


def _chunk(texts: list[bytes]) -> Chunk:
    return Chunk(_AROUND % b",".join(texts), len(texts))


def _item(result: Any) -> Accepted | Declined:
    if part(result, "status") == 202:
        return Accepted(part(result, "job_id"), result.get("location"))
    problem = problem_in(result.get("problem"), result["status"])
    return Declined(problem, of_problem(problem))
