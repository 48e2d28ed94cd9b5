"""The files of a system that every script may read, and the devices it may use."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/run/current-system"),
    # The parts of /etc that systems keep elsewhere: name servers, certificates.
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf"),
    "/var/lib/ca-certificates",
    # How many processors and how much memory there is, and is allowed.
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Below /proc, without the processes of others.
MACHINE = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version", "vmstat"),
)
SHARED_MEMORY = "/dev/shm"


@lru_cache(maxsize=64)
def readable(programs: tuple[Path, ...], closed: Path) -> tuple[str, ...]:
    """Return what a script may read: the system's folders and its programs, `closed` aside."""
    wanted = [*map(Path, FOLDERS), Path(os.path.realpath("/etc/resolv.conf"))]
    for program in programs:
        wanted += _parts_of(program)
    found = {str(path): None for folder in wanted for path in around(folder, closed)}
    return tuple(found)


def around(folder: Path, closed: Path) -> Iterator[Path]:
    """Yield the folder; if `closed` lies in it, what lies beside the way to `closed`."""
    if holds(closed, folder):
        return
    if not holds(folder, closed):
        yield folder
        return
    for entry in sorted(folder.iterdir()):
        if not entry.is_symlink():
            yield from around(entry, closed)


def holds(folder: Path, other: Path) -> bool:
    """Whether `other` is the folder or lies in it, by whatever name and mount."""
    place = Path(os.path.realpath(other))
    return any(_is_same(folder, above) for above in (place, *place.parents))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _parts_of(program: Path) -> Iterator[Path]:
    """The program's file; where it stands in a `bin`, that folder and the libraries beside it."""
    yield program
    real = Path(os.path.realpath(program))
    yield real
    if real.parent.name == "bin":
        for name in ("bin", "lib", "lib64"):
            yield real.parent.parent / name
