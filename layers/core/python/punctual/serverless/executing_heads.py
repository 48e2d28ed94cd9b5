"""Heads as this process last wrote them: an end need not read what its own claim wrote."""

from collections.abc import Callable, Iterable

from punctual.domain.head import Head
from punctual.engine.ports import Key

FRESH = 5.0  # seconds; later it is likely that another wrote, and a swap that loses is paid too


class Heads:
    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._known: dict[Key, tuple[Head, float]] = {}

    def note(self, key: Key, head: Head) -> None:
        """Of several claims of one job the last wrote the head that stands."""
        before = self._known.get(key)
        if before is None or before[0].version <= head.version:
            self._known[key] = head, self._steady()

    def take(self, keys: Iterable[Key]) -> dict[Key, Head]:
        """Once: who does not learn what became of its swap knows nothing any more."""
        found = {key: self._known.pop(key) for key in set(keys) if key in self._known}
        now = self._steady()
        return {key: head for key, (head, at) in found.items() if now - at < FRESH}
