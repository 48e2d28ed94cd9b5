"""The runs that this node holds: their threads, their beats, and the wish that they end."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from punctual.domain.errors import PunctualError
from punctual.domain.run import Reason, Status
from punctual.domain.timing import BEAT, HOLD
from punctual.engine.executor import Alive, Assignment, Executor, Finished
from punctual.engine.ports import Detail, Key
from punctual.engine.search import log_name, output_name
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.registry import Registry


class Files(Protocol):
    """The blobs of the node, which threads may write."""

    def put(self, name: str, data: bytes, content_type: str) -> None: ...

    def append(self, name: str, data: bytes) -> None: ...

    def size(self, name: str) -> int: ...


class _Held(msgspec.Struct):
    assignment: Assignment
    stop: StopSignal
    claimed_at: datetime
    beaten_at: datetime
    renewed: float  # by the steady clock
    beats: int = 0


class Ended(NamedTuple):
    """How an attempt ended, for the node to write, and the wish that had stopped it, if any."""

    assignment: Assignment
    finished: Finished
    stopped: str


class _Log:
    """Appends what a task prints to its log, which readers see while it runs."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name

    def log(self, data: bytes) -> None:
        self._files.append(self._name, data)


def attempt_of(assignment: Assignment) -> Attempt:
    run, body = assignment.run, assignment.body
    return Attempt(
        tenant=assignment.key.tenant,
        job_id=assignment.key.job_id,
        run_id=run.run_id,
        name=body.name,
        attempt_number=run.attempt,
        scheduled_at=run.scheduled_at,
        task=body.document.get("task") or {"type": "event"},
        payload=assignment.payload,
        timeout=timedelta(seconds=assignment.timeout_seconds),
        token=run.token,
    )


class Holding:
    """Safe to call from the node's loop only; the work itself runs in threads."""

    def __init__(
        self,
        executor: Executor,
        registry: Registry,
        files: Files,
        monotonic: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._files = files
        self._monotonic = monotonic
        self._held: dict[tuple[str, int], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(
        self, assignment: Assignment, now: datetime, ended: Callable[[Ended], None]
    ) -> Callable[[], None]:
        """The work of a claimed run, to be called in a thread; it calls `ended` once."""
        stop = StopSignal()
        mark = (assignment.run.run_id, assignment.run.token)
        self._held[mark] = _Held(assignment, stop, now, now, self._monotonic())

        def work() -> None:
            ended(self._perform(assignment, stop))

        return work

    def _perform(self, assignment: Assignment, stop: StopSignal) -> Ended:
        key, run = assignment.key, assignment.run
        log = log_name(key, run.run_id, run.token)
        outcome = self._registry.run(attempt_of(assignment), stop, _Log(self._files, log))
        try:
            detail = self._keep(key, assignment, outcome, log)
        except (OSError, PunctualError) as error:
            outcome = Outcome.failed(f"The output could not be stored: {error}")
            detail = detail_of(outcome)
        finished = Finished(
            key, run.run_id, run.token, Status(outcome.status), outcome.retryable, detail
        )
        return Ended(assignment, finished, stop.wanted())

    def _keep(self, key: Key, assignment: Assignment, outcome: Outcome, log: str) -> Detail:
        detail = detail_of(outcome)
        run = assignment.run
        if outcome.output:
            name = output_name(key, run.run_id, run.token)
            self._files.put(name, outcome.output, outcome.output_type)
            detail = msgspec.structs.replace(
                detail, output_blob=name, output_size=len(outcome.output)
            )
        size = self._files.size(log)
        if size:
            detail = msgspec.structs.replace(detail, log_blob=log, log_size=size)
        return detail

    def let_go(self, assignment: Assignment) -> None:
        self._held.pop((assignment.run.run_id, assignment.run.token), None)

    def stop(self, run_ids: Sequence[str]) -> None:
        for (run_id, _), held in self._held.items():
            if run_id in run_ids:
                held.stop.stop("CANCEL")

    def stop_all(self) -> None:
        for held in self._held.values():
            held.stop.stop("SHUTDOWN")

    def beat(self, now: datetime) -> None:
        """Renew what is held for four seconds and more; end what is not ours any more."""
        steady = self._monotonic()
        due = [held for held in self._held.values() if now - held.beaten_at >= BEAT]
        for first in (True, False):
            group = [held for held in due if (held.beats == 0) is first]
            if group:
                found = self._executor.beat([_claim(held) for held in group], first)
                for held, alive in zip(group, found, strict=True):
                    _note(held, alive, now, steady)
        for held in self._held.values():
            if steady - held.renewed > HOLD.total_seconds():
                held.stop.stop("LOST")

    def next_beat(self) -> datetime | None:
        return min((held.beaten_at + BEAT for held in self._held.values()), default=None)


def _claim(held: _Held) -> tuple[Key, str, int]:
    run = held.assignment.run
    return held.assignment.key, run.run_id, run.token


def _note(held: _Held, alive: Alive, now: datetime, steady: float) -> None:
    held.beaten_at = now
    held.beats += 1
    if not alive.held:
        held.stop.stop("LOST")
        return
    held.renewed = steady
    if alive.cancel is not Reason.NONE:
        held.stop.stop("CANCEL")


def detail_of(outcome: Outcome) -> Detail:
    """What an outcome leaves behind, its output and log aside."""
    return Detail(
        error=outcome.error,
        exit_code=outcome.exit_code,
        http_status=outcome.http_status,
        http_headers=outcome.http_headers,
        output_type=outcome.output_type if outcome.output else "",
        output_truncated=outcome.output_truncated,
        log_truncated=outcome.logs_truncated,
    )
