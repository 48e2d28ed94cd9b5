"""The memory of the node's scripts: its total, and the part that each running script reserves."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from punctual.engine.execution.executor import Assignment
from punctual.tasks.limits import DEFAULT_MEMORY_MB, script_memory_mb

MEGABYTE_BYTES = 1024 * 1024
MEMORY_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")  # of a container
SCRIPT_MEMORY_LIMIT = "script_memory_mb"  # its name in `GET /stats`

UNLIMITED_MEMORY_MB = sys.maxsize

Claim = tuple[str, int]  # the run and its fencing token


class ScriptMemory:
    """Counts the megabytes that running scripts reserve. The sum never exceeds `total_mb`.

    It is kept in memory alone: a node that starts ends all scripts of its predecessor first. A
    rolled back transaction reserves nothing.
    """

    def __init__(self, total_mb: int) -> None:
        self.total_mb = total_mb
        self._reserved_mb: dict[Claim, int] = {}
        self._new_claims: list[Claim] = []  # of this transaction
        self.used_mb = 0

    @property
    def free_mb(self) -> int:
        return self.total_mb - self.used_mb

    def needed_mb(self, requested_mb: int) -> int:
        """Return what a run reserves. A run that can never fit reserves nothing, and fails."""
        return 0 if requested_mb > self.total_mb else requested_mb

    def reserve(self, run_id: str, token: int, requested_mb: int) -> None:
        claim, memory_mb = (run_id, token), self.needed_mb(requested_mb)
        if memory_mb and claim not in self._reserved_mb:
            self._reserved_mb[claim] = memory_mb
            self._new_claims.append(claim)
            self.used_mb += memory_mb

    def reserve_for(self, assignments: Iterable[Assignment]) -> None:
        """Reserve the memory of claimed runs."""
        for assignment in assignments:
            task = assignment.definition.document.get("task") or {}
            self.reserve(assignment.run.run_id, assignment.run.token, script_memory_mb(task))

    def release(self, run_id: str, token: int) -> None:
        self.used_mb -= self._reserved_mb.pop((run_id, token), 0)

    def on_commit(self) -> None:
        self._new_claims.clear()

    def on_rollback(self) -> None:
        for claim in self._new_claims:
            self.release(*claim)
        self._new_claims.clear()

    def limit(self) -> Mapping[str, Any]:
        """Return the total and what is reserved of it, as `GET /stats` shows them."""
        return {"limit": SCRIPT_MEMORY_LIMIT, "allowed": self.total_mb, "used": self.used_mb}


def default_total_mb(
    machine_bytes: Callable[[], int] | None = None, limit_file: Path = MEMORY_LIMIT_FILE
) -> int:
    """Return half of the memory of the machine or container, but at least one script's default."""
    total_bytes = (machine_bytes or _machine_bytes)()
    with suppress(OSError, ValueError):  # no such file, or the text "max"
        total_bytes = min(total_bytes, int(limit_file.read_text()))
    return max(DEFAULT_MEMORY_MB, total_bytes // MEGABYTE_BYTES // 2)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
