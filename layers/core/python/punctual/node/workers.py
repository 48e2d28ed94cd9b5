"""Threads that run tasks. The work reports its end through a callback and shares nothing else."""

import threading
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class Workers:
    """At most `size` threads of one lane.

    Threads are created on demand and then wait for more work.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self.size = size
        self._condition = threading.Condition()
        self._work: deque[Work] = deque()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.busy = 0

    @property
    def free(self) -> int:
        with self._condition:
            return self.size - self.busy

    def start(self, work: Work) -> None:
        with self._condition:
            self.busy += 1
            self._work.append(work)
            if self._idle < len(self._work) and len(self._threads) < self.size:
                thread = threading.Thread(
                    target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._condition.notify()

    def _serve(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                while not self._work and not self._closed:
                    self._condition.wait()
                self._idle -= 1
                if not self._work:
                    return
                work = self._work.popleft()
            try:
                work()
            finally:
                with self._condition:
                    self.busy -= 1

    def close(self, seconds: float = 0) -> None:
        """Accept no more work. Wait at most `seconds` for each thread."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join(seconds)
