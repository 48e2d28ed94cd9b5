"""Executor functions of a deployment, script functions, and processes outside of a deployment."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import requests

from punctual.domain.run import Run, RunStatus
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.engine.changes.effects import message_of
from punctual.engine.execution.claims import Claims, UploadAnswer
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import no_log
from punctual.engine.queries.views import RunView
from punctual.lambdas.executor.attempt import RunningAttempt
from punctual.lambdas.executor.threads import Work
from punctual.lambdas.executor.timing import HIDE_AFTER_SECONDS
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, Throttled
from punctual.tasks.script_function import ScriptFunctionTask
from tests.support.builders import ManualClock
from tests.support.deployed.drivers.executors import Executors, Record, executors
from tests.support.deployed.gateway import Gateway
from tests.support.executors.claim_calls import (
    RENEWAL_SECONDS,
    TEXT_TYPE,
    ClaimCalls,
    ClaimHolder,
    EngineCalls,
    Item,
    identity_of,
)
from tests.support.executors.driver import ERROR, OUTPUT, Answer, ExecutorDriver, Holder
from tests.support.executors.held_call import HeldCall
from tests.support.scripts.manual_task_runner import ManualTaskRunner

HTTP = {"type": "http", "url": "https://api.example.com/"}
SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}
LONG_WORK = {"lasts": 100_000}  # until the test ends it
INVOCATION_SECONDS = 900


class _HeldTaskRunner(ManualTaskRunner):
    """Pauses its invocation when the attempt has begun and the clock has come to `until`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.until = clock()
        self.attempts: list[RunningAttempt] = []
        self.call: HeldCall | None = None
        self._now = clock

    def start(self, work: Work, /) -> None:
        if isinstance(work, RunningAttempt):
            self.attempts.append(work)
        super().start(work)

    def wait(self, seconds: float, /) -> None:
        if not self.attempts:
            super().wait(seconds)
            return
        super().wait(max(0.0, min(seconds, (self.until - self._now()).total_seconds())))
        if self._now() >= self.until:
            assert self.call is not None
            self.call.pause()


