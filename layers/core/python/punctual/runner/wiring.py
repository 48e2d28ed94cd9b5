"""Builds the environment of a runner from the process it is in. Only this module names a clock."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from punctual.runner.environment import RunnerClock, RunnerEnvironment
from punctual.runner.http_client import HttpClient
from punctual.runner.runner_sandbox import choose_runner_sandbox, library_path
from punctual.tasks.script.confinement import hide_process
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.task import DEFAULT_PROGRAM_PATH
from punctual.tasks.script.usage import children

SANDBOX_VARIABLE = "PUNCTUAL_SANDBOX"
FUNCTION_MEMORY_VARIABLE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
FUNCTION_PROGRAM_PATH = f"{DEFAULT_PROGRAM_PATH}:/opt/bin:/var/lang/bin"  # layers, and Python
FUNCTION_CODE_FOLDER = Path("/var/task")
TEMPORARY_FOLDER_OF_FUNCTION = Path("/tmp")
RUNS_FOLDER_PREFIX = "punctual-runner-"


def real_clock() -> RunnerClock:
    return RunnerClock(
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        wait=time.sleep,
        new_id=lambda: uuid.uuid4().hex,
    )


def function_environment(variables: Mapping[str, str]) -> RunnerEnvironment:
    """Return the environment of a script function. It serves many runs of one tenant."""
    memory = variables.get(FUNCTION_MEMORY_VARIABLE)
    return _environment(
        variables,
        program_path=FUNCTION_PROGRAM_PATH,
        memory_mb=int(memory) if memory else None,
        owns_temporary_folder=_is_in_lambda(),
    )


def process_environment(
    variables: Mapping[str, str], command_line: tuple[str, ...]
) -> RunnerEnvironment:
    """Return the environment of a process that carries out one run."""
    return _environment(
        variables,
        program_path=DEFAULT_PROGRAM_PATH,
        command_line=command_line,
    )


def remove_runs_folder(environment: RunnerEnvironment) -> None:
    shutil.rmtree(environment.runs_folder, ignore_errors=True)


def _environment(
    variables: Mapping[str, str],
    *,
    program_path: str,
    memory_mb: int | None = None,
    owns_temporary_folder: bool = False,
    command_line: tuple[str, ...] = (),
) -> RunnerEnvironment:
    hide_process(c_library())
    # Orphans of a run become children of this process, unless it has other children already.
    runner_children = Children(adopt=not children(os.getpid()))
    runs_folder = Path(tempfile.mkdtemp(prefix=RUNS_FOLDER_PREFIX))
    return RunnerEnvironment(
        runs_folder=runs_folder,
        cleared_folder=TEMPORARY_FOLDER_OF_FUNCTION if owns_temporary_folder else runs_folder,
        sandbox=choose_runner_sandbox(
            variables.get(SANDBOX_VARIABLE, "auto"), runs_folder, program_path
        ),
        children=runner_children,
        http=HttpClient(),
        clock=real_clock(),
        program_path=program_path,
        library_path=library_path(variables),
        memory_mb=memory_mb,
        command_line=command_line,
        variables=variables,
    )


def _is_in_lambda() -> bool:
    """Return True if this code is in a function of AWS, where only runs use `/tmp`.

    An emulator sets the same variables, but mounts no read-only folder for the code.
    """
    if not Path(__file__).is_relative_to(FUNCTION_CODE_FOLDER):
        return False
    return bool(os.statvfs(FUNCTION_CODE_FOLDER).f_flag & os.ST_RDONLY)
