"""The timers of some minutes, soonest first, read page by page and never all at once."""

import heapq
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.engine.ports.timers import Timer, Timers

PAGE = 2_000


class TimerPartition(NamedTuple):
    """One bucket and shard."""

    bucket: datetime
    shard: int


class _Reading:
    """How far one place has been read: all before `reached` are in the heap or handled."""

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
        self._open: Counter[TimerPartition] = Counter()  # known timers by place

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
        """Whether timers of this place are known and not handled yet."""
        return self._open[place] > 0

    def reread(self, place: TimerPartition) -> None:
        """Something was put there: look from the start; what is known is not taken twice."""
        if place in self._places:
            self._places[place] = _Reading()

    def add(self, timers: Sequence[Timer]) -> None:
        """Timers just put. Those that a later page will bring anyway need no room yet."""
        for timer in timers:
            place = TimerPartition(timer.bucket, timer.shard)
            reading = self._places.get(place)
            if reading is None:
                continue
            if reading.complete or (reading.reached and timer.at < reading.reached):
                self._push(timer)
            elif timer.at == reading.reached:  # before the cursor, or behind it: nobody knows
                if len(self._heap) < self._page:
                    self._push(timer)
                else:
                    self.reread(place)

    def fill(self) -> None:
        """Read on where there is room: the earliest unread place first."""
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
        """The soonest that are due by `until`; they stay known until forgotten."""
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
        """Forget all that was read: what was done since may have been undone."""
        self._heap, self._known, self._open = [], set(), Counter()
        self._places = {place: _Reading() for place in self._places}

    def next_at(self) -> datetime | None:
        """When the soonest is due; pages not read yet hold none earlier of their place."""
        return self._heap[0][1].at if self._heap else None

    def waiting(self) -> list[Timer]:
        """Those that are known and not taken, in no order."""
        return [timer for _, timer in self._heap]
