"""The blocking client and the async client behind one interface, for shared tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from punctual.client import AsyncPunctual, Punctual, Retries

URL = "http://punctual.test/v1"
NO_DELAY = Retries(first_delay=0.0)


class ClientKind:
    """One of both clients. `do` and `all` run its calls to their results."""

    client: Any

    def do(self, call: Any) -> Any:
        return call

    def all(self, call: Iterator[Any]) -> list[Any]:
        return list(call)


class _Awaiting(ClientKind):
    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(call)

    def all(self, call: Any) -> list[Any]:
        return self._runner.run(_gathered(call))


async def _gathered(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@contextmanager
def blocking(url: str = URL, token: str | None = None, **options: Any) -> Iterator[ClientKind]:
    access = ClientKind()
    with Punctual(url, token, **options) as access.client:
        yield access


@contextmanager
def awaiting(url: str = URL, token: str | None = None, **options: Any) -> Iterator[ClientKind]:
    with asyncio.Runner() as runner:
        access = _Awaiting(runner)
        access.client = AsyncPunctual(url, token, **options)
        yield access
        access.do(access.client.close())


both_clients = pytest.mark.parametrize("open_client", [blocking, awaiting])


class Server:
    """A server with scripted answers. It repeats the last one, and keeps all requests."""

    def __init__(self, *answers: httpx.Response | Exception | Callable[..., httpx.Response]):
        self._answers = list(answers)
        self.asked: list[httpx.Request] = []

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            # A response can be read once, but the same answer may be repeated.
            return httpx.Response(
                answer.status_code, headers=answer.headers, content=answer.content
            )
        return answer(request)


JOB = {
    "job_id": "01a1f03b-abb9-7019-9650-e41c1771d654",
    "name": "nightly",
    "schedule_type": "CRON",
    "cron_expression": "0 2 * * *",
    "status": "SCHEDULED",
    "version": 3,
}
RUN = {
    "run_id": "01a1f03b-abba-7371-aab4-492044501b4b",
    "job_id": JOB["job_id"],
    "status": "SUCCESS",
    "attempt_number": 1,
    "created_at": "2026-11-18T19:56:44.858Z",
}


def a_problem(status: int, code: str, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    body = {"title": "t", "status": status, "detail": "It did not do.", "code": code, **more}
    return httpx.Response(
        status, json=body, headers={"content-type": "application/problem+json", **headers}
    )


def a_job(status: int = 200, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json={**JOB, **fields})


def a_run(status: int = 200, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json={**RUN, **fields})
