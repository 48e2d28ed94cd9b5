"""The timers of some partitions, soonest first, read page by page to bound the memory."""

import heapq
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.timers import Timer, Timers

PAGE = 2_000


class _Reading:
    """The position in a partition. Timers before `reached` are in the heap or consumed."""

    __slots__ = ("complete", "cursor", "reached")

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.reached: datetime | None = None
        self.complete = False


class TimerWindow:
    def __init__(self, timers: Timers, page: int = PAGE) -> None:
        self._timers = timers
        self._page = page
        self._places: dict[TimerPartition, _Reading] = {}
        self._heap: list[tuple[tuple[datetime, str, str, int], Timer]] = []
        self._known: set[Timer] = set()
        self._open: Counter[TimerPartition] = Counter()  # number of known timers by partition

    @property
    def places(self) -> Sequence[TimerPartition]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._heap)

    def open(self, place: TimerPartition) -> None:
        if place not in self._places:
            self._places[place] = _Reading()

    def close(self, place: TimerPartition) -> None:
        self._places.pop(place, None)
        if not self._open[place]:
            del self._open[place]

    def has(self, place: TimerPartition) -> bool:
        """Return True if the partition has known timers that are not consumed."""
        return self._open[place] > 0

    def reread(self, place: TimerPartition) -> None:
        """Read the partition from its start again. Known timers are not taken twice."""
        if place in self._places:
            self._places[place] = _Reading()

    def add(self, timers: Sequence[Timer]) -> None:
        """Add new timers, except those that a later page returns anyway."""
        for timer in timers:
            place = TimerPartition(timer.bucket, timer.shard)
            reading = self._places.get(place)
            if reading is None:
                continue
            if reading.complete or (reading.reached and timer.at < reading.reached):
                self._push(timer)
            elif timer.at == reading.reached:  # before or after the cursor
                if len(self._heap) < self._page:
                    self._push(timer)
                else:
                    self.reread(place)

    def fill(self) -> None:
        """Read pages while there is room, the earliest partition first."""
        for place in sorted(self._places):
            reading = self._places[place]
            while not reading.complete and len(self._heap) < self._page:
                self._read(place, reading)

    def _read(self, place: TimerPartition, reading: _Reading) -> None:
        found = self._timers.due(
            place.bucket,
            place.shard,
            datetime.max.replace(tzinfo=place.bucket.tzinfo),
            reading.cursor,
            self._page,
        )
        for timer in found.timers:
            self._push(timer)
        if found.timers:
            reading.reached = found.timers[-1].at
        reading.cursor, reading.complete = found.cursor, found.cursor is None

    def _push(self, timer: Timer) -> None:
        if timer not in self._known:
            self._known.add(timer)
            self._open[TimerPartition(timer.bucket, timer.shard)] += 1
            heapq.heappush(self._heap, (timer.order, timer))

    def take(self, until: datetime, most: int) -> list[Timer]:
        """Take the soonest timers that are due by `until`. They stay known until `forget`."""
        taken: list[Timer] = []
        while self._heap and len(taken) < most and self._heap[0][1].at <= until:
            taken.append(heapq.heappop(self._heap)[1])
        return taken

    def put_back(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            heapq.heappush(self._heap, (timer.order, timer))

    def forget(self, timers: Sequence[Timer]) -> None:
        known = self._known.intersection(timers)
        self._known -= known
        for place, count in Counter([(timer.bucket, timer.shard) for timer in known]).items():
            self._open[TimerPartition(*place)] -= count

    def start_over(self) -> None:
        """Forget all timers that were read, after a transaction was rolled back."""
        self._heap, self._known, self._open = [], set(), Counter()
        self._places = {place: _Reading() for place in self._places}

    def next_at(self) -> datetime | None:
        """Return when the soonest timer is due. Later pages of a partition are not earlier."""
        return self._heap[0][1].at if self._heap else None

    def waiting(self) -> list[Timer]:
        """Return the known timers that are not taken, in no order."""
        return [timer for _, timer in self._heap]
