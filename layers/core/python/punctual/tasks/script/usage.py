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
MIN_FILE_BYTES = 4096


class TooDeepError(Exception):
    """The folder cannot be measured. A path below it is longer than the system allows."""


def descendants(pid: int, max_count: int) -> list[int]:
    """Return the descendants of a process. The search stops after more than `max_count`."""
    pids: list[int] = []
    todo = [pid]
    while todo and len(pids) <= max_count:
        child_pids = children(todo.pop())
        pids += child_pids
        todo += child_pids
    return pids


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    pids: list[int] = []
    for thread in threads:
        data = _read(f"/proc/{pid}/task/{thread}/children")
        if data is None and os.path.exists(f"/proc/{pid}"):
            return _children_by_parent(pid)
        pids += map(int, (data or b"").split())
    return pids


def memory_bytes(pids: list[int], max_bytes: int) -> int:
    """Return the resident memory of processes. Above `max_bytes`, count shared pages once."""
    resident = sum(map(_resident_bytes, pids))
    if resident <= max_bytes:
        return resident
    # This is exact, but reads the page tables of each process.
    return sum(map(_proportional_bytes, pids))


def file_sizes(folder: str) -> Iterator[int]:
    """Yield the size of each file below a folder. There may be very many.

    It opens folders without read permission for their owner, so that a script cannot hide files.
    """
    counted_inodes: set[int] = set()
    todo = [folder]
    while todo:
        for entry in _entries(todo.pop()):
            status = _read_status(entry.path)
            if status is None or (status.st_nlink > 1 and status.st_ino in counted_inodes):
                continue
            if stat.S_ISDIR(status.st_mode):
                todo.append(entry.path)
            elif status.st_nlink > 1:
                counted_inodes.add(status.st_ino)
            yield max(status.st_blocks * BLOCK_BYTES, MIN_FILE_BYTES)


def deleted_file_bytes(pids: list[int]) -> int:
    """Return the size of open files without a name. Files in memory are among them."""
    return sum(_deleted_file_sizes(pids).values())


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        return _list_folder(folder)
    except PermissionError:
        _open_to_owner(folder)
    except OSError as error:
        return _no_entries_or_too_deep(error)
    try:
        return _list_folder(folder)
    except OSError as error:
        return _no_entries_or_too_deep(error)


def _list_folder(folder: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return list(entries)


def _no_entries_or_too_deep(error: OSError) -> list["os.DirEntry[str]"]:
    if error.errno == errno.ENAMETOOLONG:
        raise TooDeepError from error
    return []


def _open_to_owner(folder: str) -> None:
    """Set the mode of a folder. Never follow a link that a script puts in its place."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _read_status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        _no_entries_or_too_deep(error)
        return None


def _deleted_file_sizes(pids: list[int]) -> dict[tuple[int, int], int]:
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                status = os.stat(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                sizes[status.st_dev, status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sizes


def _resident_bytes(pid: int) -> int:
    fields = (_read(f"/proc/{pid}/statm") or b"").split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def _proportional_bytes(pid: int) -> int:
    for line in (_read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    # For a process that is not dumpable, only `statm` is readable.
    return _resident_bytes(pid)


def _children_by_parent(parent: int) -> list[int]:
    """Return the children by a search over all processes. Some kernels do not list children."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [int(name) for name in names if parent_of(name) == parent]


def parent_of(pid: str) -> int:
    try:
        # The name in brackets may itself contain brackets.
        return int((_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()[1])
    except IndexError:
        return 0


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
