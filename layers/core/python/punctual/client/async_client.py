"""The client for asyncio."""

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TypeVar

import httpx

from punctual.client import clock
from punctual.client.call_steps import ClientSettings, Item, Send, Step, Steps, Stream
from punctual.client.calls.retrying import Retries
from punctual.client.calls.transport import (
    MAX_API_ANSWER_BYTES,
    ApiTarget,
    body_of_response,
    client_options,
    request_arguments,
    resolve_target,
)
from punctual.client.endpoints import (
    artifacts,
    changes,
    claims,
    jobs,
    occurrences,
    operations,
    overview,
    runs,
    schedules,
    system,
)
from punctual.client.methods import AsyncCallMethod, AsyncGroup, AsyncStreamMethod
from punctual.client.wire import Outcome, RequestFile

T = TypeVar("T")


class AsyncioStepRunner:
    """Carries out the steps of a call with asyncio."""

    def __init__(
        self,
        settings: ClientSettings,
        target: ApiTarget,
        max_answer_bytes: int,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.settings = settings
        self._target = target
        self._max_answer_bytes = max_answer_bytes
        self._http = httpx.AsyncClient(**client_options(target.root, transport))

    async def run_steps(self, steps: Steps[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                value: T = stop.value
                return value
            outcome = await self._step(step)

    async def stream_items(self, stream: Stream[T]) -> AsyncIterator[T]:
        outcome: Outcome | None = None
        while True:
            try:
                step = stream.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Item):
                outcome = None
                yield step.value
            else:
                outcome = await self._step(step)

    async def close(self) -> None:
        await self._http.aclose()

    async def _step(self, step: Step) -> Outcome | None:
        if isinstance(step, Send):
            return await self._send(step)
        await clock.sleep_async(step.delay_seconds)
        return None

    async def _send(self, send: Send) -> Outcome:
        body = body_of_response(send, self.settings.steady_clock(), self._max_answer_bytes)
        arguments = request_arguments(send, self._target)
        if send.request.file is not None:
            arguments["content"] = _async_pieces(send.request.file)
        try:
            async with self._http.stream(**arguments) as response:
                with body.receiving(response):
                    async for piece in response.aiter_bytes():
                        body.add(piece, self.settings.steady_clock())
                return body.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return body.failure_of(error)


async def _async_pieces(file: RequestFile) -> AsyncIterator[bytes]:
    """Yield the content of a file. Other work goes on while the connection takes each piece."""
    for piece in file.pieces():
        yield piece


class AsyncJobs(AsyncGroup):
    create = AsyncCallMethod(jobs.create)
    create_many = AsyncCallMethod(jobs.create_many)
    list = AsyncStreamMethod(jobs.list_jobs)
    get = AsyncCallMethod(jobs.get)
    id_of = AsyncCallMethod(jobs.id_of)
    update = AsyncCallMethod(jobs.update)
    cancel = AsyncCallMethod(jobs.cancel)
    pause = AsyncCallMethod(jobs.pause)
    resume = AsyncCallMethod(jobs.resume)
    run = AsyncCallMethod(jobs.run)
    backfill = AsyncCallMethod(jobs.backfill)
    explain = AsyncCallMethod(jobs.explain)
    occurrences = AsyncCallMethod(occurrences.occurrences)
    status = AsyncCallMethod(jobs.status)
    versions = AsyncStreamMethod(jobs.versions)


class AsyncRuns(AsyncGroup):
    list = AsyncStreamMethod(runs.list_runs)
    get = AsyncCallMethod(runs.get)
    cancel = AsyncCallMethod(runs.cancel)
    retry = AsyncCallMethod(runs.retry)
    output = AsyncCallMethod(runs.output)
    save_output = AsyncCallMethod(runs.save_output)
    logs = AsyncCallMethod(runs.logs)
    follow_logs = AsyncStreamMethod(runs.follow_logs)
    watch = AsyncStreamMethod(runs.watch)
    wait_for = AsyncCallMethod(runs.wait_for)


class AsyncSchedules(AsyncGroup):
    preview = AsyncCallMethod(schedules.preview)
    diff = AsyncCallMethod(schedules.diff)
    upcoming = AsyncStreamMethod(schedules.upcoming)


class AsyncTokens(AsyncGroup):
    create = AsyncCallMethod(system.create_token)
    list = AsyncStreamMethod(system.tokens)
    get = AsyncCallMethod(system.get_token)
    revoke = AsyncCallMethod(system.revoke_token)


class AsyncSecrets(AsyncGroup):
    set = AsyncCallMethod(system.set_secret)
    list = AsyncCallMethod(system.secrets)
    delete = AsyncCallMethod(system.delete_secret)


class AsyncClaims(AsyncGroup):
    renew = AsyncCallMethod(claims.renew)
    finish = AsyncCallMethod(claims.finish)
    upload = AsyncCallMethod(claims.upload)
    upload_file = AsyncCallMethod(claims.upload_file)


class AsyncArtifacts(AsyncGroup):
    upload = AsyncCallMethod(artifacts.upload)
    list = AsyncStreamMethod(artifacts.list_artifacts)
    get = AsyncCallMethod(artifacts.get)
    delete = AsyncCallMethod(artifacts.delete)


class AsyncFailures(AsyncGroup):
    list = AsyncStreamMethod(overview.failures)
    acknowledge = AsyncCallMethod(overview.acknowledge)


class AsyncOperations(AsyncGroup):
    begin = AsyncCallMethod(operations.begin)
    preview = AsyncCallMethod(operations.preview)
    list = AsyncStreamMethod(operations.list_operations)
    get = AsyncCallMethod(operations.get)
    cancel = AsyncCallMethod(operations.cancel)
    wait_for = AsyncCallMethod(operations.wait_for)


class AsyncAudit(AsyncGroup):
    list = AsyncStreamMethod(system.audit)


class AsyncPunctual(AsyncGroup):
    """A client of the API at `url`, at PUNCTUAL_URL, or on this machine. Close it after use."""

    read_changes = AsyncCallMethod(changes.read_changes)
    changes = AsyncStreamMethod(changes.follow)
    whoami = AsyncCallMethod(system.whoami)
    overview = AsyncCallMethod(overview.overview)
    stats = AsyncCallMethod(system.stats)
    forecast = AsyncCallMethod(schedules.forecast)
    health = AsyncCallMethod(system.health)
    live = AsyncCallMethod(system.live)
    ready = AsyncCallMethod(system.ready)
    openapi = AsyncCallMethod(system.openapi)
    webhook_secret = AsyncCallMethod(system.webhook_secret)
    wait_for = AsyncCallMethod(runs.wait_for)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        most_bytes: int = MAX_API_ANSWER_BYTES,
        retries: Retries = Retries(),  # noqa: B008, a value
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        target = resolve_target(url, token, os.environ)
        settings = ClientSettings(
            target.root,
            retries,
            timeout,
            clock.steady_seconds,
            clock.random_fraction,
            clock.new_idempotency_key,
        )
        self._step_runner = AsyncioStepRunner(settings, target, most_bytes, transport)
        super().__init__(self._step_runner)
        self.url = target.root
        self.jobs = AsyncJobs(self._step_runner)
        self.runs = AsyncRuns(self._step_runner)
        self.schedules = AsyncSchedules(self._step_runner)
        self.tokens = AsyncTokens(self._step_runner)
        self.secrets = AsyncSecrets(self._step_runner)
        self.audit = AsyncAudit(self._step_runner)
        self.failures = AsyncFailures(self._step_runner)
        self.claims = AsyncClaims(self._step_runner)
        self.artifacts = AsyncArtifacts(self._step_runner)
        self.operations = AsyncOperations(self._step_runner)

    async def close(self) -> None:
        await self._step_runner.close()

    async def __aenter__(self) -> "AsyncPunctual":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
