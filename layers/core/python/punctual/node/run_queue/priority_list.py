"""Runs of one kind that wait for the same: in a list by time for each priority."""

from bisect import bisect_right, insort
from datetime import datetime
from operator import itemgetter

from punctual.domain.job_state import Priority
from punctual.engine.ports.run_queue import Message

Entry = tuple[Priority, datetime, int, Message]  # due then; what is due together, as it came
_due = itemgetter(1)


class Line:
    """Of one tenant that may have to wait, or of all others."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[Priority, list[Entry]] = {priority: [] for priority in Priority}

    def __bool__(self) -> bool:
        return any(self.parts.values())

    def put(self, entry: Entry) -> None:
        """What comes nearly always comes last."""
        part = self.parts[entry[0]]
        if part and entry < part[-1]:
            insort(part, entry)
        else:
            part.append(entry)

    def due(self, now: datetime, most: int) -> list[Entry]:
        """The most urgent so many of those whose time has come."""
        found: list[Entry] = []
        for part in self.parts.values():
            room = most - len(found)
            if room > 0 and part and part[0][1] <= now:
                found += part[: bisect_right(part, now, 0, min(len(part), room), key=_due)]
        return found

    def is_due(self, now: datetime) -> bool:
        return any(part and part[0][1] <= now for part in self.parts.values())

    def next_after(self, now: datetime | None) -> datetime | None:
        """When the first of those is due whose time had not come then."""
        moments = []
        for part in self.parts.values():
            if part and (now is None or part[-1][1] > now):
                first = 0 if now is None else bisect_right(part, now, key=_due)
                moments.append(part[first][1])
        return min(moments, default=None)
