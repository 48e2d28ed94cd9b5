"""The threads of a node, and an external process that calls a node over HTTP."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from punctual.domain.claims import ClaimIdentity
from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.effects import message_of
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.rows import NO_DETAIL, JobKey
from punctual.engine.queries.views import RunView
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, Throttled
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode, statuses
from tests.support.executors.story import OUTPUT, ExecutorStory, Fate
from tests.support.node.node_world import NOON, Gate, World

TASK = {"type": "http", "url": "http://127.0.0.1:9/"}
STEP = timedelta(seconds=10)
PATIENCE_SECONDS = 30.0


class _FatedGate(Gate):
    """A task of a node that a story carries out."""

    def __init__(self, run: Callable[[Attempt, StopRequest, Recorder], Outcome]) -> None:
        super().__init__()
        self._run = run

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        return self._run(attempt, stop, recorder)


class NodeStory(ExecutorStory):
    """A task in a thread of a node. Its executor dies with the node, and the next one starts."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._clock = ManualClock(NOON)
        self._fates: list[Fate] = []
        self._killed = threading.Event()
        self._worlds = [self._open()]

    @property
    def world(self) -> World:
        return self._worlds[-1]

    def _open(self) -> World:
        return World(self._folder, self._clock, gate=_FatedGate(self.run))

    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        self._fates = list(fates)
        self._begun = threading.Semaphore(0)
        self._key = JobKey("local", self.world.submit(task=TASK, **document))

    def run(self, _attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        """Carry out the task as its fate says, in a thread of the node."""
        fate = self._fates.pop(0)
        self._begun.release()
        match fate:
            case Fate.DIES:
                self._killed.wait(PATIENCE_SECONDS)
            case Fate.IS_CANCELLED:
                while not stop.wait(0.01):
                    continue
                return Outcome.stopped(stop.reason())
            case Fate.IS_REFUSED:
                raise Throttled("no room")
            case Fate.FAILS:
                return Outcome.failed("no luck")
        return Outcome("SUCCESS", output=OUTPUT)

    def is_ready(self, run: Run) -> bool:
        """Return whether the next attempt may be taken. A node takes a run as it queues it."""
        return run.is_held or super().is_ready(run)

    def attempt(self, fate: Fate) -> Run:
        if not self.view.run.is_held:
            self.world.node.step()
        assert self._begun.acquire(timeout=PATIENCE_SECONDS)
        run = self.view.run
        if fate is Fate.DIES:
            self._kill()
            return run
        if fate is Fate.IS_CANCELLED:
            self.world.do(lambda: self.world.node.jobs.cancel_run(*self._key, run.run_id))
        self.world.settle()
        return run

    def _kill(self) -> None:
        """Take the store away, so that the thread of the dead node changes nothing any more."""
        self._worlds[-1].store.close()
        self._worlds.append(self._open())

    def pass_time(self) -> None:
        self._clock.advance(STEP)
        self.world.node.step()

    def succeed_late(self, run: Run) -> bool:
        end = FinishedAttempt(self._key, run.run_id, run.token, RunStatus.SUCCESS, False, NO_DETAIL)
        (result,) = self.world.do(lambda: self.world.node.executor.finish([end]))
        return bool(result.verdict is Verdict.OK)

    @property
    def view(self) -> RunView:
        (listed,) = self.world.runs(self._key.job_id)
        view: RunView = self.world.do(
            lambda: self.world.node.search.run(*self._key, listed.run.run_id)
        )
        return view

    def close(self) -> None:
        self._killed.set()
        for world in self._worlds:
            world.gate.open.set()
            for workers in world.workers.values():
                workers.close(PATIENCE_SECONDS)
        self.world.store.close()


@contextmanager
def node_story(folder: Path) -> Iterator[NodeStory]:
    story = NodeStory(folder)
    try:
        yield story
    finally:
        story.close()


class OutsideStory(ExecutorStory):
    """An external process that has only the claim of each attempt, and calls a node over HTTP."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.node = ClaimsNode(folder, ManualClock(NOON))
        for workers in self.node.world.workers.values():
            workers.size = 0  # so that the node takes no run by itself

    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        del fates
        self._key = JobKey("local", self.node.world.submit(task=TASK, **document))

    def attempt(self, fate: Fate) -> Run:
        claim = self._claim_run()
        run, held = self.view.run, {"claim": claim, "runner_id": "runner"}
        if fate is Fate.IS_REFUSED:
            assert statuses(self.node.finish({**held, "status": "RELEASED"})) == ["OK"]
            return run
        renewed = self.node.renew({**held, "started_at": "2026-11-18T12:00:00Z"})
        assert statuses(renewed) == ["OK"]
        if fate is Fate.DIES:
            return run
        if fate is Fate.IS_CANCELLED:
            world = self.node.world
            world.do(lambda: world.node.jobs.cancel_run(*self._key, run.run_id))
            assert statuses(self.node.renew(held)) == ["CANCEL"]
        status = {Fate.SUCCEEDS: "SUCCESS", Fate.FAILS: "FAILED"}.get(fate, "CANCELLED")
        error = {"error_message": "no luck"} if fate is Fate.FAILS else {}
        end = {**held, "status": status, **error}
        assert statuses(self.node.finish(end)) == ["OK"]
        assert statuses(self.node.finish(end)) == ["OK"], "the same end again"
        return run

    def _claim_run(self) -> str:
        node, key = self.node.world.node, self._key

        def claim() -> str:
            state = node.search.job(*key).state
            (run,) = state.runs
            (claimed,) = node.executor.claim([message_of(key, run, state)]).claimed
            node.executor.renew([(key, run.run_id, claimed.run.token)], is_first=True)
            return self._sign(claimed.run)

        text: str = self.node.world.do(claim)
        return text

    def _sign(self, run: Run) -> str:
        claim = ClaimIdentity(*self._key, run.run_id, run.attempt, run.token)
        return self.node.claim_tokens.sign(claim)

    def pass_time(self) -> None:
        self.node.world.clock.advance(STEP)
        self.node.world.node.step()

    def succeed_late(self, run: Run) -> bool:
        end = {"claim": self._sign(run), "runner_id": "runner", "status": "SUCCESS"}
        return statuses(self.node.finish(end)) == ["OK"]

    @property
    def view(self) -> RunView:
        (listed,) = self.node.world.runs(self._key.job_id)
        search, run_id = self.node.world.node.search, listed.run.run_id
        view: RunView = self.node.world.do(lambda: search.run(*self._key, run_id))
        return view


@contextmanager
def outside_story(folder: Path) -> Iterator[OutsideStory]:
    story = OutsideStory(folder)
    try:
        yield story
    finally:
        story.node.close()
