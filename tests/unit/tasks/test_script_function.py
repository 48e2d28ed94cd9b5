"""The `script` task on AWS: the event of the runner, and what its answers mean for the run."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.claims import ClaimIdentity
from punctual.domain.errors import Unavailable
from punctual.runner.event import EVENT_FORMAT, read_event
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopSignal, Throttled, stop_text
from punctual.tasks.runner_event import RUNNER_FORMAT, RunnerArtifact
from punctual.tasks.script_function import (
    RUNNER_ANSWER_SECONDS,
    NoAnswer,
    RunnerDied,
    ScriptFunctionTask,
    waits_for_script,
)


class Functions:
    """Script functions that answer with `answer`, or raise it."""

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer
        self.events: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str, str, float]] = []

    def invoke(self, function: str, tenant: str, event: bytes, seconds: float, /) -> bytes:
        return self._take("invoke", function, tenant, event, seconds)

    def start(self, function: str, tenant: str, event: bytes, /) -> None:
        self._take("start", function, tenant, event, 0)

    def _take(self, call: str, function: str, tenant: str, event: bytes, seconds: float) -> bytes:
        self.calls.append((call, function, tenant, seconds))
        self.events.append(json.loads(event))
        if isinstance(self._answer, Exception):
            raise self._answer
        return (
            self._answer if isinstance(self._answer, bytes) else json.dumps(self._answer).encode()
        )


class Log:
    def __init__(self) -> None:
        self.data = b""

    def log(self, data: bytes) -> None:
        self.data += data


ARTIFACT = RunnerArtifact("https://bucket/artifact?signed", "ab" * 32, "main.zip", 1_024)


def a_task(functions: Functions, memory_mb: int = 512) -> ScriptFunctionTask:
    return ScriptFunctionTask(
        functions,
        sign=lambda claim: f"signed {claim.token}",
        api_url=lambda: "https://api.example.com/v1",
        memory_mb=memory_mb,
        find_artifact=lambda _tenant, _artifact_id: ARTIFACT,
    )


def an_attempt(seconds: float = 20, **task: Any) -> Attempt:
    return Attempt(
        tenant="acme",
        job_id="job-1",
        run_id="run-1",
        name="A job",
        attempt_number=2,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "script", "runtime": "bash", "code": "echo {{secret:key}}", **task},
        payload={"n": 3},
        timeout=timedelta(seconds=seconds),
        token=7,
    )


def an_answer(**fields: Any) -> Mapping[str, Any]:
    return {"format": RUNNER_FORMAT, "status": "SUCCESS", **fields}


def run(
    functions: Functions, attempt: Attempt, log: Log | None = None, memory_mb: int = 512
) -> Outcome:
    runner = AttemptRunner(
        {"script": a_task(functions, memory_mb)}, lambda _tenant, name: f"hush-{name}"
    )
    return runner.run(attempt, StopSignal(), log or Log())


def test_runner_reads_the_event_that_the_executor_sends() -> None:
    functions = Functions(an_answer())
    attempt = an_attempt(args=["{{secret:key}}"], env={"A": "{{payload.n}}"})
    run(functions, attempt)
    (event,) = functions.events
    assert RUNNER_FORMAT == EVENT_FORMAT
    received = read_event(event, {})
    assert (received.claim, received.api) == ("signed 7", "https://api.example.com/v1")
    assert (received.mode, received.keeps_output) == ("wait", True)
    assert received.attempt.secrets == {"hush-key"}
    assert received.attempt.task["args"] == ["hush-key"], "placeholders are filled before"
    assert received.attempt.task["code"] == "echo {{secret:key}}", "code has no placeholders"
    assert received.attempt.payload == {"n": 3}
    assert received.attempt.timeout == timedelta(seconds=20)
    assert received.attempt.scheduled_at == attempt.scheduled_at


def test_claim_names_the_attempt_and_its_fencing_token() -> None:
    claims: list[ClaimIdentity] = []
    task = ScriptFunctionTask(
        Functions(an_answer()),
        sign=lambda claim: claims.append(claim) or "signed",  # type: ignore[func-returns-value]
        api_url=lambda: "https://api",
        memory_mb=512,
        find_artifact=lambda _tenant, _artifact_id: ARTIFACT,
    )
    task.run(an_attempt(), StopSignal(), Log())
    assert claims == [ClaimIdentity("acme", "job-1", "run-1", 2, 7)]


@pytest.mark.parametrize(
    ("runtime", "function"),
    [
        ("python", "script-python"),
        ("node", "script-node"),
        ("bash", "script-bash"),
        ("binary", "script-bash"),
    ],
)
def test_each_runtime_has_its_function(runtime: str, function: str) -> None:
    functions = Functions(an_answer())
    run(functions, an_attempt(runtime=runtime))
    assert functions.calls == [("invoke", function, "acme", 20 + RUNNER_ANSWER_SECONDS)]


def test_answer_of_a_waited_script_is_its_outcome() -> None:
    answer = an_answer(
        status="FAILED",
        error="Exit code 3",
        exit_code=3,
        output=b64encode(b"out").decode(),
        output_type="text/plain",
        log=b64encode(b"out and err").decode(),
        log_offset=4,
        logs_truncated=True,
    )
    log = Log()
    outcome = run(Functions(answer), an_attempt(), log)
    assert (outcome.status, outcome.error, outcome.exit_code) == ("FAILED", "Exit code 3", 3)
    assert (outcome.output, outcome.output_type) == (b"out", "text/plain")
    assert (log.data, outcome.log_offset, outcome.logs_truncated) == (b"out and err", 4, True)
    assert outcome.begun


def test_output_that_the_runner_stored_keeps_its_name() -> None:
    outcome = run(Functions(an_answer(output_upload="signed upload")), an_attempt())
    assert (outcome.output_upload, outcome.output) == ("signed upload", b"")


@pytest.mark.parametrize("begun", [True, False])
def test_runner_says_whether_it_began(begun: bool) -> None:
    outcome = run(Functions(an_answer(status="FAILED", begun=begun)), an_attempt())
    assert outcome.begun is begun


@pytest.mark.parametrize("is_detached", [True, False])
def test_throttle_is_no_attempt(is_detached: bool) -> None:
    attempt = replace(an_attempt(), is_detached=is_detached)
    outcome = run(Functions(Throttled("Lambda does not start another script now")), attempt)
    assert not outcome.begun


def test_detached_script_is_only_started() -> None:
    functions, log = Functions({"unread": True}), Log()
    outcome = run(functions, replace(an_attempt(300), is_detached=True), log)
    assert outcome == Outcome("DETACHED")
    assert functions.calls == [("start", "script-bash", "acme", 0)]
    (event,) = functions.events
    assert (event["mode"], event["timeout_seconds"], event["lease_seconds_left"]) == (
        "detached",
        300,
        75,
    )


@pytest.mark.parametrize("is_detached", [True, False])
def test_lost_answer_leaves_the_run_to_its_lease(is_detached: bool) -> None:
    outcome = run(
        Functions(NoAnswer("read timeout")), replace(an_attempt(), is_detached=is_detached)
    )
    assert outcome.status == "DETACHED"


@pytest.mark.parametrize(
    "answer",
    [
        RunnerDied("signal: killed"),
        b"",
        b"null",
        b"[]",
        {"format": 2, "status": "SUCCESS"},
        {"format": 1, "status": "DETACHED"},
        {"format": 1, "status": "SUCCESS", "output": "no base64"},
    ],
    ids=str,
)
def test_runner_without_a_result_is_lost(answer: Any) -> None:
    outcome = run(Functions(answer), an_attempt())
    assert (outcome.status, outcome.begun) == ("LOST", True)


def test_cancelled_script_keeps_its_log() -> None:
    text, log = b64encode(b"x").decode(), Log()
    answer = an_answer(status="CANCELLED", error=stop_text("CANCEL"), log=text)
    outcome = run(Functions(answer), an_attempt(), log)
    assert (outcome.status, log.data) == ("CANCELLED", b"x")


@pytest.mark.parametrize("reason", ["LOST", "SHUTDOWN"])
def test_runner_that_stops_by_itself_does_not_cancel_the_run(reason: str) -> None:
    outcome = run(Functions(an_answer(status="CANCELLED", error=stop_text(reason))), an_attempt())
    assert outcome.status == "LOST"


@pytest.mark.parametrize("is_detached", [True, False])
def test_unreadable_key_of_claims_is_no_attempt(is_detached: bool) -> None:
    def sign(_claim: ClaimIdentity) -> str:
        raise Unavailable("SSM does not answer")

    functions = Functions()
    task = ScriptFunctionTask(
        functions,
        sign=sign,
        api_url=lambda: "https://api",
        memory_mb=512,
        find_artifact=lambda _tenant, _artifact_id: ARTIFACT,
    )
    attempt = replace(an_attempt(), is_detached=is_detached)
    outcome = AttemptRunner({"script": task}).run(attempt, StopSignal(), Log())
    assert (outcome.begun, functions.calls) == (False, [])


def test_artifact_reaches_the_runner_as_a_link() -> None:
    functions = Functions(an_answer())
    run(functions, an_attempt(code=None, artifact_id="0190-artifact"))
    (event,) = functions.events
    assert event["task"]["artifact"] == ARTIFACT._asdict()
    assert "artifact_id" not in event["task"]
    assert "code" not in event["task"]


def test_discarded_output_is_not_sent_back() -> None:
    functions = Functions(an_answer())
    run(functions, replace(an_attempt(), keeps_output=False))
    assert functions.events[0]["output"] == "discard"


@pytest.mark.parametrize(
    ("resources", "stage_mb", "memory_mb"),
    [
        (None, 512, 512),
        (None, 256, 256),
        ({"memory_mb": 64}, 512, 64),
        ({"memory_mb": 900}, 512, 512),
    ],
)
def test_script_has_the_memory_that_its_stage_has(
    resources: Any, stage_mb: int, memory_mb: int
) -> None:
    functions = Functions(an_answer())
    run(functions, an_attempt(resources=resources), memory_mb=stage_mb)
    assert functions.events[0]["task"]["resources"] == {"memory_mb": memory_mb}


def test_unknown_runtime_is_not_retried() -> None:
    outcome = run(Functions(), an_attempt(runtime="perl"))
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert "There is no runtime 'perl'" in outcome.error


def test_executor_waits_for_short_scripts_only() -> None:
    assert [waits_for_script(seconds) for seconds in (1, 25, 26, 840)] == [True, True, False, False]
