"""A task runner without threads. A task ends when a manual clock reaches its time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.lambdas.executor.attempt import RunningAttempt
from punctual.lambdas.executor.threads import Work
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.support.builders import ManualClock


class _Started(NamedTuple):
    ends_at: datetime
    work: Work


class ManualTaskRunner:
    """A task runner on a manual clock.

    An attempt lasts as its payload says. Other work takes no time, or the next duration of
    `beside`.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._started: list[_Started] = []
        self._planned: list[tuple[datetime, Callable[[], object]]] = []
        self.beside: list[float] = []
        self.waits = 0
        self.begun_at: list[datetime] = []
        self.ended_at: list[datetime] = []

    def at(self, at_time: datetime, action: Callable[[], object]) -> None:
        self._planned.append((at_time, action))

    def start(self, work: Work, /) -> None:
        if isinstance(work, RunningAttempt):
            self.begun_at.append(self._clock())
            lasts = float(_payload(work).get("lasts", 0))
        else:
            lasts = self.beside.pop(0) if self.beside else 0
        self._started.append(_Started(self._clock() + timedelta(seconds=lasts), work))

    def end_attempts(self) -> None:
        """Let the work of all attempts end now."""
        self._started = [
            started._replace(ends_at=self._clock())
            if isinstance(started.work, RunningAttempt)
            else started
            for started in self._started
        ]

    def wait(self, seconds: float, /) -> None:
        self.waits += 1
        assert self.waits < 2_000, "the loop does not come to rest"
        until = self._clock() + timedelta(seconds=seconds)
        ends = [started.ends_at for started in self._started] + [at for at, _ in self._planned]
        self._clock.set(max(self._clock(), min([until, *ends])))
        for at, action in [started for started in self._planned if started[0] <= self._clock()]:
            self._planned.remove((at, action))
            action()
        for started in list(self._started):
            if started.ends_at <= self._clock() or _obeys(started.work):
                self._started.remove(started)
                if isinstance(started.work, RunningAttempt):
                    self.ended_at.append(self._clock())
                started.work()


def _payload(work: RunningAttempt) -> dict[str, Any]:
    payload = work.assignment.payload
    return payload if isinstance(payload, dict) else {}


def _obeys(work: Work) -> bool:
    stubborn = isinstance(work, RunningAttempt) and "stubborn" in _payload(work)
    return isinstance(work, RunningAttempt) and bool(work.stop.reason()) and not stubborn


class ScriptedTask:
    """A task that the payload scripts: {"out", "type", "error", "log": text, "http_status": 200}.

    "hangs" advances the shared clock by that many seconds before the task checks for a stop.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.ran: list[str] = []

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        self.ran.append(attempt.run_id)
        payload = attempt.payload if isinstance(attempt.payload, dict) else {}
        self._clock.advance(timedelta(seconds=payload.get("hangs", 0)))
        if stop.reason():
            return Outcome.stopped(stop.reason())
        if "log" in payload:
            recorder.log(str(payload["log"]).encode())
        output = str(payload.get("out", "")) * int(payload.get("times", 1))
        return Outcome(
            "FAILED" if "error" in payload else "SUCCESS",
            str(payload.get("error", "")),
            output=output.encode(),
            output_type=str(payload.get("type", "text/plain; charset=utf-8")),
            http_status=payload.get("http_status"),
        )
