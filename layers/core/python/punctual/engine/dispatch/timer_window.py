"""The timers of some partitions, soonest first, read page by page to bound the memory."""

import heapq
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.timers import Timer, Timers

TIMER_WINDOW_PAGE_SIZE = 2_000


class _ReadPosition:
    """The position in a partition. Timers before `read_until_at` are in the heap or consumed."""

    __slots__ = ("cursor", "is_complete", "read_until_at")

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.read_until_at: datetime | None = None
        self.is_complete = False


class TimerWindow:
    """A heap of timers. It knows each timer until `forget`."""

    def __init__(self, timers: Timers, page_size: int = TIMER_WINDOW_PAGE_SIZE) -> None:
        self._timers = timers
        self._page_size = page_size
        self._positions: dict[TimerPartition, _ReadPosition] = {}
        self._heap: list[tuple[tuple[datetime, str, str, int], Timer]] = []
        self._known_timers: set[Timer] = set()
        # Number of known timers by partition.
        self._timer_counts: Counter[TimerPartition] = Counter()

    @property
    def partitions(self) -> Sequence[TimerPartition]:
        return list(self._positions)

    def __len__(self) -> int:
        return len(self._heap)

    def add_partition(self, partition: TimerPartition) -> None:
        if partition not in self._positions:
            self._positions[partition] = _ReadPosition()

    def remove_partition(self, partition: TimerPartition) -> None:
        self._positions.pop(partition, None)
        if not self._timer_counts[partition]:
            del self._timer_counts[partition]

    def has_timers(self, partition: TimerPartition) -> bool:
        """Return True if the partition has known timers that are not consumed."""
        return self._timer_counts[partition] > 0

    def reread(self, partition: TimerPartition) -> None:
        """Read the partition from its start again. Known timers are not taken twice."""
        if partition in self._positions:
            self._positions[partition] = _ReadPosition()

    def add_timers(self, timers: Sequence[Timer]) -> None:
        """Add new timers, except those that a later page returns anyway."""
        for timer in timers:
            partition = TimerPartition(timer.bucket, timer.shard)
            position = self._positions.get(partition)
            if position is None:
                continue
            if position.is_complete or (
                position.read_until_at and timer.at < position.read_until_at
            ):
                self._push(timer)
            elif timer.at == position.read_until_at:  # before or after the cursor
                if len(self._heap) < self._page_size:
                    self._push(timer)
                else:
                    self.reread(partition)

    def fill(self) -> None:
        """Read pages while there is room, the earliest partition first."""
        for partition in sorted(self._positions):
            position = self._positions[partition]
            while not position.is_complete and len(self._heap) < self._page_size:
                self._read_page(partition, position)

    def _read_page(self, partition: TimerPartition, position: _ReadPosition) -> None:
        page = self._timers.due(
            partition.bucket,
            partition.shard,
            datetime.max.replace(tzinfo=partition.bucket.tzinfo),
            position.cursor,
            self._page_size,
        )
        for timer in page.timers:
            self._push(timer)
        if page.timers:
            position.read_until_at = page.timers[-1].at
        position.cursor, position.is_complete = page.cursor, page.cursor is None

    def _push(self, timer: Timer) -> None:
        if timer not in self._known_timers:
            self._known_timers.add(timer)
            self._timer_counts[TimerPartition(timer.bucket, timer.shard)] += 1
            heapq.heappush(self._heap, (timer.sort_key, timer))

    def take(self, until: datetime, limit: int) -> list[Timer]:
        """Take the soonest timers that are due by `until`. They stay known until `forget`."""
        timers: list[Timer] = []
        while self._heap and len(timers) < limit and self._heap[0][1].at <= until:
            timers.append(heapq.heappop(self._heap)[1])
        return timers

    def put_back(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            heapq.heappush(self._heap, (timer.sort_key, timer))

    def forget(self, timers: Sequence[Timer]) -> None:
        known_timers = self._known_timers.intersection(timers)
        self._known_timers -= known_timers
        for partition, count in Counter(
            [(timer.bucket, timer.shard) for timer in known_timers]
        ).items():
            self._timer_counts[TimerPartition(*partition)] -= count

    def reread_all(self) -> None:
        """Forget all timers that were read, after a transaction was rolled back."""
        self._heap, self._known_timers, self._timer_counts = [], set(), Counter()
        self._positions = {partition: _ReadPosition() for partition in self._positions}

    def next_timer_at(self) -> datetime | None:
        """Return when the soonest timer is due. Later pages of a partition are not earlier."""
        return self._heap[0][1].at if self._heap else None

    def pending_timers(self) -> list[Timer]:
        """Return the known timers that are not taken, in no order."""
        return [timer for _, timer in self._heap]
