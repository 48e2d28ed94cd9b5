"""The `script` task: runs code in a sandboxed process without the rights of the node."""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from punctual.domain.task_limits import RESERVED_ENV_PREFIX
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Status,
    StopRequest,
    stop_text,
    timeout_text,
)
from punctual.tasks.limits import RunLimits, memory_problems, script_memory_mb
from punctual.tasks.redaction import Redactor
from punctual.tasks.script.artifact import (
    ENTRY_NAMES,
    ArtifactSource,
    NoArtifacts,
    packages_folder,
    unpack_artifact,
)
from punctual.tasks.script.capture import Capture
from punctual.tasks.script.cgroup import Cgroup, Cgroups
from punctual.tasks.script.command import (
    Command,
    CommandResult,
    GroupRecorder,
    TimeLimits,
    is_retryable_start_error,
    signal_name,
)
from punctual.tasks.script.local_paths import missing_path, path_problems
from punctual.tasks.script.open_files import (
    FILE_LIMIT_ERRORS,
    NotBegun,
    mentions_file_limit,
    not_begun_at_file_limit,
)
from punctual.tasks.script.process import run_process
from punctual.tasks.script.process_group import ProcessGroup
from punctual.tasks.script.run_folder import RunFolder
from punctual.tasks.script.sandbox import (
    DENIAL_PATTERNS,
    Sandbox,
    interpreter,
)
from punctual.tasks.script.survivors import RUN_ID_VARIABLE, Children
from punctual.tasks.text import as_text, encode_text, json_bytes, time_text

DEFAULT_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
STOP_GRACE = timedelta(seconds=2)
MAX_RUN_OPEN_FILES = 1024
# Counts all processes of the user, not of the run. It stops fork bombs.
MAX_PROCESSES_OF_USER = 4096
SIGNAL_EXIT_CODE = 128
LIBRARY_PATH_VARIABLE = "LD_LIBRARY_PATH"
MEGABYTE_BYTES = 1024 * 1024
UNBUFFERED_VARIABLE = "PYTHONUNBUFFERED"
NODE_HEAP_SHARE = 0.75  # of the run's memory, so that Node.js frees memory before it is killed

_LIMIT_TEXTS = {
    "memory": "used more than {memory} MB of memory, the limit of its run: raise "
    "task.resources.memory_mb",
    "disk": "left more than {disk} MB in its folder, the limit of a run",
    "processes": "had more than {processes} processes at once, the limit of a run",
    "depth": "nested its folders too deep to be measured: a path may have 4,096 bytes",
    "file": "wrote more than {disk} MB to one file, the limit of a run",
}


class NoGroupRecorder:
    """Records no groups, for an executor that dies together with its child processes."""

    def on_started(self, run_id: str, group: ProcessGroup) -> None: ...

    def on_ended(self, run_id: str, group: ProcessGroup) -> None: ...


