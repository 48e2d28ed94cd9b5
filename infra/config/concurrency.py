"""Concurrent executions that a stage reserves, and the percentage that scales them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

CALLS_A_SECOND = 10
"""Lambda starts at most ten invocations a second for each reserved execution."""

API_FUNCTIONS = ("authorizer", "job-service", "job-search")

STATUS_SHARDS = 30
"""Shards that the stream of a busy table has. Lambda reads all of them at the same time."""

STATUS_BATCHES = 4
"""The maximum number of batches of one shard that `status` processes at a time."""

# The bounds of AWS for the maximum concurrency of an event source.
QUEUE_LEAST, QUEUE_MOST = 2, 1_000
STATUS_NAME, POLLER_NAME = "status", "poller"

PERCENT_LEAST, PERCENT_MOST = 10, 400


@dataclass(frozen=True, slots=True)
class Concurrency:
    """`places` and `reservations` come from cdk.json; `percent` scales both."""

    percent: int
    places: Mapping[str, Mapping[str, int]]  # by lane and queue
    reservations: Mapping[str, int]  # by function

    @property
    def lanes(self) -> dict[str, dict[str, int]]:
        return {
            lane: {queue: max(QUEUE_LEAST, self._share(places)) for queue, places in queues.items()}
            for lane, queues in self.places.items()
        }

    @property
    def reserved(self) -> dict[str, int]:
        return {
            name: max(-(-number * self.percent // 100), min(number, self._least(name)))
            for name, number in self.reservations.items()
        }

    @property
    def total(self) -> int:
        """Return the sum of the reserved executions of the stage.

        >>> Concurrency(50, {}, {"poller": 3, "status": 40}).total
        32
        """
        return sum(self.reserved.values())

    @property
    def status_batches(self) -> int:
        """Return the parallelization factor of the stream: concurrent batches of one shard."""
        reserved = self.reserved.get(STATUS_NAME, 0)
        return min(STATUS_BATCHES, max(1, reserved // STATUS_SHARDS))

    def fitting(self, free: int) -> "Concurrency | None":
        """Return the largest scale up to the present one that fits into `free` executions."""
        for percent in range(self.percent, PERCENT_LEAST - 1, -1):
            scaled = replace(self, percent=percent)
            if scaled.total <= free:
                return scaled
        return None

    def rate(self, requests: int) -> int:
        """Return requests a second, scaled like the functions that answer them."""
        return max(1, self._share(requests))

    def _share(self, number: int) -> int:
        return number * self.percent // 100

    def _least(self, name: str) -> int:
        """Return the executions of a function that the smallest stage needs."""
        if name == STATUS_NAME:
            return STATUS_SHARDS
        queues = self.places.get(name.removeprefix("executor-"), {})
        return QUEUE_LEAST * len(queues) or (QUEUE_LEAST if name == POLLER_NAME else 1)


def too_many(concurrency: Concurrency) -> list[str]:
    """Return a message for each queue with more executions than an event source may have."""
    return [
        f"`lanes.{lane}.{queue}` must be at most {QUEUE_MOST}, and is {places} "
        f"with `concurrencyPercent` {concurrency.percent}"
        for lane, queues in concurrency.lanes.items()
        for queue, places in queues.items()
        if places > QUEUE_MOST
    ]


def too_few(concurrency: Concurrency, rate: int) -> list[str]:
    """Return a message for each reservation that is too small."""
    least = {
        f"executor-{lane}": (sum(queues.values()), "that its queues ask for")
        for lane, queues in concurrency.lanes.items()
    }
    least[POLLER_NAME] = (QUEUE_LEAST, "that its queues ask for")
    least[STATUS_NAME] = (STATUS_SHARDS, "shards that the stream of a busy table has")
    for name in API_FUNCTIONS:
        answered = -(-rate // CALLS_A_SECOND)
        least[name] = (
            answered,
            f"that `throttle.rate` asks for: Lambda starts {CALLS_A_SECOND} a second for each",
        )
    reserved = concurrency.reserved
    return [
        f"`reservedConcurrency.{name}` must be at least the {most} {why}"
        for name, (most, why) in least.items()
        if reserved.get(name, most) < most
    ]
