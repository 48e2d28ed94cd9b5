"""A node that a test steps on a stopped clock, with a task that waits for the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from punctual.domain.job_state import Lane
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import JobView, RunView
from punctual.identity import new_id
from punctual.node.files.process_groups import GroupFiles
from punctual.node.node import Node
from punctual.node.sqlite.store import Store
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.support.builders import ManualClock
from tests.support.names.own_names import own_name

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
T = "local"


class Gate:
    """A task that runs until the test opens it or the node stops it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open_jobs: set[str] = set()
        self.begun = threading.Semaphore(0)
        self.attempts: list[int] = []

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        self.attempts.append(attempt.attempt_number)
        recorder.log(b"begun\n")
        self.begun.release()
        while not (self.open.is_set() or attempt.job_id in self.open_jobs):
            if stop.wait(0.005):
                return Outcome.stopped(stop.reason())
        if attempt.payload == "fail":
            return Outcome.failed("no luck")
        return Outcome("SUCCESS", output=b"done", output_type="text/plain")


class World:
    def __init__(
        self,
        folder: Path,
        clock: ManualClock,
        limits_of: LimitsOf | None = None,
        script_memory_mb: int = 2**20,
        gate: Gate | None = None,
    ) -> None:
        self.folder = folder
        self.clock = clock
        self.gate = gate or Gate()
        self.woken = threading.Event()
        self.events: list[str] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.store = Store.open(folder, clock, self._log)
        self.workers = {Lane.QUICK.value: Workers("quick", 4), Lane.LONG.value: Workers("long", 4)}
        self.node = Node(
            self.store,
            AttemptRunner({"http": self.gate, "script": self.gate}),
            GroupFiles(folder / "groups"),
            clock,
            clock.monotonic,
            new_id(clock),
            self._log,
            self.workers,
            self.woken.set,
            executor_id=f"node-{id(self)}",
            limits_of=limits_of,
            script_memory_mb=script_memory_mb,
        )
        self.node.start()
        self.node.step()

    def _log(self, event: str, /, **facts: Any) -> None:
        self.events.append(event)
        self.lines.append((event, facts))

    def do(self, request: Any) -> Any:
        (answer,) = self.node.perform([request])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, **fields: Any) -> str:
        document = {"name": own_name("a job"), "schedule_type": "IMMEDIATE", **fields}
        (view,) = self.do(lambda: self.node.jobs.submit(T, "me", [Submission(document)]))
        assert isinstance(view, JobView)
        return view.state.job_id

    def until(self, seconds: float) -> None:
        """Step at each time that the node asks for, up to `seconds` after noon."""
        end = NOON + timedelta(seconds=seconds)
        for _ in range(10_000):
            at = self.node.next_step_steady()
            if at > self.clock.monotonic() + (end - self.clock.now).total_seconds():
                break
            self.clock.advance_to_steady(at)
            self.node.step()
        self.clock.set(end)
        self.node.step()

    def settle(self) -> None:
        """Wait until the workers finish, and store their results."""
        assert self.woken.wait(10)
        self.woken.clear()
        self.node.step()

    def runs(self, job_id: str | None) -> list[RunView]:
        return list(
            self.do(lambda: finish(self.node.search.runs(T, job_id, RunFilters(), 200, None))).items
        )

    def statuses(self, job_id: str) -> list[str]:
        return [view.run.status.value for view in self.runs(job_id)]


@contextmanager
def a_world(
    folder: Path, clock: ManualClock, limits_of: LimitsOf | None = None, **options: Any
) -> Iterator[World]:
    world = World(folder, clock, limits_of, **options)
    try:
        yield world
    finally:
        world.gate.open.set()
        for workers in world.workers.values():
            workers.close(10)
        world.store.close()
