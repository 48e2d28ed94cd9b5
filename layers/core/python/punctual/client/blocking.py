"""The client that waits."""

import os
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

import httpx

from punctual.client import calls_jobs, calls_rest, calls_runs, clock
from punctual.client.groups import Does, Gives, Group
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


class Waiting:
    """Does one step after the other."""

    def __init__(
        self, core: Core, at: Place, most: int, transport: httpx.BaseTransport | None
    ) -> None:
        self.core = core
        self._at = at
        self._most = most
        self._http = httpx.Client(**options(at.root, transport))

    def do(self, steps: Steps[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                found: T = done.value
                return found
            outcome = self._step(step)

    def give(self, stream: Stream[T]) -> Iterator[T]:
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
                outcome = self._step(step)

    def close(self) -> None:
        self._http.close()

    def _step(self, step: Step) -> Outcome | None:
        if isinstance(step, Send):
            return self._sent(step)
        clock.pause(step.seconds)
        return None

    def _sent(self, send: Send) -> Outcome:
        gathered = Gathered(self.core.seconds() + send.seconds, self._most)
        try:
            with self._http.stream(**arguments(send, self._at)) as response:
                for piece in response.iter_bytes():
                    gathered.add(piece, self.core.seconds())
                return gathered.answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return failure(error)


class Jobs(Group):
    create = Does(calls_jobs.create)
    create_many = Does(calls_jobs.create_many)
    list = Gives(calls_jobs.listed)
    get = Does(calls_jobs.get)
    update = Does(calls_jobs.update)
    cancel = Does(calls_jobs.cancel)
    pause = Does(calls_jobs.pause)
    resume = Does(calls_jobs.resume)
    run = Does(calls_jobs.run)
    backfill = Does(calls_jobs.backfill)
    explain = Does(calls_jobs.explain)
    status = Does(calls_jobs.status)


class Runs(Group):
    list = Gives(calls_runs.listed)
    get = Does(calls_runs.get)
    cancel = Does(calls_runs.cancel)
    retry = Does(calls_runs.retry)
    output = Does(calls_runs.output)
    logs = Does(calls_runs.logs)
    follow_logs = Gives(calls_runs.follow_logs)
    wait_for = Does(calls_runs.wait_for)


class Schedules(Group):
    preview = Does(calls_rest.preview)
    upcoming = Gives(calls_rest.upcoming)


class Tokens(Group):
    create = Does(calls_rest.create_token)
    list = Gives(calls_rest.tokens)
    get = Does(calls_rest.get_token)
    revoke = Does(calls_rest.revoke_token)


class Audit(Group):
    list = Gives(calls_rest.audit)


class Punctual(Group):
    """A Punctual API: at `url` or PUNCTUAL_URL, else on this machine; close it when done."""

    whoami = Does(calls_rest.whoami)
    stats = Does(calls_rest.stats)
    health = Does(calls_rest.health)
    live = Does(calls_rest.live)
    ready = Does(calls_rest.ready)
    openapi = Does(calls_rest.openapi)
    webhook_secret = Does(calls_rest.webhook_secret)
    wait_for = Does(calls_runs.wait_for)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        most_bytes: int = MOST_BYTES,
        retries: Retries = Retries(),  # noqa: B008, a value
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        at = place(url, token, os.environ)
        core = Core(at.root, retries, timeout, clock.seconds, clock.chance, clock.new_key)
        self._waiting = Waiting(core, at, most_bytes, transport)
        super().__init__(self._waiting)
        self.url = at.root
        self.jobs = Jobs(self._waiting)
        self.runs = Runs(self._waiting)
        self.schedules = Schedules(self._waiting)
        self.tokens = Tokens(self._waiting)
        self.audit = Audit(self._waiting)

    def close(self) -> None:
        self._waiting.close()

    def __enter__(self) -> "Punctual":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
