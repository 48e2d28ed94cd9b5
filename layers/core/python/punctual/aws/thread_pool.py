"""Parallel calls, because DynamoDB takes conditional writes one by one."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import TypeVar

from punctual.domain.errors import Unavailable

A = TypeVar("A")
B = TypeVar("B")


class ThreadPool:
    """A thread pool, created with the first batch. Work must not call `map` of the same pool."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: Executor | None = None

    def map(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """Return the results in order.

        A failure is raised after all items are done, so no work continues after the return.
        """
        all_items: Sequence[A] = list(items)
        if self._size <= 1 or len(all_items) <= 1:
            return _map_sequentially(work, all_items)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="aws")
        futures = [self._threads.submit(work, item) for item in all_items]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def _map_sequentially(work: Callable[[A], B], items: Sequence[A]) -> list[B]:
    results: list[B] = []
    failure: Unavailable | None = None
    for item in items:
        try:
            results.append(work(item))
        except Unavailable as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results
