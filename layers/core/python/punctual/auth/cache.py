"""What was found out lately, as much as fits."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    since: float
    until: float


class ExpiringCache(Generic[V]):
    """`seconds` are those of a clock that goes on while its process is frozen.

    A steady clock need not: a token that was taken back would stay good in an environment that
    nobody woke. One that is set back is seen, and nothing from after that is believed.
    """

    def __init__(self, seconds: Callable[[], float], most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._entries: dict[str, _Entry[V]] = {}

    def get(self, name: str) -> _Entry[V] | None:
        """An entry, for a value may be None itself."""
        entry = self._entries.get(name)
        return entry if entry is not None and self._holds(entry) else None

    def put(self, name: str, value: V, seconds: float) -> None:
        """Where it is full, what was put first goes first: a flood pushes out itself."""
        self._entries.pop(name, None)
        if len(self._entries) >= self._most:
            self._entries.pop(next(iter(self._entries)), None)
        now = self._seconds()
        self._entries[name] = _Entry(value, now, now + seconds)

    def change(self, name: str, value: V) -> None:
        """Another value for as long as the former one held."""
        entry = self._entries.get(name)
        if entry is not None:
            self._entries[name] = entry._replace(value=value)

    def __len__(self) -> int:
        return len(self._entries)

    def _holds(self, entry: _Entry[V]) -> bool:
        return entry.since <= self._seconds() < entry.until
