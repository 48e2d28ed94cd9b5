"""The threads of a node over its real store, and a process outside that calls a node over HTTP."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.effects import message_of
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import RunView
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, Throttled
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode, statuses
from tests.support.executors.claim_calls import (
    RENEWAL_SECONDS,
    TEXT_TYPE,
    ClaimCalls,
    ClaimHolder,
    Item,
    identity_of,
)
from tests.support.executors.driver import ERROR, OUTPUT, Answer, ExecutorDriver, Holder
from tests.support.node.node_world import NOON, Gate, World

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
PATIENCE_SECONDS = 30.0
MAX_SETTLES = 20


class _Work:
    """The work of one attempt in a thread of the node, until the test ends it or the node stops
    it."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop
        self._ends_as: RunStatus | None = None
        self._ended = threading.Event()

    def end(self, status: RunStatus) -> None:
        self._ends_as = status
        self._ended.set()

    def wait(self) -> Outcome:
        while not self._ended.is_set():
            if self.stop.wait(0.005):
                return Outcome.stopped(self.stop.reason())
        match self._ends_as:
            case RunStatus.QUEUED:
                raise Throttled("no room")
            case RunStatus.FAILED:
                return Outcome.failed(ERROR)
            case RunStatus.CANCELLED:
                return Outcome.stopped("CANCEL")
            case _:
                return Outcome("SUCCESS", output=OUTPUT)


class _HeldGate(Gate):
    """The task of a node, which the test holds."""

    def __init__(self, run: Callable[[Attempt, StopRequest, Recorder], Outcome]) -> None:
        super().__init__()
        self._run = run

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        return self._run(attempt, stop, recorder)


class ThreadHolder(Holder):
    """A node with a run in one of its threads."""

    def __init__(self, driver: "NodeDriver", run: Run, world: World, work: _Work) -> None:
        super().__init__(run)
        self._driver = driver
        self._world = world
        self._work = work

    def begin(self) -> None:
        """The work has begun with the claim."""

    def renew(self) -> Answer:
        self._driver.is_frozen = False
        self._driver.pass_time(RENEWAL_SECONDS)
        return Answer(self._work.stop.reason() or "OK")

    def end(self, status: RunStatus) -> None:
        self._driver.is_frozen = False
        self._work.end(status)
        if self._world is not self._driver.world:  # its node is dead, and nothing reads its end
            return
        for _ in range(MAX_SETTLES):
            self._world.settle()
            if self._driver.run.token != self.run.token or not self._driver.run.is_held:
                return
        raise AssertionError("the node has not recorded the end")

    def release(self) -> None:
        self.end(RunStatus.QUEUED)

    def kill(self) -> None:
        self._driver.restart()

    def freeze(self) -> None:
        self._driver.is_frozen = True

    def report(self, status: RunStatus) -> bool:
        return self._driver.report_end(self.run, status)


class NodeDriver(ExecutorDriver):
    """A node that runs a task in a thread. A frozen node evaluates no lease until it goes on."""

    freezes_alone = False
    hears_cancel_at_once = True

    def __init__(self, folder: Path) -> None:
        self.is_frozen = False
        self._folder = folder
        self._clock = ManualClock(NOON)
        self._begun = threading.Semaphore(0)
        self._works: list[_Work] = []
        self._worlds: list[World] = []
        self._open()

    @property
    def world(self) -> World:
        return self._worlds[-1]

    def _open(self) -> None:
        self._worlds.append(World(self._folder, self._clock, gate=_HeldGate(self._carry_out)))

    def restart(self) -> None:
        """Take the store away as a killed process does, and start the next node."""
        self.world.store.close()
        self._open()

    def _carry_out(self, _attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        work = _Work(stop)
        self._works.append(work)
        self._begun.release()
        return work.wait()

    def submit(self, **document: Any) -> None:
        self.key = JobKey("local", self.world.submit(task=HTTP, **document))

    def take(self) -> Holder:
        if not self.run.is_held:
            self.world.node.step()
        assert self._begun.acquire(timeout=PATIENCE_SECONDS), "the node claimed nothing"
        return ThreadHolder(self, self.run, self.world, self._works[-1])

    def take_next(self) -> Holder:
        """Take the run again. The node claims a run in the step that queues it."""
        self.wait_for(RunStatus.RUNNING, RunStatus.QUEUED)
        return self.take()

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, RENEWAL_SECONDS)
            self._clock.advance(timedelta(seconds=step))
            seconds -= step
            if not self.is_frozen:
                self.world.node.step()

    def cancel(self) -> None:
        run_id = self.run.run_id
        self.do(lambda: self.world.node.jobs.cancel_run(*self.key, run_id))

    @property
    def view(self) -> RunView:
        return view_of(self.world, self.key)

    def stored_blob(self, name: str) -> bytes | None:
        data: bytes | None = self.world.store.blobs.get(name)
        return data

    @property
    def executor(self) -> Executor:
        return self.world.node.executor

    @property
    def job_states(self) -> JobStates:
        return self.world.store.job_states

    def do(self, request: Callable[[], Any]) -> Any:
        return self.world.do(request)

    def close(self) -> None:
        for work in self._works:
            work.end(RunStatus.CANCELLED)
        for world in self._worlds:
            for workers in world.workers.values():
                workers.close(PATIENCE_SECONDS)
        self.world.store.close()


