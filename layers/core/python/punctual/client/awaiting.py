"""The same client for who awaits."""

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TypeVar

import httpx

from punctual.client import calls_jobs, calls_rest, calls_runs, clock
from punctual.client.groups import AsyncDoes, AsyncGives, AsyncGroup
from punctual.client.retrying import Retries
from punctual.client.steps import Core, Give, Send, Step, Steps, Stream
from punctual.client.transport import (
    MOST_BYTES,
    Gathered,
    Place,
    arguments,
    failure,
    options,
    place,
)
from punctual.client.wire import Outcome

T = TypeVar("T")


class Awaiting:
    """Does one step after the other."""

    def __init__(
        self, core: Core, at: Place, most: int, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self.core = core
        self._at = at
        self._most = most
        self._http = httpx.AsyncClient(**options(at.root, transport))

    async def do(self, steps: Steps[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                found: T = done.value
                return found
            outcome = await self._step(step)

    async def give(self, stream: Stream[T]) -> AsyncIterator[T]:
        outcome: Outcome | None = None
        while True:
            try:
                step = stream.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Give):
                outcome = None
                yield step.value
            else:
                outcome = await self._step(step)

    async def close(self) -> None:
        await self._http.aclose()

    async def _step(self, step: Step) -> Outcome | None:
        if isinstance(step, Send):
            return await self._sent(step)
        await clock.pause_async(step.seconds)
        return None

    async def _sent(self, send: Send) -> Outcome:
        gathered = Gathered(self.core.seconds() + send.seconds, self._most)
        try:
            async with self._http.stream(**arguments(send, self._at)) as response:
                async for piece in response.aiter_bytes():
                    gathered.add(piece, self.core.seconds())
                return gathered.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return failure(error)


class AsyncJobs(AsyncGroup):
    create = AsyncDoes(calls_jobs.create)
    create_many = AsyncDoes(calls_jobs.create_many)
    list = AsyncGives(calls_jobs.listed)
    get = AsyncDoes(calls_jobs.get)
    update = AsyncDoes(calls_jobs.update)
    cancel = AsyncDoes(calls_jobs.cancel)
    pause = AsyncDoes(calls_jobs.pause)
    resume = AsyncDoes(calls_jobs.resume)
    run = AsyncDoes(calls_jobs.run)
    backfill = AsyncDoes(calls_jobs.backfill)
    explain = AsyncDoes(calls_jobs.explain)
    status = AsyncDoes(calls_jobs.status)


class AsyncRuns(AsyncGroup):
    list = AsyncGives(calls_runs.listed)
    get = AsyncDoes(calls_runs.get)
    cancel = AsyncDoes(calls_runs.cancel)
    retry = AsyncDoes(calls_runs.retry)
    output = AsyncDoes(calls_runs.output)
    logs = AsyncDoes(calls_runs.logs)
    follow_logs = AsyncGives(calls_runs.follow_logs)
    wait_for = AsyncDoes(calls_runs.wait_for)


class AsyncSchedules(AsyncGroup):
    preview = AsyncDoes(calls_rest.preview)
    upcoming = AsyncGives(calls_rest.upcoming)


class AsyncTokens(AsyncGroup):
    create = AsyncDoes(calls_rest.create_token)
    list = AsyncGives(calls_rest.tokens)
    get = AsyncDoes(calls_rest.get_token)
    revoke = AsyncDoes(calls_rest.revoke_token)


class AsyncAudit(AsyncGroup):
    list = AsyncGives(calls_rest.audit)


class AsyncPunctual(AsyncGroup):
    """A Punctual API: at `url` or PUNCTUAL_URL, else on this machine; close it when done."""

    whoami = AsyncDoes(calls_rest.whoami)
    stats = AsyncDoes(calls_rest.stats)
    health = AsyncDoes(calls_rest.health)
    live = AsyncDoes(calls_rest.live)
    ready = AsyncDoes(calls_rest.ready)
    openapi = AsyncDoes(calls_rest.openapi)
    webhook_secret = AsyncDoes(calls_rest.webhook_secret)
    wait_for = AsyncDoes(calls_runs.wait_for)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        most_bytes: int = MOST_BYTES,
        retries: Retries = Retries(),  # noqa: B008, a value
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        at = place(url, token, os.environ)
        core = Core(at.root, retries, timeout, clock.seconds, clock.chance, clock.new_key)
        self._awaiting = Awaiting(core, at, most_bytes, transport)
        super().__init__(self._awaiting)
        self.url = at.root
        self.jobs = AsyncJobs(self._awaiting)
        self.runs = AsyncRuns(self._awaiting)
        self.schedules = AsyncSchedules(self._awaiting)
        self.tokens = AsyncTokens(self._awaiting)
        self.audit = AsyncAudit(self._awaiting)

    async def close(self) -> None:
        await self._awaiting.close()

    async def __aenter__(self) -> "AsyncPunctual":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
