"""Identify a script's process group, also after the system reused its number."""

import calendar
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_STAT_FIELDS_BEFORE_START = 19


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group. `start_time` is the leader's, in the system's unit, or 0 if unknown."""

    pid: int
    pgid: int
    start_time: int


def group_of(pid: int) -> ProcessGroup:
    return ProcessGroup(pid, pid, start_time_of(pid))


def start_time_of(pid: int) -> int:
    """Return the start time of a process, or 0 if it does not exist.

    The unit is ticks since boot on Linux, and seconds elsewhere.
    """
    return _start_time_by_proc(pid) if sys.platform == "linux" else start_time_by_ps(pid)


def start_time_by_ps(pid: int) -> int:
    result = subprocess.run(
        ["/bin/ps", "-o", "lstart=", "-p", str(pid)],
        env={"LC_ALL": "C", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    text = " ".join(result.stdout.decode().split())
    return calendar.timegm(time.strptime(text, "%a %b %d %H:%M:%S %Y")) if text else 0


def kill_leftover_group(pgid: int, start_time: int) -> bool:
    """Kill the group if its leader is still the recorded process. Return True if it was killed."""
    if pgid <= 1 or start_time <= 0 or start_time_of(pgid) != start_time:
        return False
    return kill_group(pgid)


def kill_group(pgid: int) -> bool:
    try:
        os.killpg(pgid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _start_time_by_proc(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # The second field is the name in brackets. The name may itself contain brackets.
    return int(stat.rpartition(b")")[2].split()[_STAT_FIELDS_BEFORE_START])
