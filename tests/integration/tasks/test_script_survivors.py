"""Processes of a run after its launcher was killed, also detached ones."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from punctual.node.files.process_groups import GroupFiles
from punctual.tasks.script.process_group import group_of
from punctual.tasks.script.survivors import Children, kill_survivors
from tests.support.kernel import needs
from tests.support.scripts.orphan import orphan_code
from tests.support.scripts.script_runs import (
    RUN,
    Log,
    an_attempt,
    eventually,
    execute,
    exists,
    unconfined,
)

pytestmark = needs("children of processes")

KEPT = orphan_code("os.environ")
CLEARED = orphan_code("{}")


def test_detached_child_dies_when_its_launcher_is_killed(tmp_path: Path) -> None:
    log = Log()
    outcome = execute(tmp_path, an_attempt(KEPT, "python"), log=log, sandbox=unconfined())
    assert outcome.error == "The launcher of the script was killed"
    assert eventually(lambda: not exists(int(log.data)))  # its parent is init, which reaps it


def test_child_with_cleared_environment_is_adopted_and_killed(tmp_path: Path) -> None:
    """Run in its own process, because the node adopts orphans and a test must not."""
    node = f"""
from pathlib import Path
import sys
from punctual.tasks.script.survivors import Children
from tests.support.scripts.script_runs import Log, an_attempt, execute, exists, unconfined
log = Log()
outcome = execute(Path({str(tmp_path)!r}), an_attempt(sys.stdin.read(), "python"), log=log,
                  sandbox=unconfined(), children=Children(adopt=True))
print(outcome.status, int(log.data), exists(int(log.data)))
"""
    process = subprocess.run(
        [sys.executable, "-c", node],
        input=CLEARED,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    status, pid, alive = process.stdout.split()
    assert (status, alive) == ("FAILED", "False")
    assert not exists(int(pid))


@contextmanager
def a_sleeper(run_id: str) -> Iterator[int]:
    """Start a process of a run in its own session, and yield its id."""
    env = {"PUNCTUAL_RUN_ID": run_id}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env, start_new_session=True) as sleeper:
        try:
            yield sleeper.pid
        finally:
            sleeper.kill()


def has_ended(pid: int) -> bool:
    """Return whether the process has ended, also before its parent waits for it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_only_processes_of_named_runs_are_killed() -> None:
    with (
        a_sleeper(f"{RUN}-1") as first,
        a_sleeper(f"{RUN}-2") as second,
        a_sleeper("other") as third,
    ):
        assert kill_survivors(()) == 0
        assert kill_survivors({f"{RUN}-1", f"{RUN}-2", RUN}) == 2
        assert has_ended(first)
        assert has_ended(second)
        assert not has_ended(third)


def test_start_kills_processes_of_recorded_runs(tmp_path: Path) -> None:
    """Launcher and node have ended, and no recorded group has the detached child."""
    groups = GroupFiles(tmp_path)
    with a_sleeper(f"{RUN}-7") as survivor, a_sleeper(f"{RUN}-8") as other:
        dead = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
        groups.on_started(f"{RUN}-7", group_of(dead.pid))
        dead.kill()
        dead.wait()
        GroupFiles(tmp_path).end_all()
        assert eventually(lambda: has_ended(survivor))
        assert not has_ended(other)


def test_executor_without_adoption_kills_none_of_its_children() -> None:
    with a_sleeper("another") as child:
        assert Children().kill_orphans() == 0
        assert not has_ended(child)
        os.kill(child, signal.SIGKILL)
