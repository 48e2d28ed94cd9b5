"""Run scripts as real processes, with or without a sandbox."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.script import landlock
from punctual.tasks.script.process_group import ProcessGroup
from punctual.tasks.script.sandbox import Sandbox, choose_sandbox
from punctual.tasks.script.task import ScriptTask

LONG = 300.0
PATIENCE = 10.0
RUN = f"run-{os.getpid()}"  # left-over processes are found by this id, on the whole machine


class Log:
    """Keeps the log, and calls `then` once the log contains `until`."""

    def __init__(self, until: bytes = b"", then: Callable[[], None] = lambda: None) -> None:
        self.data = b""
        self._until = until
        self._then = then

    def log(self, data: bytes) -> None:
        fresh = self._until not in self.data
        self.data += data
        if fresh and self._until in self.data:
            self._then()


class GroupRecorder:
    """Records process groups, and their state when they were reported."""

    def __init__(self) -> None:
        self.started: list[tuple[str, ProcessGroup]] = []
        self.ended: list[tuple[str, ProcessGroup]] = []
        self.alive_at_start: list[bool] = []
        self.alive_at_end: list[bool] = []

    def on_started(self, run_id: str, group: ProcessGroup) -> None:
        self.started.append((run_id, group))
        self.alive_at_start.append(exists(group.pid))

    def on_ended(self, run_id: str, group: ProcessGroup) -> None:
        self.ended.append((run_id, group))
        self.alive_at_end.append(exists(group.pid))


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


def unconfined() -> Sandbox:
    return choose_sandbox("none", Path(), is_shared=False)


def default_sandbox(closed: Path) -> Sandbox:
    """Return a Landlock sandbox, or none if the kernel lacks it. The tests pass with both."""
    return choose_sandbox("landlock" if landlock.abi_version() else "none", closed, is_shared=False)


def an_attempt(
    code: str, runtime: str = "bash", seconds: float = LONG, payload: Any = None, **task: Any
) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id=RUN,
        name="A job",
        attempt_number=2,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "script", "runtime": runtime, "code": code} | task,
        payload=payload,
        timeout=timedelta(seconds=seconds),
        token=7,
    )


def execute(
    root: Path,
    attempt: Attempt,
    *,
    stop: StopSignal | None = None,
    log: Log | None = None,
    grace: float = PATIENCE,
    recorder: GroupRecorder | None = None,
    path: str = "/usr/local/bin:/usr/bin:/bin",
    sandbox: Sandbox | None = None,
    **options: Any,
) -> Outcome:
    task = ScriptTask(
        root,
        sandbox or default_sandbox(root.parent),
        monotonic=time.monotonic,
        path=path,
        groups=recorder,
        grace=timedelta(seconds=grace),
        **options,
    )
    attempt_runner = AttemptRunner({"script": task}, lambda _tenant, name: f"hush-{name}")
    outcome = attempt_runner.run(attempt, stop or StopSignal(), log or Log())
    assert list(root.iterdir()) == []
    return outcome
