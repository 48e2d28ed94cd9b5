"""Many jobs at once: as many requests as their number and length take."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from punctual.client.errors import Unexpected
from punctual.client.job import Accepted, Declined
from punctual.client.model import part
from punctual.client.refusals import of_problem, problem_in
from punctual.client.wire import body

MOST_JOBS = 500
MOST_BYTES = 5 * 1024 * 1024
_AROUND = b'{"jobs":[%b]}'
_ROOM = MOST_BYTES - len(_AROUND)


class Chunk(NamedTuple):
    body: bytes
    jobs: int


def chunks(jobs: Iterable[Mapping[str, object]]) -> Iterator[Chunk]:
    """The same jobs always fall into the same chunks: a key and a place then mean one job."""
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


def items_of(answer: Any, count: int) -> list[Accepted | Declined]:
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
