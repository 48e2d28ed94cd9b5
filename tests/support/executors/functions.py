"""Executor functions of a deployment: tasks inside, scripts that are waited for or handed over."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from punctual.domain.claims import ClaimIdentity
from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.claims import ClaimFinish, ClaimRenewal, Claims, ClaimStatus
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.log import no_log
from punctual.engine.ports.rows import NO_DETAIL, JobKey
from punctual.engine.queries.views import RunView
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, Throttled
from punctual.tasks.script_function import NoAnswer, ScriptFunctionTask
from tests.support.deployed.drivers.executors import Executors, Record, executors
from tests.support.executors.story import OUTPUT, ExecutorStory, Fate
from tests.support.simulation.port_faults import Crash

LONG_WORK = {"lasts": 500}  # ends when it is stopped
SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}
STEP = timedelta(seconds=31)  # longer than the visibility timeout of a message


class FunctionStory(ExecutorStory):
    """An executor function that carries out a task by itself."""

    lane = "quick"
    task: Mapping[str, Any] = {"type": "http", "url": "https://api.example.com/"}
    timeout_seconds = 60

    def __init__(self, world: Executors) -> None:
        super().__init__()
        self.world = world
        self.fate = Fate.SUCCEEDS
        self._kept: Sequence[Record] = ()
        world.task = self  # type: ignore[assignment]

    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        payload = LONG_WORK if Fate.IS_CANCELLED in fates else None
        self._key: JobKey = self.world.submit(
            task=self.task, timeout_seconds=self.timeout_seconds, payload=payload, **document
        )

    def attempt(self, fate: Fate) -> Run:
        self.fate = fate
        records = self.world.records()
        if fate is Fate.IS_CANCELLED:
            self.world.task_runner.at(self.world.clock() + timedelta(seconds=2), self.cancel)
        self._kept = records  # SQS delivers the messages of a crashed invocation again
        with suppress(Crash):
            self._invoke(records)
        return self.view.run

    def _invoke(self, records: Sequence[Record]) -> None:
        failed = self.world.invoke(records, self.world.new_runtime(), self.lane, seconds_left=900)
        self._kept = [record for record in records if record["messageId"] in failed]

    def cancel(self) -> None:
        self.world.jobs.cancel_run(*self._key, self.view.run.run_id)

    def run(self, _attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        """Carry out the task as its fate says."""
        if stop.reason():
            return Outcome.stopped(stop.reason())
        match self.fate:
            case Fate.DIES:
                raise Crash
            case Fate.IS_REFUSED:
                raise Throttled("no room")
            case Fate.FAILS:
                return Outcome.failed("no luck")
        return Outcome("SUCCESS", output=OUTPUT)

    def pass_time(self) -> None:
        self.world.clock.advance(STEP)
        if self._kept:
            self._invoke(self._kept)
        self.world.evaluate_due_timers()

    def succeed_late(self, run: Run) -> bool:
        end = FinishedAttempt(self._key, run.run_id, run.token, RunStatus.SUCCESS, False, NO_DETAIL)
        (result,) = self.world.runtime.executor.finish([end])
        return result.verdict is Verdict.OK

    @property
    def view(self) -> RunView:
        with self.world.world.meter.as_role("test"):
            return self.world.run(self._key)


class WaitedScriptStory(FunctionStory):
    """An executor function that waits for the answer of a script function."""

    lane, task, timeout_seconds = "long", SCRIPT, 20

    def __init__(self, world: Executors) -> None:
        super().__init__(world)
        world.world.put_token("any")  # with the key that signs claims
        world.script = ScriptFunctionTask(
            self,
            sign=world.runtime.claim_tokens.sign,
            api_url=lambda: "https://api.example.com/v1",
            memory_mb=512,
            find_artifact=_no_artifact,
        )

    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        super().submit(document, ())

    def invoke(self, _function: str, _tenant: str, _event: bytes, _seconds: float, /) -> bytes:
        """Answer as the script function does."""
        answer: dict[str, Any] = {"status": "SUCCESS", "output": b64encode(OUTPUT).decode()}
        match self.fate:
            case Fate.DIES:
                raise NoAnswer("the answer is lost")
            case Fate.IS_REFUSED:
                raise Throttled("no room")
            case Fate.FAILS:
                answer = {"status": "FAILED", "error": "no luck", "exit_code": 1}
            case Fate.IS_CANCELLED:
                with self.world.world.meter.as_role("test"):
                    self.cancel()
                answer = {"status": "CANCELLED", "error": "Cancelled"}
        return json.dumps({"format": 1, **answer}).encode()

    def attempt(self, fate: Fate) -> Run:
        self.fate = fate
        self._invoke(self.world.records())
        return self.view.run

    def start(self, _function: str, _tenant: str, _event: bytes, /) -> None:
        raise AssertionError("the executor waits for this script")


class HandedOverScriptStory(WaitedScriptStory):
    """A script function that finishes its run by the claim. No executor waits for it."""

    timeout_seconds = 120

    def invoke(self, _function: str, _tenant: str, _event: bytes, _seconds: float, /) -> bytes:
        raise AssertionError("no executor waits for this script")

    def start(self, _function: str, _tenant: str, event: bytes, /) -> None:
        if self.fate is Fate.IS_REFUSED:
            raise Throttled("no room")
        self._claim: str = json.loads(event)["claim"]

    def attempt(self, fate: Fate) -> Run:
        run = super().attempt(fate)
        if fate is not Fate.IS_REFUSED:
            with self.world.world.meter.as_role("test"):
                carry_out(self._claims, self._claim, fate, self.cancel)
        return run

    def succeed_late(self, run: Run) -> bool:
        with self.world.world.meter.as_role("test"):
            identity = ClaimIdentity(*self._key, run.run_id, 1, run.token)
            claim = self.world.runtime.claim_tokens.sign(identity)
            return succeeds_by_claim(self._claims, claim)

    @property
    def _claims(self) -> Claims:
        runtime = self.world.runtime
        return Claims(
            executor=runtime.executor,
            job_states=runtime.ports.job_states,
            history=runtime.ports.history,
            blobs=runtime.ports.blobs,
            reader=runtime.claim_tokens,
            clock=runtime.clock,
            log=no_log,
        )


def carry_out(claims: Claims, claim: str, fate: Fate, cancel: Callable[[], object]) -> None:
    """Act as a runner with this claim: bind it, then end the attempt, or fall silent."""
    (renewed,) = claims.renew([ClaimRenewal(claim, "runner", True)])
    assert renewed.status is ClaimStatus.OK
    status = {Fate.SUCCEEDS: "SUCCESS", Fate.FAILS: "FAILED"}.get(fate, "CANCELLED")
    if fate is Fate.DIES:
        return
    if fate is Fate.IS_CANCELLED:
        cancel()
        (told,) = claims.renew([ClaimRenewal(claim, "runner")])
        assert told.status is ClaimStatus.CANCEL
    error = "no luck" if fate is Fate.FAILS else ""
    output = OUTPUT if fate is Fate.SUCCEEDS else b""
    end = ClaimFinish(claim, status, "runner", output, "text/plain", error=error)
    assert claims.finish([end]) == [ClaimStatus.OK]
    assert claims.finish([end]) == [ClaimStatus.OK], "the same end again"


def succeeds_by_claim(claims: Claims, claim: str) -> bool:
    return claims.finish([ClaimFinish(claim, "SUCCESS", "runner")]) == [ClaimStatus.OK]


def _no_artifact(_tenant: str, _artifact_id: str) -> Any:
    raise AssertionError("no artifact here")


@contextmanager
def function_story(kind: type[FunctionStory]) -> Iterator[FunctionStory]:
    with executors() as world:
        yield kind(world)
