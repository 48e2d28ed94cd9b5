"""A cache with a maximum size and expiring entries."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    stored_at: float
    expires_at: float


class ExpiringCache(Generic[V]):
    """Keep values for some seconds.

    `wall_seconds` returns wall time in seconds. Lambda freezes idle processes, and a steady clock
    may stop with them. A revoked token would then stay valid. An entry from after the current time
    shows that the clock was set back, so it does not count.
    """

    def __init__(self, wall_seconds: Callable[[], float], max_entries: int) -> None:
        self._wall_seconds = wall_seconds
        self._max_entries = max_entries
        self._entries: dict[str, _Entry[V]] = {}

    def get(self, name: str) -> _Entry[V] | None:
        """Return the entry, or None. The value of an entry may be None too."""
        entry = self._entries.get(name)
        return entry if entry is not None and self._is_valid(entry) else None

    def put(self, name: str, value: V, seconds: float) -> None:
        """Store a value. A full cache drops its oldest entry."""
        self._entries.pop(name, None)
        if len(self._entries) >= self._max_entries:
            self._entries.pop(next(iter(self._entries)), None)
        wall = self._wall_seconds()
        self._entries[name] = _Entry(value, wall, wall + seconds)

    def change(self, name: str, value: V) -> None:
        """Replace the value of an entry, and keep its expiry."""
        entry = self._entries.get(name)
        if entry is not None:
            self._entries[name] = entry._replace(value=value)

    def __len__(self) -> int:
        return len(self._entries)

    def _is_valid(self, entry: _Entry[V]) -> bool:
        return entry.stored_at <= self._wall_seconds() < entry.expires_at
