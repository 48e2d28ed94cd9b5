"""Which rows hold which timer, as far as this process has put or read them."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from punctual.aws.keys import RowKey
from punctual.aws.timer_keys import is_shared
from punctual.aws.timer_rows import TimerRow
from punctual.engine.ports import Timer

MOST = 30_000  # timers of one generation


class Leaving(NamedTuple):
    """What a delete comes to: rows that go whole, members that leave theirs, timers not known."""

    whole: Sequence[RowKey]
    parts: Mapping[RowKey, set[Timer]]
    unknown: Sequence[Timer]


class _Generation:
    __slots__ = ("left", "rows")

    def __init__(self) -> None:
        self.rows: dict[Timer, tuple[RowKey, ...]] = {}
        self.left: dict[RowKey, set[Timer]] = {}  # of shared rows, who is in it still


class KnownTimers:
    """What is known of a row may be old, but a row only ever loses members.

    Two generations are kept: when the younger is full, the older is forgotten.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._young, self._old = _Generation(), _Generation()
        self._lock = Lock()

    def note(self, found: Iterable[TimerRow]) -> None:
        with self._lock:
            for key, timers, _ in found:
                if len(self._young.rows) >= self._most:
                    self._young, self._old = _Generation(), self._young
                if is_shared(key.sk):
                    self._young.left[key] = set(timers)
                for timer in timers:
                    known = self._rows(timer)
                    self._young.rows[timer] = known if key in known else (*known, key)

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
                    kept.rows.pop(timer, None)
                for key in leaving.whole:
                    kept.left.pop(key, None)
                for key, gone in leaving.parts.items():
                    if key in kept.left:
                        kept.left[key] -= gone

    def _rows(self, timer: Timer) -> tuple[RowKey, ...]:
        return self._young.rows.get(timer) or self._old.rows.get(timer) or ()

    def _stays(self, key: RowKey, gone: set[Timer]) -> bool:
        """Whether members stay behind, or nobody knows."""
        if not is_shared(key.sk):
            return False
        left = self._young.left.get(key)
        if left is None:
            left = self._old.left.get(key)
        return left is None or not left <= gone
