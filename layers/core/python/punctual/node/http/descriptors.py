"""The limit of open files of the node's process. Runs have their share before connections."""

import resource
from contextlib import suppress

from punctual.node.http.protocol import MAX_CONNECTIONS

# A script's pipes and files, or an http task's socket, name lookup and output.
OPEN_FILES_PER_RUN = 16
OPEN_FILES_OF_NODE = 200  # database, logs, event loop, and 100 idle connections of http tasks
MIN_CONNECTIONS = 16
# A run's process inherits the limit. Some programs close every number up to it.
MAX_RAISED_FILE_LIMIT = 65_536


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit if the system allows it.

    Return the limit in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = (
        MAX_RAISED_FILE_LIMIT
        if hard == resource.RLIM_INFINITY
        else min(hard, MAX_RAISED_FILE_LIMIT)
    )
    if soft != resource.RLIM_INFINITY and soft < target:
        with suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_RAISED_FILE_LIMIT if soft == resource.RLIM_INFINITY else soft


def max_connections_within(limit: int, runs: int) -> int:
    """Return how many connections fit beside `runs` concurrent runs, or 0 if too few do.

    >>> [max_connections_within(limit, 48) for limit in (65_536, 1_024, 256)]
    [1000, 56, 0]
    """
    free_files = limit - OPEN_FILES_OF_NODE - runs * OPEN_FILES_PER_RUN
    return min(MAX_CONNECTIONS, free_files) if free_files >= MIN_CONNECTIONS else 0


def min_file_limit(runs: int) -> int:
    """Return the lowest limit of open files with which the node starts."""
    return OPEN_FILES_OF_NODE + runs * OPEN_FILES_PER_RUN + MIN_CONNECTIONS