class ScriptTask:
    """Runs scripts below `root`. Each run has a folder that is removed at its end."""

    def __init__(
        self,
        root: Path,
        sandbox: Sandbox,
        *,
        monotonic: Callable[[], float],
        path: str = DEFAULT_PROGRAM_PATH,
        groups: GroupRecorder | None = None,
        grace: timedelta = STOP_GRACE,
        limits: RunLimits = RunLimits(),  # noqa: B008
        children: Children | None = None,
        cgroups: Cgroups | None = None,
        artifacts: ArtifactSource | None = None,
        library_path: str = "",
        total_memory_mb: int = sys.maxsize,
    ) -> None:
        self._total_memory_mb = total_memory_mb
        self._root = root
        self._sandbox = sandbox
        self._path = path
        self._groups = groups or NoGroupRecorder()
        self._grace = grace
        self._monotonic = monotonic
        self._limits = limits
        self._children = children or Children()
        self._cgroups = cgroups
        self._artifacts = artifacts or NoArtifacts()
        self._library_env = {LIBRARY_PATH_VARIABLE: library_path} if library_path else {}

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        refusal_reason = self._sandbox.refusal_reason(attempt.tenant)
        if refusal_reason:
            raise BadTask(refusal_reason)
        for field, problem in (
            *path_problems(self._sandbox, attempt.tenant, attempt.task),
            *memory_problems(attempt.task, self._total_memory_mb),
        ):
            raise BadTask(f"task.{field} {problem}")
        missing_text = missing_path(attempt.task)
        if missing_text:
            return Outcome.failed(missing_text)
        program = self._find_program(attempt.task)
        with RunFolder(self._root) as folder:
            with not_begun_at_file_limit():
                command = self._build_command(attempt, program, folder)
            capture = Capture(
                recorder, Redactor(attempt.secrets), denials=DENIAL_PATTERNS[self._sandbox.name]
            )
            result = self._execute(command, attempt, stop, capture)
            if _lacked_files(result, capture):
                raise NotBegun
        capture.end()
        denial_text = (
            f"The {self._sandbox.name} sandbox may be the cause: {self._sandbox.denial_hint}."
        )
        return build_outcome(attempt, result, capture, command.run_limits, denial_text)

    def _execute(
        self, command: Command, attempt: Attempt, stop: StopRequest, capture: Capture
    ) -> CommandResult:
        groups: list[ProcessGroup] = []

        def on_started(group: ProcessGroup) -> None:
            groups.append(group)
            self._groups.on_started(attempt.run_id, group)

        seconds = attempt.timeout.total_seconds()
        time_limits = TimeLimits(seconds, self._grace.total_seconds(), stop, self._monotonic)
        try:
            with ExitStack() as stack:
                with not_begun_at_file_limit():
                    cgroup = stack.enter_context(self._cgroup(attempt, command))
                return run_process(
                    command, capture, time_limits, on_started, self._children, cgroup
                )
        finally:
            for group in groups:
                self._groups.on_ended(attempt.run_id, group)

    def _cgroup(self, attempt: Attempt, command: Command) -> AbstractContextManager[Cgroup | None]:
        if self._cgroups is None:
            return nullcontext()
        return self._cgroups.for_run(attempt.run_id, command.run_limits)

    def _find_program(self, task: dict[str, Any]) -> Path | None:
        """Return the program that reads the script, or None for a binary."""
        runtime = task["runtime"]
        if runtime != "binary" and runtime not in ENTRY_NAMES:
            raise BadTask(f"There is no runtime {runtime!r}")
        if task.get("interpreter") is not None:
            return Path(task["interpreter"])
        if runtime == "binary":
            return None
        program = interpreter() if runtime == "python" else shutil.which(runtime, path=self._path)
        if program is None:
            raise BadTask(f"{runtime} is not installed here (looked for it in {self._path})")
        return Path(program)

    def _write_script(self, attempt: Attempt, folder: RunFolder) -> Path | None:
        """Return the script's file in the folder: its code, or the entry of its artifact.

        It is None if the arguments of an interpreter are its whole command line.
        """
        task = attempt.task
        runtime, code = task["runtime"], task.get("code")
        if task.get("interpreter") is not None and code is task.get("artifact_id") is None:
            return None
        if code is not None and runtime != "binary":
            return folder.write(ENTRY_NAMES[runtime], encode_text(code, "code"))
        return unpack_artifact(self._artifacts.fetch(attempt, folder), runtime, folder)

    def _build_command(self, attempt: Attempt, program: Path | None, folder: RunFolder) -> Command:
        task = attempt.task
        script_file = self._write_script(attempt, folder)
        programs = () if program is None else (program,)
        named_program, folder_name = task.get("interpreter"), task.get("working_directory")
        # The setting opens a named interpreter. Its folders are not opened as those of a runtime.
        opened_programs = programs if named_program is None else ()
        script_words = () if script_file is None else (*_interpreter_flags(task), str(script_file))
        arguments = tuple(as_text(argument) for argument in task.get("args") or ())
        for argument in arguments:
            encode_text(argument, "An argument")
        run_limits = self._limits._replace(memory_bytes=script_memory_mb(task) * MEGABYTE_BYTES)
        return Command(
            argv=(*map(str, programs), *script_words, *arguments),
            env=self._build_environment(attempt, folder),
            cwd=folder.work if folder_name is None else Path(folder_name),
            kernel_limits=_kernel_limits(run_limits),
            stdin=json_bytes(attempt.payload) + b"\n",
            folder=folder.path,
            run_limits=run_limits,
            sandbox=self._sandbox.for_run(attempt.tenant, folder, opened_programs),
            launcher_env=self._library_env,
        )

    def _build_environment(self, attempt: Attempt, folder: RunFolder) -> dict[str, str]:
        environment = {
            "PATH": self._path,
            "HOME": str(folder.home),
            "TMPDIR": str(folder.temporary),
            "LANG": "C.UTF-8",
            **self._library_env,
        }
        if attempt.task["runtime"] == "python" and attempt.task.get("interpreter") is not None:
            environment[UNBUFFERED_VARIABLE] = "1"
        for name, value in (attempt.task.get("env") or {}).items():
            text = as_text(value)
            encode_text(text, f"The variable {name!r}")
            encode_text(name, "A variable's name")
            if not name or "=" in name or name.startswith(RESERVED_ENV_PREFIX):
                raise BadTask(f"{name!r} may not be the name of a variable")
            environment[name] = text
        packages = packages_folder(folder)
        if packages is not None:
            paths = (str(packages), environment.get("PYTHONPATH"))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return environment | run_variables(attempt)


