"""A run in a control group: a folder plays the kernel's, the processes are real."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from punctual.node import script_settings
from punctual.node.files.process_groups import GroupFiles
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.registry import Registry
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
    """The outcome of a script, while `kernel` does what the kernel would, once it has spoken."""
    groups = tmp_path / "groups"
    groups.mkdir()
    folder = groups / f"punctual-run-{RUN}"
    problems: list[AssertionError] = []
    log = Log()

    def play() -> None:
        until = time.monotonic() + PATIENCE
        try:
            while not log.data:
                assert time.monotonic() < until
                time.sleep(0.01)
            kernel(folder)
        except AssertionError as error:
            problems.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    outcome = execute(tmp_path / "runs", an_attempt(code), log=log, cgroups=Cgroups(groups))
    thread.join()
    assert problems == []
    return outcome


def test_memory_that_the_kernel_denied_is_named(tmp_path: Path) -> None:
    def kill(folder: Path) -> None:
        (folder / "memory.events").write_text("oom_kill 1\n")

    outcome = run_with(tmp_path, "echo $$; sleep 60", kill)
    assert "more than 512 MB of memory" in outcome.error
    assert (outcome.status, outcome.exit_code) == ("FAILED", 137)
    assert not exists(int(outcome.output))


def test_processes_that_the_kernel_denied_end_the_run(tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        (folder / "pids.events").write_text("max 3\n")

    outcome = run_with(tmp_path, "echo; sleep 60", refuse)
    assert outcome.error == "The script had more than 256 processes at once, the limit of a run"


def test_the_launcher_is_in_the_group_and_the_group_is_killed(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(folder: Path) -> None:
        seen.append(int((folder / "cgroup.procs").read_text()))

    outcome = run_with(tmp_path, "echo $PPID; sleep 0.3", look)
    assert seen == [int(outcome.output)]
    assert (tmp_path / "groups" / f"punctual-run-{RUN}" / "cgroup.kill").read_text() == "1"


def test_the_scripts_of_a_node_run_in_the_groups_that_it_may_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "groups"
    (groups / "punctual-run-old").mkdir(parents=True)
    monkeypatch.setattr(cgroup, "find_cgroups", lambda: Cgroups(groups))
    monkeypatch.setattr(script_settings, "Children", lambda adopt: Children())
    task = script_settings.script_task(tmp_path, GroupFiles(tmp_path / "files"), unconfined())
    assert (groups / "punctual-run-old" / "cgroup.kill").read_text() == "1"
    outcome = Registry({"script": task}).run(an_attempt("echo $PPID"), StopSignal(), Log())
    entered = (groups / f"punctual-run-{RUN}" / "cgroup.procs").read_text()
    assert int(entered) == int(outcome.output)
