"""Runs the command of a container's image, with the image's own environment and rights."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, StopRequest
from punctual.tasks.limits import RunLimits
from punctual.tasks.redaction import Redactor
from punctual.tasks.script.capture import Capture
from punctual.tasks.script.command import Command, TimeLimits
from punctual.tasks.script.process import run_process
from punctual.tasks.script.process_group import ProcessGroup
from punctual.tasks.script.sandbox import RunSandbox
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.task import build_outcome, run_variables
from punctual.tasks.text import as_text, encode_text, json_bytes

RUN_URL_VARIABLE = "PUNCTUAL_RUN_URL"
MAX_CONTAINER_OUTPUT_BYTES = 5 * 1000**3
CONTAINER_STOP_SECONDS = 20.0  # ECS kills a task 30 s after it asks the task to stop

# The container itself limits memory, disk and processes.
_CONTAINER_LIMITS = RunLimits(memory_bytes=2**62, disk_bytes=2**62, processes=2**31 - 1)


class ContainerCommand:
    """Runs one command. Its output goes to `output_file`, so it is never held in memory.

    `command_line` is the command of the image. A job may name another one.
    """

    def __init__(
        self,
        folder: Path,
        children: Children,
        monotonic: Callable[[], float],
        command_line: tuple[str, ...],
        variables: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._children = children
        self._monotonic = monotonic
        self._command_line = command_line
        self._variables = variables
        self.output_file = folder / "output"

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        command = self._build_command(attempt)
        limits = TimeLimits(
            attempt.timeout.total_seconds(), CONTAINER_STOP_SECONDS, stop, self._monotonic
        )
        with self.output_file.open("wb", buffering=0) as output:
            store = _OutputFile(output)
            capture = Capture(
                recorder,
                Redactor(attempt.secrets),
                max_output=MAX_CONTAINER_OUTPUT_BYTES,
                keep_output=store.write,
            )
            result = run_process(command, capture, limits, _ignore_group, self._children)
            capture.end()
        capture.output_truncated |= store.is_full
        return build_outcome(attempt, result, capture, _CONTAINER_LIMITS)

    def _build_command(self, attempt: Attempt) -> Command:
        words = attempt.task.get("command") or self._command_line
        arguments = tuple(as_text(word) for word in words)
        if not arguments:
            raise BadTask("The image has no command, and the job names none")
        environment = self._build_environment(attempt)
        for argument in arguments:
            encode_text(argument, "An argument")
        program = shutil.which(arguments[0], path=environment.get("PATH", os.defpath))
        if program is None:
            raise BadTask(f"The image has no program {arguments[0]!r}")
        return Command(
            argv=(os.path.abspath(program), *arguments[1:]),
            env=environment,
            cwd=Path.cwd(),
            kernel_limits=(),
            stdin=json_bytes(attempt.payload) + b"\n",
            folder=self._folder,
            run_limits=_CONTAINER_LIMITS,
            sandbox=RunSandbox(),
        )

    def _build_environment(self, attempt: Attempt) -> dict[str, str]:
        environment = {
            name: value
            for name, value in self._variables.items()
            if name != RUN_URL_VARIABLE  # the event holds the claim
        }
        for name, value in (attempt.task.get("env") or {}).items():
            text = as_text(value)
            encode_text(text, f"The variable {name!r}")
            environment[name] = text
        return environment | run_variables(attempt)


class _OutputFile:
    """Writes an output until the disk is full."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.is_full = False

    def write(self, data: bytes) -> None:
        unwritten = memoryview(data)
        while unwritten and not self.is_full:
            try:
                unwritten = unwritten[self._file.write(unwritten) :]
            except OSError:
                self.is_full = True


def _ignore_group(_group: ProcessGroup) -> None:
    """Record nothing: the container ends with its processes."""
