"""Runs the steps of client calls on a clock that only pauses and answers move."""

import json
from typing import Any

from punctual.client.call_steps import ClientSettings, Pause, Step
from punctual.client.calls.retrying import Retries
from punctual.client.run import Run
from punctual.client.sync_client import StepRunner
from punctual.client.wire import Answer, Failure, Outcome, Request
from tests.support.client.kinds import RUN

NO_CONNECTION = Failure("no connection", sent=False)
NO_ANSWER = Failure("no answer in time", sent=True)


class StepDriver(StepRunner):
    """A driver of steps. Each answer takes `takes` seconds, or the whole timeout."""

    def __init__(self, *outcomes: Outcome, takes: float = 0.0, **policy: Any) -> None:
        self._outcomes = iter(outcomes)
        self._takes = takes
        self.now = 100.0
        self.sent: list[Request] = []
        self.patience: list[float] = []
        self.pauses: list[float] = []
        keys = iter(f"key-{n}" for n in range(9))
        self.settings = ClientSettings(
            "http://a/v1",
            Retries(**policy),
            30.0,
            lambda: self.now,
            lambda: 0.5,
            lambda: next(keys),
        )

    def carry_out(self, step: Step) -> Outcome | None:
        if isinstance(step, Pause):
            self.pauses.append(step.delay_seconds)
            self.now += step.delay_seconds
            return None
        self.sent.append(step.request)
        self.patience.append(step.timeout_seconds)
        outcome = next(self._outcomes)
        self.now += step.timeout_seconds if outcome is NO_ANSWER else self._takes
        return outcome


def answer_with(status: int, value: Any = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, named, json.dumps(value).encode())


def refused(status: int, code: str = "X", **headers: str) -> Answer:
    return answer_with(status, {"status": status, "code": code, "detail": "No."}, **headers)


def a_run(status: str, **fields: Any) -> Answer:
    return answer_with(200, {**RUN, "status": status, **fields})


def run_with_status(status: str) -> Run:
    return Run(job_id=str(RUN["job_id"]), run_id=str(RUN["run_id"]), status=status)
