"""A cache of the rows that hold each timer, from the puts and reads of this process."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.timers.keys import is_shared
from punctual.aws.dynamodb.timers.rows import TimerRow
from punctual.engine.ports.timers import Timer

MOST = 30_000  # pairs of timer and row in one generation


class Leaving(NamedTuple):
    """The steps of a delete: `whole` rows to delete, members to remove, and `unknown` timers.

    The cache has no row of the unknown timers.
    """

    whole: Sequence[RowKey]
    parts: Mapping[RowKey, set[Timer]]
    unknown: Sequence[Timer]


class _Generation:
    __slots__ = ("known", "left", "rows")

    def __init__(self) -> None:
        self.known = 0  # number of pairs of timer and row
        self.rows: dict[Timer, tuple[RowKey, ...]] = {}
        self.left: dict[RowKey, set[Timer]] = {}  # the members left in each shared row

    def note(self, timer: Timer, key: RowKey) -> None:
        rows = self.rows.get(timer, ())
        if key not in rows:
            self.rows[timer] = (*rows, key)
            self.known += 1


class KnownTimers:
    """A cache of rows in two generations. When the younger is full, the older is dropped.

    A cached row may be out of date, but a row never gains members.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._young, self._old = _Generation(), _Generation()
        self._lock = Lock()

    def note(self, found: Iterable[TimerRow]) -> None:
        """Add rows to the cache. A timer that is put twice may stand in two rows."""
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
        """Return whether the row may keep members after `gone` are removed."""
        if not is_shared(key.sk):
            return False
        left = self._young.left.get(key)
        if left is None:
            left = self._old.left.get(key)
        return left is None or not left <= gone
