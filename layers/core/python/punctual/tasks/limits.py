"""Limits of the runners of tasks. `domain/task_limits.py` has those that requests share."""

from typing import NamedTuple

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


class RunLimits(NamedTuple):
    """The resources that one script run may use at the same time."""

    memory_bytes: int = DEFAULT_MEMORY_MB * 1024 * 1024
    disk_bytes: int = MAX_RUN_DISK_BYTES
    processes: int = MAX_RUN_PROCESSES
