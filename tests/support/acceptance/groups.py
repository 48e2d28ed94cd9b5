"""A server that sees when the last process of a script's group has ended.

Each process of the group holds the same connection, so it closes with the last of them.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

GROUP = """
exec 3<>/dev/tcp/127.0.0.1/$1
echo $PUNCTUAL_RUN_ID >&3
echo begun
(sleep 600 & sleep 600) &
sleep 600
"""
"""A script of four processes in one group. Its argument is the port."""

STUBBORN_GROUP = f"trap '' TERM\n{GROUP}"
"""The same, but only SIGKILL ends it."""


@dataclass
class Groups:
    """The groups that connected, and the times of their ends by the monotonic clock, by run id."""

    port: int
    begun: set[str] = field(default_factory=set)
    ended: dict[str, float] = field(default_factory=dict)

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile() as lines:
            run_id = lines.readline().strip()
            self.begun.add(run_id)
            lines.read()
            self.ended[run_id] = time.monotonic()


@contextmanager
def group_server() -> Iterator[Groups]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        groups = Groups(server.getsockname()[1])
        threading.Thread(target=_accept, args=(server, groups.serve), daemon=True).start()
        try:
            yield groups
        finally:
            server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that so many percent of the values do not exceed.

    >>> percentile([5, 1, 2, 3, 4], 80), percentile([5, 1, 2, 3, 4], 81)
    (4, 5)
    """
    return sorted(values)[-(-len(values) * percent // 100) - 1]