def run_variables(attempt: Attempt) -> dict[str, str]:
    """Return the environment variables that name the run."""
    return {
        "PUNCTUAL_JOB_ID": attempt.job_id,
        RUN_ID_VARIABLE: attempt.run_id,
        "PUNCTUAL_ATTEMPT": str(attempt.attempt_number),
        "PUNCTUAL_SCHEDULED_TIME": time_text(attempt.scheduled_at),
    }


def build_outcome(
    attempt: Attempt,
    result: CommandResult,
    capture: Capture,
    run_limits: RunLimits,
    denial_text: str = "",
) -> Outcome:
    """Return the outcome of a process. `denial_text` explains a denied access."""
    status, error, retryable = _status_and_error(attempt, result, run_limits)
    if result.exit_code and capture.was_denied:
        error = f"{error}\n{denial_text}"
    if error and capture.tail:
        error = f"{error}\n{capture.tail}"
    code = result.exit_code if result.signal is None else SIGNAL_EXIT_CODE + result.signal
    return Outcome(
        status,
        error,
        retryable,
        output=capture.output,
        output_type=TEXT_CONTENT_TYPE,
        output_truncated=capture.output_truncated,
        logs_truncated=capture.logs_truncated,
        exit_code=code,
    )


def _interpreter_flags(task: dict[str, Any]) -> tuple[str, ...]:
    if task["runtime"] == "python":
        # Unbuffered, so that logs are live and a killed script loses no output.
        return ("-u",)
    if task["runtime"] == "node":
        return (f"--max-old-space-size={int(script_memory_mb(task) * NODE_HEAP_SHARE)}",)
    return ()


def _kernel_limits(run_limits: RunLimits) -> tuple[tuple[int, int], ...]:
    """Return the kernel limits of each process. The launcher enforces limits of the whole run."""
    return (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, run_limits.disk_bytes),
        (resource.RLIMIT_NOFILE, MAX_RUN_OPEN_FILES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES_OF_USER),
    )


def _lacked_files(result: CommandResult, capture: Capture) -> bool:
    """Return True if the script could not start because of the limit of open files.

    Before the launcher reports a start, all captured text comes from the launcher.
    """
    if result.start_error in FILE_LIMIT_ERRORS or result.sandbox_error in FILE_LIMIT_ERRORS:
        return True
    return not result.has_started and mentions_file_limit(capture.tail)


def _status_and_error(
    attempt: Attempt, result: CommandResult, run_limits: RunLimits
) -> tuple[Status, str, bool]:
    if result.stop_reason:
        return "CANCELLED", stop_text(result.stop_reason), True
    if result.exceeded_limit:
        return "FAILED", _limit_text(result.exceeded_limit, run_limits), True
    if result.timed_out:
        return "TIMED_OUT", timeout_text(attempt.timeout), True
    if result.start_error is not None:
        text = f"The script could not be started: {os.strerror(result.start_error)}"
        return "FAILED", text, is_retryable_start_error(result.start_error)
    if result.sandbox_error is not None:
        text = f"The sandbox could not be entered: {os.strerror(result.sandbox_error)}"
        return "FAILED", text, is_retryable_start_error(result.sandbox_error)
    if result.signal == signal.SIGXFSZ:
        return "FAILED", _limit_text("file", run_limits), True
    if result.signal is not None:
        return "FAILED", f"Killed by {signal_name(result.signal)}", True
    if not result.has_started:
        return "FAILED", "The script could not be started: its launcher or its sandbox failed", True
    if result.exit_code is None:
        return "FAILED", "The launcher of the script was killed", True
    if result.exit_code:
        return "FAILED", f"Exit code {result.exit_code}", True
    return "SUCCESS", "", True


def _limit_text(limit: str, run_limits: RunLimits) -> str:
    text = _LIMIT_TEXTS[limit].format(
        memory=run_limits.memory_bytes // MEGABYTE_BYTES,
        disk=run_limits.disk_bytes // MEGABYTE_BYTES,
        processes=run_limits.processes,
    )
    return f"The script {text}"
