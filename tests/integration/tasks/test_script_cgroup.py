"""A run in a control group. A folder stands in for the kernel's, and processes are real."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from punctual.node import script_settings
from punctual.node.files.process_groups import GroupFiles
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.script import cgroup
from punctual.tasks.script.cgroup import Cgroups
from punctual.tasks.script.survivors import Children
from tests.support.scripts.script_runs import (
    PATIENCE,
    RUN,
    Log,
    an_attempt,
    execute,
    exists,
    unconfined,
)


def run_with(tmp_path: Path, code: str, kernel: Callable[[Path], None]) -> Outcome:
    """Run a script, call `kernel` once it has printed, and return the outcome."""
    groups = tmp_path / "groups"
    groups.mkdir()
    folder = groups / f"punctual-run-{RUN}"
    problems: list[AssertionError] = []
    log = Log()

    def act_as_kernel() -> None:
        deadline = time.monotonic() + PATIENCE
        try:
            while not log.data:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            kernel(folder)
        except AssertionError as error:
            problems.append(error)

    thread = threading.Thread(target=act_as_kernel)
    thread.start()
    outcome = execute(tmp_path / "runs", an_attempt(code), log=log, cgroups=Cgroups(groups))
    thread.join()
    assert problems == []
    return outcome


def test_error_names_the_memory_limit_of_the_kernel(tmp_path: Path) -> None:
    def kill(folder: Path) -> None:
        (folder / "memory.events").write_text("oom_kill 1\n")

    outcome = run_with(tmp_path, "echo $$; sleep 60", kill)
    assert "more than 512 MB of memory" in outcome.error
    assert (outcome.status, outcome.exit_code) == ("FAILED", 137)
    assert not exists(int(outcome.output))


def test_run_ends_at_the_process_limit_of_the_kernel(tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        (folder / "pids.events").write_text("max 3\n")

    outcome = run_with(tmp_path, "echo; sleep 60", refuse)
    assert outcome.error == "The script had more than 256 processes at once, the limit of a run"


def test_launcher_enters_the_control_group_that_is_killed(tmp_path: Path) -> None:
    pids: list[int] = []

    def read_pid(folder: Path) -> None:
        pids.append(int((folder / "cgroup.procs").read_text()))

    outcome = run_with(tmp_path, "echo $PPID; sleep 0.3", read_pid)
    assert pids == [int(outcome.output)]
    assert (tmp_path / "groups" / f"punctual-run-{RUN}" / "cgroup.kill").read_text() == "1"


def test_scripts_of_a_node_run_in_its_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "groups"
    (groups / "punctual-run-old").mkdir(parents=True)
    monkeypatch.setattr(cgroup, "find_cgroups", lambda: Cgroups(groups))
    monkeypatch.setattr(script_settings, "Children", lambda adopt: Children())
    task = script_settings.script_task(tmp_path, GroupFiles(tmp_path / "files"), unconfined())
    assert (groups / "punctual-run-old" / "cgroup.kill").read_text() == "1"
    outcome = AttemptRunner({"script": task}).run(an_attempt("echo $PPID"), StopSignal(), Log())
    group_pids = (groups / f"punctual-run-{RUN}" / "cgroup.procs").read_text()
    assert int(group_pids) == int(outcome.output)
