"""How long a session repeats its calls, on a clock that a test moves."""

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.runner import heartbeat, session
from punctual.runner.environment import RunnerClock, RunnerEnvironment
from punctual.runner.event import read_event
from punctual.runner.http_client import HttpAnswer, HttpRequest
from punctual.runner.runner_sandbox import choose_runner_sandbox
from punctual.runner.session import MAX_FINISH_OUTPUT_BYTES, Session
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.task import DEFAULT_PROGRAM_PATH

UPLOAD_STEPS, STEP_SECONDS = 6, 4.0  # of an upload, with a renewal in each step
REPEAT_SECONDS = 20.0
PATIENCE_SECONDS = 30.0


class SlowStore:
    """The API and its store. An upload takes long, and the first finish after it is throttled."""

    def __init__(self) -> None:
        self.passed_seconds = 0.0
        self.statuses = [429, 200]  # of the finishes
        self.finished: list[dict[str, Any]] = []
        self._renewed = threading.Semaphore(0)

    def monotonic(self) -> float:
        return time.monotonic() + self.passed_seconds

    def call(self, request: HttpRequest, _seconds: float) -> HttpAnswer:
        call = request.url.rpartition("/")[2]
        if call == "output":
            for _ in range(UPLOAD_STEPS):
                self.passed_seconds += STEP_SECONDS
                assert self._renewed.acquire(timeout=PATIENCE_SECONDS), "the heartbeat goes on"
            return HttpAnswer(200, {}, b"")
        assert isinstance(request.body, bytes)
        body = json.loads(request.body)
        if call == "upload":
            while self._renewed.acquire(blocking=False):
                continue  # only a renewal during the upload counts
            answer = {"upload_url": "https://s3/output", "upload_headers": {}, "output_upload": "u"}
            return HttpAnswer(200, {}, json.dumps(answer).encode())
        status = self.statuses.pop(0) if call == "finish" else 200
        if call == "renew":
            self._renewed.release()
        elif status == 200:
            self.finished += body["claims"]
        return HttpAnswer(status, {}, b'{"results":[{"status":"OK"}]}')


def test_finish_is_repeated_after_an_upload_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert UPLOAD_STEPS * STEP_SECONDS > REPEAT_SECONDS
    monkeypatch.setattr(session, "FINISH_SECONDS", REPEAT_SECONDS)
    monkeypatch.setattr(heartbeat, "RENEWAL_INTERVAL", timedelta(milliseconds=5))
    store = SlowStore()
    runs_folder = tmp_path
    environment = RunnerEnvironment(
        runs_folder=runs_folder,
        cleared_folder=runs_folder,
        sandbox=choose_runner_sandbox("none", runs_folder, DEFAULT_PROGRAM_PATH),
        children=Children(),
        http=store,  # type: ignore[arg-type]
        clock=RunnerClock(
            lambda: datetime.now(UTC), store.monotonic, lambda _seconds: None, lambda: "runner"
        ),
        program_path=DEFAULT_PROGRAM_PATH,
        variables={"PATH": os.environ["PATH"]},
    )
    command = ["head", "-c", str(MAX_FINISH_OUTPUT_BYTES + 1), "/dev/zero"]
    event = {
        "format": 1,
        "claim": "a-signed-claim",
        "api": "https://api.example.com/v1",
        "mode": "detached",
        "job_id": "job-1",
        "run_id": f"run-{os.getpid()}",
        "name": "A job",
        "attempt_number": 1,
        "scheduled_at": "2026-12-01T10:00:00.000Z",
        "timeout_seconds": 86_400,
        "lease_seconds_left": 20,
        "payload": None,
        "secrets": [],
        "output": "keep",
        "task": {"type": "container", "command": command},
    }
    end = Session(read_event(event, {}), environment).run()
    (finish,) = store.finished
    assert (finish["status"], finish["output_upload"], end.exit_code) == ("SUCCESS", "u", 0)
