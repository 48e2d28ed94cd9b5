"""Control groups of runs, on a folder that plays the kernel's."""

from pathlib import Path

import pytest

from punctual.tasks.limits import RunLimits
from punctual.tasks.script import cgroup
from punctual.tasks.script.cgroup import Cgroup, Cgroups, find_cgroups

LIMITS = RunLimits(memory_bytes=100, processes=7)
PID = 4_321


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """What /proc says of a node in a control group of its own."""
    own = tmp_path / "sys" / "system.slice" / "punctual.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.procs").write_text(f"{PID}\n")
    (own / "cgroup.subtree_control").write_text("")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("1:name=systemd:/\n0::/system.slice/punctual.service\n")
    (proc / "mountinfo").write_text(
        "20 1 0:4 / /proc rw - proc proc rw\n"
        f"30 1 0:5 / {tmp_path}/sys rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    )
    return proc


def own(process: Path) -> Path:
    return process.parent / "sys" / "system.slice" / "punctual.service"


def test_the_node_moves_below_its_group_and_hands_out_limits(process: Path) -> None:
    assert find_cgroups(process, PID) is not None
    assert (own(process) / "punctual-node" / "cgroup.procs").read_text() == str(PID)
    assert (own(process) / "cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cgroup.controllers", "cpu io"),
        ("cgroup.controllers", "memory"),
        ("cgroup.procs", f"{PID}\n99\n"),
    ],
)
def test_a_group_that_cannot_hand_out_limits_is_left_alone(
    process: Path, file: str, text: str
) -> None:
    (own(process) / file).write_text(text)
    assert find_cgroups(process, PID) is None
    assert not (own(process) / "punctual-node").exists()


def test_a_system_without_groups_has_none(process: Path, tmp_path: Path) -> None:
    assert find_cgroups(tmp_path / "nowhere", PID) is None
    (process / "cgroup").write_text("4:memory:/\n")
    assert find_cgroups(process, PID) is None
    (process / "cgroup").write_text("0::/\n")
    (process / "mountinfo").write_text("20 1 0:4 / /proc rw - proc proc rw\n")
    assert find_cgroups(process, PID) is None


def test_a_run_has_its_limits_before_its_launcher_enters(tmp_path: Path) -> None:
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
def test_the_kernel_says_which_limit_was_passed(
    tmp_path: Path, file: str, text: str, limit: str
) -> None:
    group = Cgroup(tmp_path / "run", LIMITS)
    (tmp_path / "run" / file).write_text(text)
    assert group.exceeded_limit() == limit


def test_the_end_kills_and_an_empty_group_is_deleted_later(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    first = tmp_path / "punctual-run-a"
    with groups.for_run("a", LIMITS):
        pass
    assert (first / "cgroup.kill").read_text() == "1"
    for file in first.iterdir():  # those of the kernel would go with the folder
        file.unlink()
    with groups.for_run("b", LIMITS):
        assert first.exists()
    assert not first.exists()


def test_what_a_predecessor_left_is_killed(tmp_path: Path) -> None:
    for name in ("punctual-run-a", "punctual-run-b", "punctual-node"):
        (tmp_path / name).mkdir()
    assert Cgroups(tmp_path).kill_leftovers() == 2
    assert (tmp_path / "punctual-run-a" / "cgroup.kill").read_text() == "1"
    assert list((tmp_path / "punctual-node").iterdir()) == []
