"""The `script` task: runs code in a sandboxed process without the rights of the node."""

import os
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from punctual.tasks.limits import DEFAULT_MEMORY_MB, RESERVED_ENV_PREFIX, RunLimits
from punctual.tasks.redaction import Redactor
from punctual.tasks.script.capture import Capture
from punctual.tasks.script.cgroup import Cgroup, Cgroups
from punctual.tasks.script.command import Command, Ended, Groups, Patience, may_pass, signal_name
from punctual.tasks.script.open_files import FULL, NotBegun, beginning, says_full
from punctual.tasks.script.process import run_process
from punctual.tasks.script.process_group import Group
from punctual.tasks.script.run_folder import RunFolder
from punctual.tasks.script.sandbox import DENIALS, SETTING, Sandbox, interpreter
from punctual.tasks.script.survivors import RUN_ID, Children
from punctual.tasks.text import as_text, encoded, json_bytes, moment

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
GRACE = timedelta(seconds=2)
MAX_OPEN_FILES = 1024
# Counts all processes of the user, not of the run. It stops fork bombs.
MAX_PROCESSES_OF_USER = 4096
SIGNAL_EXIT_CODE = 128
MEGABYTE = 1024 * 1024
NODE_HEAP_SHARE = 0.75  # of the run's memory, so that Node.js frees memory before it is killed

_FILES = {"python": "main.py", "node": "main.js", "bash": "main.sh"}
_LIMITS = {
    "memory": "used more than {memory} MB of memory, the limit of its run: raise "
    "task.resources.memory_mb",
    "disk": "left more than {disk} MB in its folder, the limit of a run",
    "processes": "had more than {processes} processes at once, the limit of a run",
    "depth": "nested its folders too deep to be measured: a path may have 4,096 bytes",
    "file": "wrote more than {disk} MB to one file, the limit of a run",
}


class NoGroups:
    """Records no groups, for an executor that dies together with its child processes."""

    def on_started(self, run_id: str, group: Group) -> None: ...

    def on_ended(self, run_id: str, group: Group) -> None: ...


