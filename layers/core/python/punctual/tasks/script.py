"""The `script` task: runs code in a process of its own that holds none of our rights."""

import os
import resource
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from punctual.tasks.capture import Capture
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Status,
    Stop,
    stop_text,
    timeout_text,
)
from punctual.tasks.group import Group
from punctual.tasks.limits import RESERVED_ENV_PREFIX
from punctual.tasks.process import (
    Command,
    Ended,
    Groups,
    Patience,
    may_pass,
    run_process,
    signal_name,
)
from punctual.tasks.redaction import Redactor
from punctual.tasks.sandbox import Sandbox
from punctual.tasks.text import as_text, encoded, json_bytes, moment

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
GRACE = timedelta(seconds=2)
MAX_FILE_BYTES = 1024**3
MAX_OPEN_FILES = 1024
MAX_PROCESSES = 4096
SIGNAL_EXIT_CODE = 128

_FILES = {"python": "main.py", "node": "main.js", "bash": "main.sh"}


class NoGroups:
    """Records nothing: for an executor that dies with everything it started."""

    def on_started(self, run_id: str, group: Group) -> None: ...

    def on_ended(self, run_id: str, group: Group) -> None: ...


class ScriptTask:
    """Runs scripts below `root`, each in a folder that is gone when its run has ended."""

    def __init__(
        self,
        root: Path,
        *,
        monotonic: Callable[[], float],
        path: str = DEFAULT_PATH,
        groups: Groups | None = None,
        grace: timedelta = GRACE,
    ) -> None:
        self._root = root
        self._path = path
        self._groups = groups or NoGroups()
        self._grace = grace
        self._monotonic = monotonic

    def run(self, attempt: Attempt, stop: Stop, recorder: Recorder) -> Outcome:
        program = self._program(attempt.task)
        with Sandbox(self._root) as sandbox:
            command = self._command(attempt, program, sandbox)
            capture = Capture(recorder, Redactor(attempt.secrets))
            ended = self._execute(command, attempt, stop, capture)
        capture.end()
        return _outcome(attempt, ended, capture)

    def _execute(self, command: Command, attempt: Attempt, stop: Stop, capture: Capture) -> Ended:
        started: list[Group] = []

        def on_started(group: Group) -> None:
            started.append(group)
            self._groups.on_started(attempt.run_id, group)

        seconds = attempt.timeout.total_seconds()
        patience = Patience(seconds, self._grace.total_seconds(), stop, self._monotonic)
        try:
            return run_process(command, capture, patience, on_started)
        finally:
            for group in started:
                self._groups.on_ended(attempt.run_id, group)

    def _program(self, task: dict[str, Any]) -> tuple[str, ...]:
        runtime = task["runtime"]
        if runtime == "binary" or task.get("code") is None:
            raise BadTask("Artifacts are not available in this installation")
        if runtime not in _FILES:
            raise BadTask(f"There is no runtime {runtime!r}")
        program = _python() if runtime == "python" else shutil.which(runtime, path=self._path)
        if program is None:
            raise BadTask(f"{runtime} is not installed here (looked for it in {self._path})")
        return (program, *_flags(runtime, _memory_mb(task)))

    def _command(self, attempt: Attempt, program: tuple[str, ...], sandbox: Sandbox) -> Command:
        task = attempt.task
        main = sandbox.write(_FILES[task["runtime"]], encoded(task["code"], "code"))
        arguments = tuple(as_text(argument) for argument in task.get("args") or ())
        for argument in arguments:
            encoded(argument, "An argument")
        return Command(
            argv=(*program, str(main), *arguments),
            env=self._environment(attempt, sandbox),
            cwd=sandbox.work,
            limits=_limits(task),
            stdin=json_bytes(attempt.payload) + b"\n",
        )

    def _environment(self, attempt: Attempt, sandbox: Sandbox) -> dict[str, str]:
        environment = {
            "PATH": self._path,
            "HOME": str(sandbox.home),
            "TMPDIR": str(sandbox.temporary),
            "LANG": "C.UTF-8",
        }
        for name, value in (attempt.task.get("env") or {}).items():
            text = as_text(value)
            encoded(text, f"The variable {name!r}")
            encoded(name, "A variable's name")
            if not name or "=" in name or name.startswith(RESERVED_ENV_PREFIX):
                raise BadTask(f"{name!r} may not be the name of a variable")
            environment[name] = text
        return environment | {
            "PUNCTUAL_JOB_ID": attempt.job_id,
            "PUNCTUAL_RUN_ID": attempt.run_id,
            "PUNCTUAL_ATTEMPT": str(attempt.attempt_number),
            "PUNCTUAL_SCHEDULED_TIME": moment(attempt.scheduled_at),
        }


def _python() -> str:
    # The interpreter below our virtual environment: scripts see no package of ours.
    base: str = getattr(sys, "_base_executable", sys.executable)
    return base


def _flags(runtime: str, memory_mb: int | None) -> tuple[str, ...]:
    if runtime == "python":
        # Unbuffered, so that logs are live and nothing is lost with a script that is killed.
        return ("-u",)
    if runtime == "node" and memory_mb is not None:
        return (f"--max-old-space-size={memory_mb}",)
    return ()


def _memory_mb(task: dict[str, Any]) -> int | None:
    memory: int | None = (task.get("resources") or {}).get("memory_mb")
    return memory


def _limits(task: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES),
    ]
    memory_mb = _memory_mb(task)
    # Node reserves far more addresses than it uses: its heap is bounded by a flag instead.
    if memory_mb is not None and task["runtime"] != "node":
        limits.append((resource.RLIMIT_AS, memory_mb * 1024 * 1024))
    return tuple(limits)


def _outcome(attempt: Attempt, ended: Ended, capture: Capture) -> Outcome:
    status, error, retryable = _verdict(attempt, ended)
    if error and capture.tail:
        error = f"{error}\n{capture.tail}"
    code = ended.code if ended.signal is None else SIGNAL_EXIT_CODE + ended.signal
    return Outcome(
        status,
        error,
        retryable,
        output=capture.output,
        output_type="text/plain; charset=utf-8",
        output_truncated=capture.output_truncated,
        logs_truncated=capture.logs_truncated,
        exit_code=code,
    )


def _verdict(attempt: Attempt, ended: Ended) -> tuple[Status, str, bool]:
    if ended.stopped:
        return "CANCELLED", stop_text(ended.stopped), True
    if ended.timed_out:
        return "TIMED_OUT", timeout_text(attempt.timeout), True
    if ended.start_error is not None:
        text = f"The script could not be started: {os.strerror(ended.start_error)}"
        return "FAILED", text, may_pass(ended.start_error)
    if ended.signal is not None:
        return "FAILED", f"Killed by {signal_name(ended.signal)}", True
    if ended.code is None:
        return "FAILED", "The process that watched over the script was killed", True
    if ended.code:
        return "FAILED", f"Exit code {ended.code}", True
    return "SUCCESS", "", True
