"""Start the runner from its zip alone, as a container and a script function do."""

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from infra.build.runner import build_runner
from tests.support.runner.claims_api import ClaimsApi

END_SECONDS = 60.0
SECRET = "hush-hush-42"


@cache
def runner_zip() -> Path:
    return build_runner()


def an_event(
    api: ClaimsApi, code: str | None, runtime: str = "bash", **fields: Any
) -> dict[str, Any]:
    task = {"runtime": runtime, "args": [], "env": {}, "resources": {}}
    if code is not None:
        task["code"] = code
    return {
        "format": 1,
        "claim": "a-signed-claim",
        "api": api.api,
        "mode": "detached",
        "job_id": "job-1",
        "run_id": f"run-{os.getpid()}",
        "name": "A job",
        "attempt_number": 2,
        "scheduled_at": "2026-12-01T10:00:00.000Z",
        "timeout_seconds": 60,
        "lease_seconds_left": 20,
        "payload": {"n": 1},
        "secrets": [SECRET],
        "output": "keep",
        **fields,
        "task": task | fields.get("task", {}),
    }


def an_artifact(api: ClaimsApi, data: bytes, name: str = "artifact") -> dict[str, Any]:
    """Store an artifact. Return it as the task of an event names it."""
    api.artifacts[name] = data
    digest = sha256(data).hexdigest()
    return {
        "url": f"{api.url}/artifacts/{name}",
        "sha256": digest,
        "name": name,
        "size": len(data),
    }


@dataclass
class RunnerProcess:
    """A runner as a process, with its own folder for temporary files."""

    process: "subprocess.Popen[bytes]"
    temporary: Path

    def end(self) -> "EndedRunner":
        output, errors = self.process.communicate(timeout=END_SECONDS)
        answer = json.loads(output) if output else {}
        return EndedRunner(self.process.returncode, answer, errors.decode(), self.temporary)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@dataclass
class EndedRunner:
    exit_code: int
    answer: dict[str, Any]
    errors: str
    temporary: Path

    @property
    def output(self) -> bytes:
        return b64decode(self.answer["output"])

    @property
    def log(self) -> bytes:
        return b64decode(self.answer["log"])


@contextmanager
def started_runner(
    event: dict[str, Any], folder: Path, *command: str, **variables: str
) -> Iterator[RunnerProcess]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    file = folder / "event.json"
    file.write_text(json.dumps(event))
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(runner_zip()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "TMPDIR": str(temporary),
            "PUNCTUAL_RUN_URL": file.as_uri(),
            **variables,
        },
    )
    try:
        yield RunnerProcess(process, temporary)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run_in_process(
    event: dict[str, Any], folder: Path, *command: str, **variables: str
) -> EndedRunner:
    """Carry out the event in a process of its own. It must leave no file."""
    with started_runner(event, folder, *command, **variables) as runner:
        ended = runner.end()
    assert list(ended.temporary.iterdir()) == []
    assert ended.errors == ""
    return ended
