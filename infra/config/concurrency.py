"""Concurrent executions that a stage reserves, and the percentage that scales them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

MAX_STARTS_PER_SECOND = 10
"""Lambda starts at most ten invocations a second for each reserved execution."""

API_FUNCTIONS = ("authorizer", "job-service", "job-search")
CLAIM_FUNCTIONS = ("claims",)
FUNCTIONS_BY_RATE = {"throttle.rate": API_FUNCTIONS, "claimThrottle.rate": CLAIM_FUNCTIONS}
"""The functions that each setting of a rate feeds."""

BUSY_STREAM_SHARDS = 30
"""Shards that the stream of a busy table has. Lambda reads all of them at the same time."""

STREAM_BATCH_SIZE = 200  # changes of job states in a batch of `status`
STREAM_WINDOW_SECONDS = 1  # how long Lambda collects a batch that is not full
MAX_STATUS_BATCHES = 4
"""The maximum number of batches of one shard that `status` processes at a time."""

# The bounds of AWS for the maximum concurrency of an event source.
MIN_QUEUE_CONCURRENCY, MAX_QUEUE_CONCURRENCY = 2, 1_000
STATUS_FUNCTION = "status"
QUEUE_FUNCTIONS = ("poller", "operations")  # each has one queue; an executor has several

MIN_CONCURRENCY_PERCENT, MAX_CONCURRENCY_PERCENT = 10, 400

MAX_OPERATIONS_PER_SECOND = 900
"""Operations then write half of what a new table takes: 4,000 units a second. A cancel writes most,
two units of the table of jobs for each job (docs/cost.md)."""

MAX_OPERATIONS_PER_LIST_SLOT = 500
"""Half of the write units a second of a partition. A job has one row in a slot of the list."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """`places` and `reservations` come from cdk.json; `percent` scales both."""

    percent: int
    lane_executors: Mapping[str, Mapping[str, int]]  # by lane and queue
    reservations: Mapping[str, int]  # by function

    @property
    def lanes(self) -> dict[str, dict[str, int]]:
        return {
            lane: {
                queue: max(MIN_QUEUE_CONCURRENCY, self._scale(executors))
                for queue, executors in queues.items()
            }
            for lane, queues in self.lane_executors.items()
        }

    @property
    def reserved(self) -> dict[str, int]:
        return {
            name: max(-(-number * self.percent // 100), min(number, self._minimum(name)))
            for name, number in self.reservations.items()
        }

    @property
    def total_reserved(self) -> int:
        """Return the sum of the reserved executions of the stage.

        >>> Concurrency(50, {}, {"poller": 3, "status": 40}).total_reserved
        32
        """
        return sum(self.reserved.values())

    @property
    def status_batches(self) -> int:
        """Return the parallelization factor of the stream: concurrent batches of one shard."""
        reserved = self.reserved.get(STATUS_FUNCTION, 0)
        return min(MAX_STATUS_BATCHES, max(1, reserved // BUSY_STREAM_SHARDS))

    def largest_fitting(self, free_executions: int) -> "Concurrency | None":
        """Return the largest scale up to the present one that fits into `free_executions`."""
        for percent in range(self.percent, MIN_CONCURRENCY_PERCENT - 1, -1):
            scaled = replace(self, percent=percent)
            if scaled.total_reserved <= free_executions:
                return scaled
        return None

    def scaled_rate(self, requests: int) -> int:
        """Return requests a second, scaled like the functions that answer them."""
        return max(1, self._scale(requests))

    def _scale(self, number: int) -> int:
        return number * self.percent // 100

    def _minimum(self, name: str) -> int:
        """Return the executions of a function that the smallest stage needs."""
        if name == STATUS_FUNCTION:
            return BUSY_STREAM_SHARDS
        queues = self.lane_executors.get(name.removeprefix("executor-"), {})
        return MIN_QUEUE_CONCURRENCY * len(queues) or (
            MIN_QUEUE_CONCURRENCY if name in QUEUE_FUNCTIONS else 1
        )


def too_fast_operations(operations_per_second: int, list_slots: int) -> list[str]:
    """Return a message if operations leave less than half of the tables for due work.

    >>> too_fast_operations(500, 1)
    []
    >>> too_fast_operations(501, 1)
    ['`operationsPerSecond` must be at most 500 with `listSlots` 1; got 501']
    """
    maximum = min(MAX_OPERATIONS_PER_SECOND, MAX_OPERATIONS_PER_LIST_SLOT * list_slots)
    if operations_per_second <= maximum:
        return []
    text = f"`operationsPerSecond` must be at most {maximum} with `listSlots` {list_slots}"
    return [f"{text}; got {operations_per_second}"]


def too_large_lanes(concurrency: Concurrency) -> list[str]:
    """Return a message for each queue with more executions than an event source may have."""
    return [
        f"`lanes.{lane}.{queue}` must be at most {MAX_QUEUE_CONCURRENCY}; got {executors} "
        f"with `concurrencyPercent` {concurrency.percent}"
        for lane, queues in concurrency.lanes.items()
        for queue, executors in queues.items()
        if executors > MAX_QUEUE_CONCURRENCY
    ]


def too_small_reservations(concurrency: Concurrency, rates: Mapping[str, int]) -> list[str]:
    """Return a message for each reservation that is too small. `rates` are the stage's settings."""
    minimums = {
        f"executor-{lane}": (sum(queues.values()), "that its queues need")
        for lane, queues in concurrency.lanes.items()
    }
    minimums |= dict.fromkeys(QUEUE_FUNCTIONS, (MIN_QUEUE_CONCURRENCY, "that its queues need"))
    minimums[STATUS_FUNCTION] = (BUSY_STREAM_SHARDS, "shards of the stream of a busy table")
    for setting, rate in rates.items():
        reason = f"that `{setting}` needs: Lambda starts {MAX_STARTS_PER_SECOND} a second for each"
        needed = -(-rate // MAX_STARTS_PER_SECOND)
        minimums |= dict.fromkeys(FUNCTIONS_BY_RATE[setting], (needed, reason))
    reserved = concurrency.reserved
    return [
        f"`reservedConcurrency.{name}` must be at least the {minimum} {reason}"
        for name, (minimum, reason) in minimums.items()
        if reserved.get(name, minimum) < minimum
    ]
