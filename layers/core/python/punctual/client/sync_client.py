"""The client for blocking code."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
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
from punctual.client.methods import CallMethod, Group, StreamMethod
from punctual.client.wire import Outcome

T = TypeVar("T")


class StepRunner(ABC):
    """Runs calls and streams in the calling thread. A subclass carries out one step."""

    settings: ClientSettings

    def run_steps(self, steps: Steps[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                value: T = stop.value
                return value
            outcome = self.carry_out(step)

    def stream_items(self, stream: Stream[T]) -> Iterator[T]:
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
                outcome = self.carry_out(step)

    @abstractmethod
    def carry_out(self, step: Step) -> Outcome | None:
        """Send a request and return its outcome, or pause and return None."""


class BlockingStepRunner(StepRunner):
    """Carries out the steps of a call over HTTP."""

    def __init__(
        self,
        settings: ClientSettings,
        target: ApiTarget,
        max_answer_bytes: int,
        transport: httpx.BaseTransport | None,
    ) -> None:
        self.settings = settings
        self._target = target
        self._max_answer_bytes = max_answer_bytes
        self._http = httpx.Client(**client_options(target.root, transport))

    def close(self) -> None:
        self._http.close()

    def carry_out(self, step: Step) -> Outcome | None:
        if isinstance(step, Send):
            return self._send(step)
        clock.sleep(step.delay_seconds)
        return None

    def _send(self, send: Send) -> Outcome:
        body = body_of_response(send, self.settings.steady_clock(), self._max_answer_bytes)
        try:
            with self._http.stream(**request_arguments(send, self._target)) as response:
                with body.receiving(response):
                    for piece in response.iter_bytes():
                        body.add(piece, self.settings.steady_clock())
                return body.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return body.failure_of(error)


class Jobs(Group):
    create = CallMethod(jobs.create)
    create_many = CallMethod(jobs.create_many)
    list = StreamMethod(jobs.list_jobs)
    get = CallMethod(jobs.get)
    id_of = CallMethod(jobs.id_of)
    update = CallMethod(jobs.update)
    cancel = CallMethod(jobs.cancel)
    pause = CallMethod(jobs.pause)
    resume = CallMethod(jobs.resume)
    run = CallMethod(jobs.run)
    backfill = CallMethod(jobs.backfill)
    explain = CallMethod(jobs.explain)
    occurrences = CallMethod(occurrences.occurrences)
    status = CallMethod(jobs.status)
    versions = StreamMethod(jobs.versions)


class Runs(Group):
    list = StreamMethod(runs.list_runs)
    get = CallMethod(runs.get)
    cancel = CallMethod(runs.cancel)
    retry = CallMethod(runs.retry)
    output = CallMethod(runs.output)
    save_output = CallMethod(runs.save_output)
    logs = CallMethod(runs.logs)
    follow_logs = StreamMethod(runs.follow_logs)
    watch = StreamMethod(runs.watch)
    wait_for = CallMethod(runs.wait_for)


class Schedules(Group):
    preview = CallMethod(schedules.preview)
    diff = CallMethod(schedules.diff)
    upcoming = StreamMethod(schedules.upcoming)


class Tokens(Group):
    create = CallMethod(system.create_token)
    list = StreamMethod(system.tokens)
    get = CallMethod(system.get_token)
    revoke = CallMethod(system.revoke_token)


class Secrets(Group):
    set = CallMethod(system.set_secret)
    list = CallMethod(system.secrets)
    delete = CallMethod(system.delete_secret)


class Claims(Group):
    renew = CallMethod(claims.renew)
    finish = CallMethod(claims.finish)
    upload = CallMethod(claims.upload)
    upload_file = CallMethod(claims.upload_file)


class Artifacts(Group):
    upload = CallMethod(artifacts.upload)
    list = StreamMethod(artifacts.list_artifacts)
    get = CallMethod(artifacts.get)
    delete = CallMethod(artifacts.delete)


class Failures(Group):
    list = StreamMethod(overview.failures)
    acknowledge = CallMethod(overview.acknowledge)


class Operations(Group):
    begin = CallMethod(operations.begin)
    preview = CallMethod(operations.preview)
    list = StreamMethod(operations.list_operations)
    get = CallMethod(operations.get)
    cancel = CallMethod(operations.cancel)
    wait_for = CallMethod(operations.wait_for)


class Audit(Group):
    list = StreamMethod(system.audit)


class Punctual(Group):
    """A client of the API at `url`, at PUNCTUAL_URL, or on this machine. Close it after use."""

    read_changes = CallMethod(changes.read_changes)
    changes = StreamMethod(changes.follow)
    whoami = CallMethod(system.whoami)
    overview = CallMethod(overview.overview)
    stats = CallMethod(system.stats)
    forecast = CallMethod(schedules.forecast)
    health = CallMethod(system.health)
    live = CallMethod(system.live)
    ready = CallMethod(system.ready)
    openapi = CallMethod(system.openapi)
    webhook_secret = CallMethod(system.webhook_secret)
    wait_for = CallMethod(runs.wait_for)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        most_bytes: int = MAX_API_ANSWER_BYTES,
        retries: Retries = Retries(),  # noqa: B008, a value
        transport: httpx.BaseTransport | None = None,
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
        self._step_runner = BlockingStepRunner(settings, target, most_bytes, transport)
        super().__init__(self._step_runner)
        self.url = target.root
        self.jobs = Jobs(self._step_runner)
        self.runs = Runs(self._step_runner)
        self.schedules = Schedules(self._step_runner)
        self.tokens = Tokens(self._step_runner)
        self.secrets = Secrets(self._step_runner)
        self.audit = Audit(self._step_runner)
        self.failures = Failures(self._step_runner)
        self.claims = Claims(self._step_runner)
        self.artifacts = Artifacts(self._step_runner)
        self.operations = Operations(self._step_runner)

    def close(self) -> None:
        self._step_runner.close()

    def __enter__(self) -> "Punctual":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
