"""Which rows hold which timer, as far as this process has put or read them."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.timers.keys import is_shared
from punctual.aws.dynamodb.timers.rows import TimerRow
from punctual.engine.ports.timers import Timer

MOST = 30_000  # timers of one generation


class Leaving(NamedTuple):
    """What a delete comes to: rows that go whole, members that leave theirs, timers not known."""

    whole: Sequence[RowKey]
    parts: Mapping[RowKey, set[Timer]]
    unknown: Sequence[Timer]


class _Generation:
    __slots__ = ("known", "left", "rows")

    def __init__(self) -> None:
        self.known = 0  # of each timer the rows that hold it, one and all
        self.rows: dict[Timer, tuple[RowKey, ...]] = {}
        self.left: dict[RowKey, set[Timer]] = {}  # of shared rows, who is in it still

    def note(self, timer: Timer, key: RowKey) -> None:
        rows = self.rows.get(timer, ())
        if key not in rows:
            self.rows[timer] = (*rows, key)
            self.known += 1


class KnownTimers:
    """What is known of a row may be old, but a row only ever loses members.

    Two generations are kept: when the younger is full, the older is forgotten.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._young, self._old = _Generation(), _Generation()
        self._lock = Lock()

    def note(self, found: Iterable[TimerRow]) -> None:
        """A timer that is put again stands in one row more, each time."""
        with self._lock:
            for key, timers, _ in found:
                if self._young.known >= self._most:
                    self._young, self._old = _Generation(), self._young
                if is_shared(key.sk):
                    self._young.left[key] = set(timers)
                for timer in timers:
                    self._young.note(timer, key)

    def leaving(self, timers: Iterable[Timer]) -> Leaving:
        gone: dict[RowKey, set[Timer]] = {}
        unknown = []
        with self._lock:
            for timer in timers:
                rows = self._rows(timer)
                if not rows:
                    unknown.append(timer)
                for key in rows:
                    gone.setdefault(key, set()).add(timer)
            parts = {key: some for key, some in gone.items() if self._stays(key, some)}
        return Leaving([key for key in gone if key not in parts], parts, unknown)

    def forget(self, timers: Iterable[Timer], leaving: Leaving) -> None:
        with self._lock:
            for kept in (self._young, self._old):
                for timer in timers:
                    kept.known -= len(kept.rows.pop(timer, ()))
                for key in leaving.whole:
                    kept.left.pop(key, None)
                for key, gone in leaving.parts.items():
                    if key in kept.left:
                        kept.left[key] -= gone

    def _rows(self, timer: Timer) -> tuple[RowKey, ...]:
        young, old = self._young.rows.get(timer, ()), self._old.rows.get(timer, ())
        return (*young, *(key for key in old if key not in young)) if old else young

    def _stays(self, key: RowKey, gone: set[Timer]) -> bool:
        """Whether members stay behind, or nobody knows."""
        if not is_shared(key.sk):
            return False
        left = self._young.left.get(key)
        if left is None:
            left = self._old.left.get(key)
        return left is None or not left <= gone