class _NodeCalls(ClaimCalls):
    """The calls by claim over HTTP, without a token."""

    def __init__(self, node: ClaimsNode) -> None:
        self._node = node

    def renew(self, item: Item) -> str:
        return statuses(self._node.renew(dict(item)))[0]

    def finish(self, item: Item) -> str:
        return statuses(self._node.finish(dict(item)))[0]

    def upload(self, claim: str, data: bytes) -> str | None:
        body = {"claim": claim, "size": len(data), "content_type": TEXT_TYPE}
        answer = self._node.post("/v1/claims/upload", body)
        if answer.status == 409:
            assert answer.json["code"] == "CLAIM_LOST"
            return None
        self._put(answer.json["upload_url"], data)
        return str(answer.json["output_upload"])

    def _put(self, upload_url: str, data: bytes) -> None:
        """Store the bytes, as a PUT to the address of an upload does."""
        blobs = self._node.world.store.blobs
        ticket = blobs.read_upload_link(upload_url.rpartition("/")[2])
        assert ticket is not None
        file = blobs.open_upload(ticket)
        file.write(data)
        file.finish()
        file.close()


class OutsideNodeDriver(ExecutorDriver):
    """A process that holds a claim of a node. The node has no thread free for the run itself."""

    starts_at_once = False
    returns_at_once = True

    def __init__(self, folder: Path) -> None:
        self._node = ClaimsNode(folder, ManualClock(NOON))
        self._holders: list[ClaimHolder] = []
        for workers in self._node.world.workers.values():
            workers.size = 0

    def submit(self, **document: Any) -> None:
        self.key = JobKey("local", self._node.world.submit(task=HTTP, **document))

    def take(self) -> Holder:
        self.do(self._claim)
        claim = self._node.claim_tokens.sign(identity_of(self.key, self.run))
        holder = ClaimHolder(self.run, claim, _NodeCalls(self._node))
        self._holders.append(holder)
        return holder

    def _claim(self) -> None:
        """Claim the run as a work item that starts later."""
        (stored,) = self.job_states.load([self.key]).values()
        (run,) = stored.state.runs
        message = message_of(self.key, run, stored.state)._replace(task_type="container")
        (claimed,) = self.executor.claim([message]).claimed
        self.executor.renew([(self.key, run.run_id, claimed.run.token)], is_first=True)

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, RENEWAL_SECONDS)
            self._node.world.clock.advance(timedelta(seconds=step))
            seconds -= step
            for holder in self._holders:
                holder.heartbeat()
            self._node.world.node.step()

    def cancel(self) -> None:
        run_id = self.run.run_id
        self.do(lambda: self._node.world.node.jobs.cancel_run(*self.key, run_id))

    @property
    def view(self) -> RunView:
        return view_of(self._node.world, self.key)

    def stored_blob(self, name: str) -> bytes | None:
        data: bytes | None = self._node.world.store.blobs.get(name)
        return data

    @property
    def executor(self) -> Executor:
        return self._node.world.node.executor

    @property
    def job_states(self) -> JobStates:
        return self._node.world.store.job_states

    def do(self, request: Callable[[], Any]) -> Any:
        return self._node.world.do(request)

    def close(self) -> None:
        self._node.close()


def view_of(world: World, key: JobKey) -> RunView:
    """Return the only run of a job, with its attempts."""
    (listed,) = world.runs(key.job_id)
    view: RunView = world.do(lambda: world.node.search.run(*key, listed.run.run_id))
    return view


@contextmanager
def node_driver(
    kind: type[NodeDriver] | type[OutsideNodeDriver], folder: Path
) -> Iterator[ExecutorDriver]:
    driver = kind(folder)
    try:
        yield driver
    finally:
        driver.close()
