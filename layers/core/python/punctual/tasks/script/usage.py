"""Measure the processes of a run, their memory, and the size of its folder.

The launcher reads /proc. Processes come and go during the measurement, so a missing file counts
as zero.
"""

import errno
import os
import stat
from collections.abc import Iterator

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES = 512
# The cost of a file itself. It also limits the number of empty files.
LEAST_BYTES_OF_A_FILE = 4096


class TooDeepError(Exception):
    """The folder cannot be measured. A path below it is longer than the system allows."""


def descendants(pid: int, most: int) -> list[int]:
    """Return the descendants of a process. The search stops after more than `most` of them."""
    found: list[int] = []
    todo = [pid]
    while todo and len(found) <= most:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        listed = _read(f"/proc/{pid}/task/{thread}/children")
        if listed is None and os.path.exists(f"/proc/{pid}"):
            return _children_by_parent(pid)
        found += map(int, (listed or b"").split())
    return found


def memory_bytes(pids: list[int], most: int) -> int:
    """Return the resident memory of processes. If it exceeds `most`, count shared pages once."""
    resident = sum(map(_resident, pids))
    if resident <= most:
        return resident
    # This is exact, but reads the page tables of each process.
    return sum(map(_proportional, pids))


def sizes(folder: str) -> Iterator[int]:
    """Yield the size of each file below a folder. There may be very many.

    It opens folders without read permission for their owner, so that a script cannot hide files.
    """
    linked: set[int] = set()
    todo = [folder]
    while todo:
        for entry in _entries(todo.pop()):
            found = _stat(entry.path)
            if found is None or (found.st_nlink > 1 and found.st_ino in linked):
                continue
            if stat.S_ISDIR(found.st_mode):
                todo.append(entry.path)
            elif found.st_nlink > 1:
                linked.add(found.st_ino)
            yield max(found.st_blocks * BLOCK_BYTES, LEAST_BYTES_OF_A_FILE)


def deleted_bytes(pids: list[int]) -> int:
    """Return the size of open files without a name. Files in memory are among them."""
    return sum(_deleted(pids).values())


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        return _listed(folder)
    except PermissionError:
        _open_to_owner(folder)
    except OSError as error:
        return _gone_or_too_deep(error)
    try:
        return _listed(folder)
    except OSError as error:
        return _gone_or_too_deep(error)


def _listed(folder: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return list(entries)


def _gone_or_too_deep(error: OSError) -> list["os.DirEntry[str]"]:
    if error.errno == errno.ENAMETOOLONG:
        raise TooDeepError from error
    return []


def _open_to_owner(folder: str) -> None:
    """Set the mode of a folder. Never follow a link that a script puts in its place."""
    try:
        place = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
    except OSError:
        return
    finally:
        os.close(place)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        _gone_or_too_deep(error)
        return None


def _deleted(pids: list[int]) -> dict[tuple[int, int], int]:
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                found = os.stat(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                sizes[found.st_dev, found.st_ino] = found.st_blocks * BLOCK_BYTES
    return sizes


def _resident(pid: int) -> int:
    fields = (_read(f"/proc/{pid}/statm") or b"").split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def _proportional(pid: int) -> int:
    for line in (_read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    # For a process that is not dumpable, only `statm` is readable.
    return _resident(pid)


def _children_by_parent(parent: int) -> list[int]:
    """Return the children by a search over all processes, for kernels that do not list children."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [int(number) for number in numbers if parent_of(number) == parent]


def parent_of(number: str) -> int:
    try:
        # The name in brackets may itself contain brackets.
        return int((_read(f"/proc/{number}/stat") or b"").rpartition(b")")[2].split()[1])
    except IndexError:
        return 0


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
