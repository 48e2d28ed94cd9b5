"""Script functions with planned answers, beside executor functions that tests invoke."""

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from punctual.domain.claims import ClaimIdentity
from punctual.engine.changes.timer_placement import LEASE_TIMER_GRID_SECONDS
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.runtime import Runtime
from punctual.tasks.runner_event import RunnerArtifact
from punctual.tasks.script_function import ScriptFunctionTask
from tests.support.deployed.drivers.executors import Executors, Record

SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}
LONG = {"task": SCRIPT, "timeout_seconds": 120, "max_retries": 0}
SHORT = {"task": SCRIPT, "timeout_seconds": 20, "max_retries": 0}
"""What the run makes of its attempt shows in its status."""
ARTIFACT_ID = "6c9e8f1a-2b3c-8d4e-af50-617283940516"
ARTIFACT = RunnerArtifact("https://objects.test/a.zip?signed", "0" * 64, "a.zip", 5)
LEASE_TIMER_DELAY = timedelta(seconds=LEASE_TIMER_GRID_SECONDS)


class Functions:
    """Script functions with a list of answers: each is returned, raised or called."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.crash_before = False
        self.artifact_error: Exception | None = None
        self.events: list[dict[str, Any]] = []
        self.started: list[dict[str, Any]] = []

    def invoke(self, _function: str, _tenant: str, event: bytes, _seconds: float, /) -> bytes:
        self.events.append(json.loads(event))
        answer = self._next()
        return json.dumps({"format": 1, "status": "SUCCESS", **(answer or {})}).encode()

    def start(self, _function: str, _tenant: str, event: bytes, /) -> None:
        if self.crash_before and self.answers:
            self._next()
        self.started.append(json.loads(event))
        self._next()

    def find_artifact(self, tenant: str, artifact_id: str) -> RunnerArtifact:
        assert (tenant, artifact_id) == ("acme", ARTIFACT_ID)
        if self.artifact_error is not None:
            raise self.artifact_error
        return ARTIFACT

    def _next(self) -> Any:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


def script_functions(world: Executors) -> Functions:
    functions = Functions()
    world.script = ScriptFunctionTask(
        functions,
        sign=lambda claim: json.dumps(claim),
        api_url=lambda: "https://api.example.com/v1",
        memory_mb=512,
        find_artifact=functions.find_artifact,
    )
    return functions


def invoke(
    world: Executors,
    records: Sequence[Record] | None = None,
    runtime: Runtime | None = None,
    seconds_left: float = 900,
) -> list[str]:
    """Invoke the executor of scripts with these messages, or with all that are visible."""
    messages = world.records() if records is None else records
    return world.invoke(messages, runtime, "long", seconds_left)


def claim_of(event: dict[str, Any]) -> ClaimIdentity:
    return ClaimIdentity(*json.loads(event["claim"]))


def lease_seconds(world: Executors, key: JobKey) -> float:
    """Return how long the lease of the job's run still lasts."""
    (lease,) = world.runtime.ports.job_states.load([key])[key].leases.values()
    return (lease.until - world.clock()).total_seconds()


def encoded(text: bytes) -> str:
    return b64encode(text).decode()