class ScriptTask:
    """Runs scripts below `root`. Each run has a folder that is removed at its end."""

    def __init__(
        self,
        root: Path,
        sandbox: Sandbox,
        *,
        monotonic: Callable[[], float],
        path: str = DEFAULT_PATH,
        groups: Groups | None = None,
        grace: timedelta = GRACE,
        limits: RunLimits = RunLimits(),  # noqa: B008
        children: Children | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._root = root
        self._sandbox = sandbox
        self._path = path
        self._groups = groups or NoGroups()
        self._grace = grace
        self._monotonic = monotonic
        self._limits = limits
        self._children = children or Children()
        self._cgroups = cgroups

    def run(self, attempt: Attempt, stop: Stop, recorder: Recorder) -> Outcome:
        refusal = self._sandbox.refusal(attempt.tenant)
        if refusal:
            raise BadTask(refusal)
        program = self._program(attempt.task)
        with RunFolder(self._root) as folder:
            with beginning():
                command = self._command(attempt, program, folder)
            capture = Capture(
                recorder, Redactor(attempt.secrets), denials=DENIALS[self._sandbox.name]
            )
            ended = self._execute(command, attempt, stop, capture)
            if _lacked_files(ended, capture):
                raise NotBegun
        capture.end()
        return self._outcome(attempt, ended, capture, command.most)

    def _execute(self, command: Command, attempt: Attempt, stop: Stop, capture: Capture) -> Ended:
        started: list[Group] = []

        def on_started(group: Group) -> None:
            started.append(group)
            self._groups.on_started(attempt.run_id, group)

        seconds = attempt.timeout.total_seconds()
        patience = Patience(seconds, self._grace.total_seconds(), stop, self._monotonic)
        try:
            with ExitStack() as stack:
                with beginning():
                    cgroup = stack.enter_context(self._cgroup(attempt, command))
                return run_process(command, capture, patience, on_started, self._children, cgroup)
        finally:
            for group in started:
                self._groups.on_ended(attempt.run_id, group)

    def _cgroup(self, attempt: Attempt, command: Command) -> AbstractContextManager[Cgroup | None]:
        if self._cgroups is None:
            return nullcontext()
        return self._cgroups.for_run(attempt.run_id, command.most)

    def _program(self, task: dict[str, Any]) -> Path:
        runtime = task["runtime"]
        if runtime == "binary" or task.get("code") is None:
            raise BadTask("Artifacts are not available in this installation")
        if runtime not in _FILES:
            raise BadTask(f"There is no runtime {runtime!r}")
        program = interpreter() if runtime == "python" else shutil.which(runtime, path=self._path)
        if program is None:
            raise BadTask(f"{runtime} is not installed here (looked for it in {self._path})")
        return Path(program)

    def _command(self, attempt: Attempt, program: Path, folder: RunFolder) -> Command:
        task = attempt.task
        main = folder.write(_FILES[task["runtime"]], encoded(task["code"], "code"))
        arguments = tuple(as_text(argument) for argument in task.get("args") or ())
        for argument in arguments:
            encoded(argument, "An argument")
        most = self._limits._replace(memory_bytes=_memory_mb(task) * MEGABYTE)
        return Command(
            argv=(str(program), *_flags(task), str(main), *arguments),
            env=self._environment(attempt, folder),
            cwd=folder.work,
            limits=_limits(most),
            stdin=json_bytes(attempt.payload) + b"\n",
            folder=folder.path,
            most=most,
            walls=self._sandbox.walls(attempt.tenant, folder, (program,)),
        )

    def _environment(self, attempt: Attempt, folder: RunFolder) -> dict[str, str]:
        environment = {
            "PATH": self._path,
            "HOME": str(folder.home),
            "TMPDIR": str(folder.temporary),
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
            RUN_ID: attempt.run_id,
            "PUNCTUAL_ATTEMPT": str(attempt.attempt_number),
            "PUNCTUAL_SCHEDULED_TIME": moment(attempt.scheduled_at),
        }

    def _outcome(
        self, attempt: Attempt, ended: Ended, capture: Capture, most: RunLimits
    ) -> Outcome:
        status, error, retryable = _verdict(attempt, ended, most)
        if ended.code and capture.was_denied:
            error = (
                f"{error}\nThe {self._sandbox.name} sandbox may be the cause: {SETTING} opens more "
                "paths, to scripts of tenant local."
            )
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


def _flags(task: dict[str, Any]) -> tuple[str, ...]:
    if task["runtime"] == "python":
        # Unbuffered, so that logs are live and a killed script loses no output.
        return ("-u",)
    if task["runtime"] == "node":
        return (f"--max-old-space-size={int(_memory_mb(task) * NODE_HEAP_SHARE)}",)
    return ()


def _memory_mb(task: dict[str, Any]) -> int:
    memory: int | None = (task.get("resources") or {}).get("memory_mb")
    return DEFAULT_MEMORY_MB if memory is None else memory


def _limits(most: RunLimits) -> tuple[tuple[int, int], ...]:
    """Return the kernel limits of each process. The launcher enforces limits of the whole run."""
    return (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, most.disk_bytes),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES_OF_USER),
    )


def _lacked_files(ended: Ended, capture: Capture) -> bool:
    """Return True if the script could not start because of the limit of open files.

    Before the launcher reports a start, all captured text comes from the launcher.
    """
    if ended.start_error in FULL or ended.sandbox_error in FULL:
        return True
    return not ended.started and says_full(capture.tail)


def _verdict(attempt: Attempt, ended: Ended, most: RunLimits) -> tuple[Status, str, bool]:
    if ended.stopped:
        return "CANCELLED", stop_text(ended.stopped), True
    if ended.limit:
        return "FAILED", _limit_text(ended.limit, most), True
    if ended.timed_out:
        return "TIMED_OUT", timeout_text(attempt.timeout), True
    if ended.start_error is not None:
        text = f"The script could not be started: {os.strerror(ended.start_error)}"
        return "FAILED", text, may_pass(ended.start_error)
    if ended.sandbox_error is not None:
        text = f"The sandbox could not be entered: {os.strerror(ended.sandbox_error)}"
        return "FAILED", text, may_pass(ended.sandbox_error)
    if ended.signal == signal.SIGXFSZ:
        return "FAILED", _limit_text("file", most), True
    if ended.signal is not None:
        return "FAILED", f"Killed by {signal_name(ended.signal)}", True
    if not ended.started:
        return "FAILED", "The script could not be started: its launcher or its sandbox failed", True
    if ended.code is None:
        return "FAILED", "The process that watched over the script was killed", True
    if ended.code:
        return "FAILED", f"Exit code {ended.code}", True
    return "SUCCESS", "", True


def _limit_text(limit: str, most: RunLimits) -> str:
    text = _LIMITS[limit].format(
        memory=most.memory_bytes // MEGABYTE,
        disk=most.disk_bytes // MEGABYTE,
        processes=most.processes,
    )
    return f"The script {text}"
