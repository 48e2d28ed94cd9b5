"""Control groups of runs, on a folder in place of the kernel's."""

from pathlib import Path

import pytest

from punctual.tasks.limits import RunLimits
from punctual.tasks.script import cgroup
from punctual.tasks.script.cgroup import Cgroup, Cgroups, find_cgroups

LIMITS = RunLimits(memory_bytes=100, processes=7)
PID = 4_321


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """Return a `/proc` folder of a node in its own control group."""
    group = tmp_path / "sys" / "system.slice" / "punctual.service"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    (group / "cgroup.procs").write_text(f"{PID}\n")
    (group / "cgroup.subtree_control").write_text("")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("1:name=systemd:/\n0::/system.slice/punctual.service\n")
    (proc / "mountinfo").write_text(
        "20 1 0:4 / /proc rw - proc proc rw\n"
        f"30 1 0:5 / {tmp_path}/sys rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    )
    return proc


def node_group(process: Path) -> Path:
    return process.parent / "sys" / "system.slice" / "punctual.service"


def test_node_moves_into_a_child_group_and_enables_limits(process: Path) -> None:
    assert find_cgroups(process, PID) is not None
    assert (node_group(process) / "punctual-node" / "cgroup.procs").read_text() == str(PID)
    assert (node_group(process) / "cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cgroup.controllers", "cpu io"),
        ("cgroup.controllers", "memory"),
        ("cgroup.procs", f"{PID}\n99\n"),
    ],
)
def test_group_that_cannot_enable_limits_is_not_changed(
    process: Path, file: str, text: str
) -> None:
    (node_group(process) / file).write_text(text)
    assert find_cgroups(process, PID) is None
    assert not (node_group(process) / "punctual-node").exists()


def test_system_without_control_groups_has_none(process: Path, tmp_path: Path) -> None:
    assert find_cgroups(tmp_path / "nowhere", PID) is None
    (process / "cgroup").write_text("4:memory:/\n")
    assert find_cgroups(process, PID) is None
    (process / "cgroup").write_text("0::/\n")
    (process / "mountinfo").write_text("20 1 0:4 / /proc rw - proc proc rw\n")
    assert find_cgroups(process, PID) is None


def test_group_has_its_limits_before_the_launcher_enters(tmp_path: Path) -> None:
    folder = tmp_path / "punctual-run-abc"
    with Cgroups(tmp_path).for_run("abc", LIMITS) as group:
        written = {path.name: path.read_text() for path in folder.iterdir()}
        group.enter(PID)
    assert written == {
        "memory.max": str(100 + cgroup.LAUNCHER_BYTES),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": str(7 + cgroup.LAUNCHER_PROCESSES),
    }
    assert (folder / "cgroup.procs").read_text() == str(PID)


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.events", "low 0\nmax 9\noom 1\noom_kill 2\n", "memory"),
        ("memory.events", "low 0\nmax 9\noom 0\noom_kill 0\n", ""),
        ("pids.events", "max 1\n", "processes"),
        ("pids.events", "max 0\n", ""),
        ("other", "", ""),
    ],
)
def test_exceeded_limit_is_read_from_the_events_of_the_kernel(
    tmp_path: Path, file: str, text: str, limit: str
) -> None:
    group = Cgroup(tmp_path / "run", LIMITS)
    (tmp_path / "run" / file).write_text(text)
    assert group.exceeded_limit() == limit


def test_end_of_a_run_kills_its_group_and_a_later_run_deletes_it(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    first = tmp_path / "punctual-run-a"
    with groups.for_run("a", LIMITS):
        pass
    assert (first / "cgroup.kill").read_text() == "1"
    for file in first.iterdir():  # the kernel removes its own files with the folder
        file.unlink()
    with groups.for_run("b", LIMITS):
        assert first.exists()
    assert not first.exists()


def test_leftover_groups_of_a_former_node_are_killed(tmp_path: Path) -> None:
    for name in ("punctual-run-a", "punctual-run-b", "punctual-node"):
        (tmp_path / name).mkdir()
    assert Cgroups(tmp_path).kill_leftovers() == 2
    assert (tmp_path / "punctual-run-a" / "cgroup.kill").read_text() == "1"
    assert list((tmp_path / "punctual-node").iterdir()) == []
