"""The system files that every script may read, and the devices that it may use."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/run/current-system"),
    # Parts of /etc that some systems keep elsewhere: name servers, certificates.
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf"),
    "/var/lib/ca-certificates",
    # The number of processors, the size of memory, and their limits.
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
DEVICE_PATHS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files in /proc that do not describe processes.
MACHINE_PROC_FILES = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version", "vmstat"),
)
SHARED_MEMORY_FOLDER = "/dev/shm"


@lru_cache(maxsize=64)
def readable_paths(programs: tuple[Path, ...], closed_folder: Path) -> tuple[str, ...]:
    """Return the system folders and programs that a script may read, without `closed_folder`."""
    folders = [*map(Path, SYSTEM_FOLDERS), Path(os.path.realpath("/etc/resolv.conf"))]
    for program in programs:
        folders += _program_paths(program)
    paths = {str(path): None for folder in folders for path in parts_without(folder, closed_folder)}
    return tuple(paths)


def parts_without(folder: Path, closed_folder: Path) -> Iterator[Path]:
    """Yield the folder, or its parts without `closed_folder` if it contains that folder."""
    if contains(closed_folder, folder):
        return
    if not contains(folder, closed_folder):
        yield folder
        return
    for entry in sorted(folder.iterdir()):
        if not entry.is_symlink():
            yield from parts_without(entry, closed_folder)


def contains(folder: Path, other: Path) -> bool:
    """Return True if `other` is the folder or inside it, also through links and bind mounts."""
    real_path = Path(os.path.realpath(other))
    return any(_is_same(folder, parent) for parent in (real_path, *real_path.parents))


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False


def _program_paths(program: Path) -> Iterator[Path]:
    """Yield the program's file. For a program in `bin`, yield that folder and its libraries too."""
    yield program
    real_path = Path(os.path.realpath(program))
    yield real_path
    if real_path.parent.name == "bin":
        for name in ("bin", "lib", "lib64"):
            yield real_path.parent.parent / name
