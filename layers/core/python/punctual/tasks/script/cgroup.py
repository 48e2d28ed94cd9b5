"""Control groups (version 2): the kernel itself holds a run to its memory and its processes.

They are used where the node may write its own: a service with `Delegate=yes`, or a container with
a control group of its own. Elsewhere the launcher looks at what a run uses.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from punctual.tasks.limits import RunLimits
from punctual.tasks.script.open_files import is_full

CONTROLLERS = frozenset({"memory", "pids"})
NODE = "punctual-node"
RUN_PREFIX = "punctual-run-"
# The launcher's own, and bubblewrap's.
LAUNCHER_BYTES = 32 * 1024 * 1024
LAUNCHER_PROCESSES = 3


class Cgroup:
    """The control group of one run; its launcher enters it before the script starts."""

    def __init__(self, folder: Path, limits: RunLimits) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._write("memory.max", limits.memory_bytes + LAUNCHER_BYTES)
        self._write("memory.swap.max", 0)
        self._write("memory.oom.group", 1)
        self._write("pids.max", limits.processes + LAUNCHER_PROCESSES)

    def enter(self, pid: int) -> None:
        self._write("cgroup.procs", pid)

    def passed(self) -> str:
        """Return the limit that the kernel has held the run to, or nothing."""
        if _count(self._folder / "memory.events", "oom_kill"):
            return "memory"
        return "processes" if _count(self._folder / "pids.events", "max") else ""

    def _write(self, name: str, value: int) -> None:
        try:
            (self._folder / name).write_text(str(value))
        except FileNotFoundError:
            # A kernel without swap accounting has no such file.
            if name != "memory.swap.max":
                raise


class Cgroups:
    """Makes a control group for each run, beside the node's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending: dict[Path, bool] = {}  # whether each was killed

    @contextmanager
    def for_run(self, run_id: str, limits: RunLimits) -> Iterator[Cgroup]:
        folder = self._folder / f"{RUN_PREFIX}{run_id}"
        try:
            yield Cgroup(folder, limits)
        finally:
            self._end([folder])

    def end_left_behind(self) -> int:
        """Kill what a predecessor left running; how many groups there were."""
        left = list(self._folder.glob(f"{RUN_PREFIX}*"))
        self._end(left)
        return len(left)

    def _end(self, folders: Iterable[Path]) -> None:
        """Kill what is in these groups, and delete all groups that have become empty since."""
        self._ending.update((folder, False) for folder in folders)
        for folder, was_killed in list(self._ending.items()):
            self._ending[folder] = was_killed or _kill(folder)
            if _is_gone(folder):
                self._ending.pop(folder, None)


def _kill(folder: Path) -> bool:
    """Kill what is in a group; return whether that need not be done again."""
    try:
        (folder / "cgroup.kill").write_text("1")
    except FileNotFoundError:
        return True  # Linux before 5.14 has no such file
    except OSError as error:
        if not is_full(error):
            raise
        return False
    return True


def _is_gone(folder: Path) -> bool:
    """Delete a group, unless what was killed in it is still ending."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def find(process: Path = Path("/proc/self"), pid: int | None = None) -> Cgroups | None:
    """Return the groups that this process may make; None where it may not.

    The kernel wants no process in a group that hands out limits, so the node moves to one below.
    """
    folder = _own_folder(process)
    if folder is None or not _may_use(folder, os.getpid() if pid is None else pid):
        return None
    node = folder / NODE
    try:
        node.mkdir(exist_ok=True)
        (node / "cgroup.procs").write_text(str(os.getpid() if pid is None else pid))
        (folder / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return None
    return Cgroups(folder)


def _own_folder(process: Path) -> Path | None:
    try:
        groups = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in groups if line.startswith("0::")), None)
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        if path is not None and after.startswith("cgroup2 "):
            return Path(before.split()[4]) / path.lstrip("/")
    return None


def _may_use(folder: Path, pid: int) -> bool:
    try:
        controllers = set((folder / "cgroup.controllers").read_text().split())
        processes = (folder / "cgroup.procs").read_text().split()
    except OSError:
        return False
    writable = all(os.access(folder / name, os.W_OK) for name in ("", "cgroup.subtree_control"))
    return writable and controllers >= CONTROLLERS and processes == [str(pid)]


def _count(file: Path, event: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        # The group ended with all that was in it.
        return 0
    return sum(int(line.split()[1]) for line in lines if line.split()[:1] == [event])
