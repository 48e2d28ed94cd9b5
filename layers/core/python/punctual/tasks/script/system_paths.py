"""The system files that every script may read, and the devices that it may use."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/run/current-system"),
    # Parts of /etc that some systems keep elsewhere: name servers, certificates.
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf"),
    "/var/lib/ca-certificates",
    # The number of processors, the size of memory, and their limits.
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files in /proc that do not describe processes.
MACHINE = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version", "vmstat"),
)
SHARED_MEMORY = "/dev/shm"


@lru_cache(maxsize=64)
def readable(programs: tuple[Path, ...], closed: Path) -> tuple[str, ...]:
    """Return the paths of system folders and programs that a script may read, without `closed`."""
    wanted = [*map(Path, FOLDERS), Path(os.path.realpath("/etc/resolv.conf"))]
    for program in programs:
        wanted += _parts_of(program)
    found = {str(path): None for folder in wanted for path in around(folder, closed)}
    return tuple(found)


def around(folder: Path, closed: Path) -> Iterator[Path]:
    """Yield the folder. If it contains `closed`, yield its parts without `closed` instead."""
    if holds(closed, folder):
        return
    if not holds(folder, closed):
        yield folder
        return
    for entry in sorted(folder.iterdir()):
        if not entry.is_symlink():
            yield from around(entry, closed)


def holds(folder: Path, other: Path) -> bool:
    """Return True if `other` is the folder or inside it, also through links and bind mounts."""
    place = Path(os.path.realpath(other))
    return any(_is_same(folder, above) for above in (place, *place.parents))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _parts_of(program: Path) -> Iterator[Path]:
    """Yield the program's file. For a program in `bin`, yield that folder and its libraries too."""
    yield program
    real = Path(os.path.realpath(program))
    yield real
    if real.parent.name == "bin":
        for name in ("bin", "lib", "lib64"):
            yield real.parent.parent / name
