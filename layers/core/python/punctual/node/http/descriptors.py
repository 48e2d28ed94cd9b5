"""Open files of the node's process: connections leave those that runs need."""

import resource
from contextlib import suppress

from punctual.node.http.protocol import MAX_CONNECTIONS

PER_RUN = (
    16  # a script's pipes and files, or an http task's socket, its name's look-up and its output
)
OF_THE_NODE = 200  # database, logs, event loop, and 100 idle connections of http tasks
MIN_CONNECTIONS = 16
# A run's process inherits the limit, and some programs close each number up to it.
MAX_LIMIT = 65_536


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one where the system lets us; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_LIMIT if soft == resource.RLIM_INFINITY else soft


def connections_within(limit: int, runs: int) -> int:
    """How many connections leave open files for so many runs at once; 0 where none do.

    >>> connections_within(65_536, 48), connections_within(1_024, 48), connections_within(256, 48)
    (1000, 56, 0)
    """
    left = limit - OF_THE_NODE - runs * PER_RUN
    return min(MAX_CONNECTIONS, left) if left >= MIN_CONNECTIONS else 0


def least_limit(runs: int) -> int:
    """The lowest limit of open files with which the node starts."""
    return OF_THE_NODE + runs * PER_RUN + MIN_CONNECTIONS
