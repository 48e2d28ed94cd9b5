"""The client for blocking code."""

import os
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

import httpx

from punctual.client import clock
from punctual.client.call_steps import Core, Give, Send, Step, Steps, Stream
from punctual.client.endpoints import jobs, runs, system
from punctual.client.methods import Does, Gives, Group
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


class Waiting:
    """Carries out the steps of a call in the calling thread."""

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
    create = Does(jobs.create)
    create_many = Does(jobs.create_many)
    list = Gives(jobs.listed)
    get = Does(jobs.get)
    update = Does(jobs.update)
    cancel = Does(jobs.cancel)
    pause = Does(jobs.pause)
    resume = Does(jobs.resume)
    run = Does(jobs.run)
    backfill = Does(jobs.backfill)
    explain = Does(jobs.explain)
    status = Does(jobs.status)


class Runs(Group):
    list = Gives(runs.listed)
    get = Does(runs.get)
    cancel = Does(runs.cancel)
    retry = Does(runs.retry)
    output = Does(runs.output)
    logs = Does(runs.logs)
    follow_logs = Gives(runs.follow_logs)
    wait_for = Does(runs.wait_for)


class Schedules(Group):
    preview = Does(system.preview)
    upcoming = Gives(system.upcoming)


class Tokens(Group):
    create = Does(system.create_token)
    list = Gives(system.tokens)
    get = Does(system.get_token)
    revoke = Does(system.revoke_token)


class Audit(Group):
    list = Gives(system.audit)


class Punctual(Group):
    """A client of the API at `url`, at PUNCTUAL_URL, or on this machine. Close it after use."""

    whoami = Does(system.whoami)
    stats = Does(system.stats)
    health = Does(system.health)
    live = Does(system.live)
    ready = Does(system.ready)
    openapi = Does(system.openapi)
    webhook_secret = Does(system.webhook_secret)
    wait_for = Does(runs.wait_for)

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
