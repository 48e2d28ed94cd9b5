"""Control groups (version 2): the kernel enforces the memory and process limits of a run.

They are used where the node may write its own group. This is a service with `Delegate=yes`, or
a container with a group of its own. Elsewhere the launcher measures the usage of the run.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from punctual.tasks.limits import RunLimits
from punctual.tasks.script.open_files import is_file_limit

REQUIRED_CONTROLLERS = frozenset({"memory", "pids"})
NODE_GROUP_NAME = "punctual-node"
RUN_GROUP_PREFIX = "punctual-run-"
# Allowance for the launcher and bubblewrap, on top of the run's limits.
LAUNCHER_BYTES = 32 * 1024 * 1024
LAUNCHER_PROCESSES = 3


class Cgroup:
    """The control group of one run. Its launcher enters it before the script starts."""

    def __init__(self, folder: Path, limits: RunLimits) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._write("memory.max", limits.memory_bytes + LAUNCHER_BYTES)
        self._write("memory.swap.max", 0)
        self._write("memory.oom.group", 1)
        self._write("pids.max", limits.processes + LAUNCHER_PROCESSES)

    def enter(self, pid: int) -> None:
        self._write("cgroup.procs", pid)

    def exceeded_limit(self) -> str:
        """Return the limit that the kernel enforced against the run, or an empty string."""
        if _count_events(self._folder / "memory.events", "oom_kill"):
            return "memory"
        return "processes" if _count_events(self._folder / "pids.events", "max") else ""

    def _write(self, name: str, value: int) -> None:
        try:
            (self._folder / name).write_text(str(value))
        except FileNotFoundError:
            # Kernels without swap accounting do not have this file.
            if name != "memory.swap.max":
                raise


class Cgroups:
    """Creates a control group for each run, beside the group of the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending_folders: dict[Path, bool] = {}  # True if the group was killed

    @contextmanager
    def for_run(self, run_id: str, limits: RunLimits) -> Iterator[Cgroup]:
        folder = self._folder / f"{RUN_GROUP_PREFIX}{run_id}"
        try:
            yield Cgroup(folder, limits)
        finally:
            self._kill_and_delete([folder])

    def kill_leftovers(self) -> int:
        """Kill the groups that a previous node left. Return their number."""
        folders = list(self._folder.glob(f"{RUN_GROUP_PREFIX}*"))
        self._kill_and_delete(folders)
        return len(folders)

    def _kill_and_delete(self, folders: Iterable[Path]) -> None:
        """Kill the processes in these groups. Delete all ended groups that are empty by now."""
        self._ending_folders.update((folder, False) for folder in folders)
        for folder, was_killed in list(self._ending_folders.items()):
            self._ending_folders[folder] = was_killed or _kill_processes(folder)
            if _delete_group(folder):
                self._ending_folders.pop(folder, None)


def _kill_processes(folder: Path) -> bool:
    """Kill the processes in a group. Return False if the caller must try again."""
    try:
        (folder / "cgroup.kill").write_text("1")
    except FileNotFoundError:
        return True  # the group is deleted, or Linux is older than 5.14
    except OSError as error:
        if not is_file_limit(error):
            raise
        return False
    return True


def _delete_group(folder: Path) -> bool:
    """Delete the group. Return False while killed processes in it are still exiting."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def find_cgroups(process: Path = Path("/proc/self"), pid: int | None = None) -> Cgroups | None:
    """Return the `Cgroups` of this process, or None if it may not create groups.

    The kernel does not allow processes in a group that distributes limits. So the node moves into
    a child group.
    """
    folder = _own_folder(process)
    if folder is None or not _is_usable(folder, os.getpid() if pid is None else pid):
        return None
    node_folder = folder / NODE_GROUP_NAME
    try:
        node_folder.mkdir(exist_ok=True)
        (node_folder / "cgroup.procs").write_text(str(os.getpid() if pid is None else pid))
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
        mount_fields, _, filesystem_fields = mount.partition(" - ")
        if path is not None and filesystem_fields.startswith("cgroup2 "):
            return Path(mount_fields.split()[4]) / path.lstrip("/")
    return None


def _is_usable(folder: Path, pid: int) -> bool:
    try:
        controllers = set((folder / "cgroup.controllers").read_text().split())
        processes = (folder / "cgroup.procs").read_text().split()
    except OSError:
        return False
    writable = all(os.access(folder / name, os.W_OK) for name in ("", "cgroup.subtree_control"))
    return writable and controllers >= REQUIRED_CONTROLLERS and processes == [str(pid)]


def _count_events(file: Path, event: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        # The group is deleted already.
        return 0
    return sum(int(line.split()[1]) for line in lines if line.split()[:1] == [event])
