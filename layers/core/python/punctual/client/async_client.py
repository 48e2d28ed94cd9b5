"""The client for asyncio."""

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TypeVar

import httpx

from punctual.client import clock
from punctual.client.call_steps import Core, Give, Send, Step, Steps, Stream
from punctual.client.endpoints import jobs, runs, system
from punctual.client.methods import AsyncDoes, AsyncGives, AsyncGroup
from punctual.client.retrying import Retries
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
    """Carries out the steps of a call with asyncio."""

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
    create = AsyncDoes(jobs.create)
    create_many = AsyncDoes(jobs.create_many)
    list = AsyncGives(jobs.listed)
    get = AsyncDoes(jobs.get)
    update = AsyncDoes(jobs.update)
    cancel = AsyncDoes(jobs.cancel)
    pause = AsyncDoes(jobs.pause)
    resume = AsyncDoes(jobs.resume)
    run = AsyncDoes(jobs.run)
    backfill = AsyncDoes(jobs.backfill)
    explain = AsyncDoes(jobs.explain)
    status = AsyncDoes(jobs.status)


class AsyncRuns(AsyncGroup):
    list = AsyncGives(runs.listed)
    get = AsyncDoes(runs.get)
    cancel = AsyncDoes(runs.cancel)
    retry = AsyncDoes(runs.retry)
    output = AsyncDoes(runs.output)
    logs = AsyncDoes(runs.logs)
    follow_logs = AsyncGives(runs.follow_logs)
    wait_for = AsyncDoes(runs.wait_for)


class AsyncSchedules(AsyncGroup):
    preview = AsyncDoes(system.preview)
    upcoming = AsyncGives(system.upcoming)


class AsyncTokens(AsyncGroup):
    create = AsyncDoes(system.create_token)
    list = AsyncGives(system.tokens)
    get = AsyncDoes(system.get_token)
    revoke = AsyncDoes(system.revoke_token)


class AsyncAudit(AsyncGroup):
    list = AsyncGives(system.audit)


class AsyncPunctual(AsyncGroup):
    """A client of the API at `url`, at PUNCTUAL_URL, or on this machine. Close it after use."""

    whoami = AsyncDoes(system.whoami)
    stats = AsyncDoes(system.stats)
    health = AsyncDoes(system.health)
    live = AsyncDoes(system.live)
    ready = AsyncDoes(system.ready)
    openapi = AsyncDoes(system.openapi)
    webhook_secret = AsyncDoes(system.webhook_secret)
    wait_for = AsyncDoes(runs.wait_for)

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