class _Task:
    """A task that ends as the test says, or as it is told to stop."""

    def __init__(self, driver: "FunctionDriver") -> None:
        self._driver = driver

    def run(self, _attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        if stop.reason():
            return Outcome.stopped(stop.reason())
        match self._driver.ends_as:
            case RunStatus.QUEUED:
                raise Throttled("no room")
            case RunStatus.FAILED:
                return Outcome.failed(ERROR)
            case _:
                return Outcome("SUCCESS", output=OUTPUT)


class FunctionHolder(Holder):
    """An invocation of an executor function, which runs only while the test lets time pass."""

    def __init__(
        self, driver: "FunctionDriver", run: Run, call: HeldCall, task_runner: _HeldTaskRunner
    ) -> None:
        super().__init__(run)
        self.is_frozen = False
        self._driver = driver
        self._call = call
        self._task_runner = task_runner

    def begin(self) -> None:
        """The work has begun with the claim."""

    def renew(self) -> Answer:
        self.is_frozen = False
        (attempt,) = self._task_runner.attempts
        self.go_on(RENEWAL_SECONDS)
        return Answer(attempt.stop.reason() or "OK")

    def end(self, status: RunStatus) -> None:
        self.is_frozen = False
        self._driver.ends_as = status
        self._task_runner.end_attempts()
        self.go_on(RENEWAL_SECONDS)
        assert self._call.is_over

    def release(self) -> None:
        self.end(RunStatus.QUEUED)

    def kill(self) -> None:
        if not self._call.is_over:
            with self._driver.rights():
                self._call.kill()

    def freeze(self) -> None:
        self.is_frozen = True

    def report(self, status: RunStatus) -> bool:
        return self._driver.report_end(self.run, status)

    def go_on(self, seconds: float) -> None:
        """Let the function work for this time, or until its invocation ends."""
        clock = self._driver.world.clock
        self._task_runner.until = clock() + timedelta(seconds=seconds)
        while not self._call.is_over and not self.is_frozen:
            with self._driver.rights():
                self._call.go_on()
            if clock() >= self._task_runner.until:
                break

    @property
    def is_working(self) -> bool:
        return not self._call.is_over and not self.is_frozen


class FunctionDriver(ExecutorDriver):
    """An executor function that carries out a task by itself."""

    lane = "quick"
    task: Mapping[str, Any] = HTTP
    timeout_seconds = 300

    def __init__(self, world: Executors) -> None:
        self.world = world
        self.ends_as: RunStatus | None = None  # None: the work goes on until it is stopped
        self._holders: list[FunctionHolder] = []
        world.task = _Task(self)  # type: ignore[assignment]

    def submit(self, **document: Any) -> None:
        wanted = {"task": self.task, "timeout_seconds": self.timeout_seconds, **document}
        self.key = self.world.submit(payload=LONG_WORK, **wanted)

    def take(self) -> Holder:
        self.ends_as = None
        task_runner = _HeldTaskRunner(self.world.clock)
        call = HeldCall(self._invocation(self.world.records(), task_runner))
        task_runner.call = call
        with self.rights():
            call.go_on()
        assert task_runner.attempts, "the executor claimed nothing"
        holder = FunctionHolder(self, self.run, call, task_runner)
        holder.go_on(2 * HIDE_AFTER_SECONDS)  # from then on, a crash returns the message soon
        self._holders.append(holder)
        return holder

    def _invocation(
        self, records: Sequence[Record], task_runner: ManualTaskRunner
    ) -> Callable[[], object]:
        self.world.task_runner = task_runner  # type: ignore[assignment]
        runtime = self.world.new_runtime()
        return lambda: self.world.invoke(records, runtime, self.lane, INVOCATION_SECONDS)

    def pass_time(self, seconds: float) -> None:
        clock = self.world.clock
        until = clock() + timedelta(seconds=seconds)
        for holder in [holder for holder in self._holders if holder.is_working]:
            holder.go_on(seconds)
        if clock() < until:
            clock.set(until)
        with self.rights():
            self.world.evaluate_due_timers()
        if self.run.is_held:  # SQS delivers messages that no executor acknowledged
            self._take_redelivered()

    def _take_redelivered(self) -> None:
        records = self.world.records()
        if records:
            self._invocation(records, ManualTaskRunner(self.world.clock))()

    def cancel(self) -> None:
        self.do(lambda: self.world.jobs.cancel_run(*self.key, self.view.run.run_id))

    @property
    def view(self) -> RunView:
        view: RunView = self.do(lambda: self.world.run(self.key))
        return view

    def stored_blob(self, name: str) -> bytes | None:
        data: bytes | None = self.do(lambda: self.world.runtime.ports.blobs.get(name))
        return data

    @property
    def executor(self) -> Executor:
        return self.world.runtime.executor

    @property
    def job_states(self) -> JobStates:
        return self.world.runtime.ports.job_states

    def do(self, request: Callable[[], Any]) -> Any:
        with self.rights():
            return request()

    def rights(self) -> Any:
        """Return a context in which calls are those of the test, and not of a function."""
        return self.world.world.meter.as_role("test")

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()


class WaitedScriptDriver(FunctionDriver):
    """An executor function that waits for the answer of a script function."""

    lane = "long"
    task = SCRIPT
    timeout_seconds = MAX_WAITED_SCRIPT_SECONDS
    work_seconds = 18.0

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

    def invoke(self, _function: str, _tenant: str, _event: bytes, _seconds: float, /) -> bytes:
        """Answer as the script function does."""
        answer: dict[str, Any] = {"exit_code": 0, "output": b64encode(OUTPUT).decode()}
        if self.ends_as is RunStatus.QUEUED:
            raise Throttled("no room")
        if self.ends_as is RunStatus.FAILED:
            answer = {"status": "FAILED", "error": ERROR, "exit_code": 1}
        is_cancelled = self.ends_as is None and self.run.cancel_reason
        if self.ends_as is RunStatus.CANCELLED or is_cancelled:
            answer = {"status": "CANCELLED", "error": "Cancelled"}
        return json.dumps({"format": 1, "status": "SUCCESS", **answer}).encode()

    def start(self, _function: str, _tenant: str, event: bytes, /) -> None:
        raise AssertionError("the executor waits for this script")


class HandedOverScriptDriver(WaitedScriptDriver):
    """A script function that finishes its run by the claim. No executor waits for it."""

    timeout_seconds = 120
    work_seconds = 100.0
    starts_at_once = False
    counts_unbegun = False
    returns_at_once = True

    def __init__(self, world: Executors) -> None:
        super().__init__(world)
        self._claims: list[str] = []
        self._runners: list[ClaimHolder] = []

    def invoke(self, _function: str, _tenant: str, _event: bytes, _seconds: float, /) -> bytes:
        raise AssertionError("no executor waits for this script")

    def start(self, _function: str, _tenant: str, event: bytes, /) -> None:
        self._claims.append(json.loads(event)["claim"])

    def submit(self, **document: Any) -> None:
        wanted = {"task": self.task, "timeout_seconds": self.timeout_seconds, **document}
        self.key = self.world.submit(**wanted)

    def take(self) -> Holder:
        started = len(self._claims)
        self.do(self._invocation(self.world.records(), ManualTaskRunner(self.world.clock)))
        assert len(self._claims) == started + 1, "the executor started no runner"
        return self.hold(self._claims[-1])

    def hold(self, claim: str) -> Holder:
        holder = ClaimHolder(self.run, claim, self.calls())
        self._runners.append(holder)
        return holder

    def pass_time(self, seconds: float) -> None:
        clock = self.world.clock
        until = clock() + timedelta(seconds=seconds)
        while clock() < until:
            clock.set(min(until, clock() + timedelta(seconds=RENEWAL_SECONDS)))
            for holder in self._runners:
                holder.heartbeat()
        super().pass_time(0)

    def calls(self) -> ClaimCalls:
        """Return the calls by claim of the deployment."""
        runtime = self.world.runtime
        claims = Claims(
            executor=runtime.executor,
            job_states=runtime.ports.job_states,
            history=runtime.ports.history,
            blobs=runtime.ports.blobs,
            reader=runtime.claim_tokens,
            clock=runtime.clock,
            log=no_log,
        )
        return _RightfulCalls(self, EngineCalls(claims, _put))


class _RightfulCalls(ClaimCalls):
    """Calls by claim that are made as the test."""

    def __init__(self, driver: FunctionDriver, calls: ClaimCalls) -> None:
        self._driver = driver
        self._calls = calls

    def renew(self, item: Item) -> str:
        return str(self._driver.do(lambda: self._calls.renew(item)))

    def finish(self, item: Item) -> str:
        return str(self._driver.do(lambda: self._calls.finish(item)))

    def upload(self, claim: str, data: bytes) -> str | None:
        name: str | None = self._driver.do(lambda: self._calls.upload(claim, data))
        return name


class _GatewayCalls(ClaimCalls):
    """The calls by claim over HTTPS, without a token."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def renew(self, item: Item) -> str:
        return self._call("/claims/renew", item)

    def finish(self, item: Item) -> str:
        return self._call("/claims/finish", item)

    def _call(self, target: str, item: Item) -> str:
        answer = self._gateway.post(target, {"claims": [item]})
        assert answer.status == 200, answer
        (result,) = answer.json["results"]
        return str(result["status"])

    def upload(self, claim: str, data: bytes) -> str | None:
        body = {"claim": claim, "size": len(data), "content_type": TEXT_TYPE}
        answer = self._gateway.post("/claims/upload", body)
        if answer.status == 409:
            assert answer.json["code"] == "CLAIM_LOST"
            return None
        link = answer.json
        _put(UploadAnswer(link["upload_url"], link["upload_headers"], ""), data)
        return str(link["output_upload"])


class OutsideDeploymentDriver(HandedOverScriptDriver):
    """A process that holds a claim of a deployment, and calls its API."""

    lane = "quick"
    task = HTTP
    counts_unbegun = True

    def take(self) -> Holder:
        self.do(self._claim)
        claim = self.world.runtime.claim_tokens.sign(identity_of(self.key, self.run))
        return self.hold(claim)

    def _claim(self) -> None:
        """Claim the run as a work item that starts later."""
        (stored,) = self.job_states.load([self.key]).values()
        (run,) = stored.state.runs
        message = message_of(self.key, run, stored.state)._replace(task_type="container")
        (claimed,) = self.executor.claim([message]).claimed
        self.executor.renew([(self.key, run.run_id, claimed.run.token)], is_first=True)

    def calls(self) -> ClaimCalls:
        return _GatewayCalls(Gateway(self.world.world, ""))


def _put(answer: UploadAnswer, data: bytes) -> None:
    sent = requests.put(answer.url, data=data, headers=dict(answer.headers), timeout=5)
    assert sent.status_code == 200, sent.text


def _no_artifact(_tenant: str, _artifact_id: str) -> Any:
    raise AssertionError("no artifact here")


@contextmanager
def function_driver(kind: type[FunctionDriver]) -> Iterator[FunctionDriver]:
    with executors() as world:
        driver = kind(world)
        try:
            yield driver
        finally:
            driver.close()
