"""Limits of the runners of tasks. `domain/task_limits.py` has those that requests share."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MAX_ANSWER_BYTES = 1024 * 1024
RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

MAX_OUTPUT_BYTES = 10 * 1024 * 1024
MAX_LOG_BYTES = 10 * 1024 * 1024
STDERR_TAIL_BYTES = 2 * 1024
DEFAULT_MEMORY_MB = 512
SCRIPT_MEMORY_VARIABLE = "PUNCTUAL_SCRIPT_MEMORY_MB"
RUNNER_MEMORY_MB = 128
"""The memory of the runner itself. A function or a container has this on top of a script's."""

MAX_RUN_DISK_BYTES = 1024**3
MAX_RUN_PROCESSES = 256

SCRIPT_FUNCTIONS = {
    "python": "script-python",
    "node": "script-node",
    "bash": "script-bash",
    "binary": "script-bash",
}
"""On AWS the function that runs a script, by runtime."""

DEFAULT_DETAIL_TYPE = "Job Run"
# The detail types of the scheduler's own events. The last one stops tasks of ECS.
RESERVED_DETAIL_TYPES = ("Job State Change", "Run State Change", "Container Stop Requested")


def script_memory_mb(task: Mapping[str, Any]) -> int:
    """Return the megabytes that a task may use if it is a script, or 0.

    >>> script_memory_mb({"type": "script"}), script_memory_mb({"type": "http"})
    (512, 0)
    """
    if task.get("type") != "script":
        return 0
    memory_mb: int | None = (task.get("resources") or {}).get("memory_mb")
    return DEFAULT_MEMORY_MB if memory_mb is None else memory_mb


def memory_problems(task: Mapping[str, Any], total_mb: int) -> Iterator[tuple[str, str]]:
    """Yield the field and the problem of a script that can never fit into `total_mb` of a node."""
    requested_mb = script_memory_mb(task)
    if requested_mb > total_mb:
        is_default = (task.get("resources") or {}).get("memory_mb") is None
        yield (
            "resources.memory_mb",
            f"must be at most {total_mb}, the megabytes of all scripts of this node "
            f"({SCRIPT_MEMORY_VARIABLE}); got {requested_mb}{', the default' * is_default}",
        )


class RunLimits(NamedTuple):
    """The resources that one script run may use at the same time."""

    memory_bytes: int = DEFAULT_MEMORY_MB * 1024 * 1024
    disk_bytes: int = MAX_RUN_DISK_BYTES
    processes: int = MAX_RUN_PROCESSES
