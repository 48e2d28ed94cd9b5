"""What the node keeps in memory of tenants whose runs may have to wait: a few of each line."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from punctual.domain.head import Priority
from punctual.engine.ports import Message
from punctual.local.kinds import KINDS, Line

TENANTS = 20  # at their limits, that together may have half of what is kept
AT_ONCE = 20  # lines that are read in one step: each search goes by what others have before it

Mark = tuple[str, int]


class Apart:
    """Of each line and priority more than start soon, and no more: who has a hundred thousand
    leaves room for all others, and its long runs leave room for its quick ones."""

    def __init__(self, kept: int) -> None:
        self._half = kept // 2
        self._marks: set[Mark] = set()
        self._tenants: Counter[str] = Counter()
        self._lines: Counter[tuple[Line, Priority]] = Counter()
        self._full: dict[Line, Priority] = {}  # from there on the heads have more than is here
        self._idle: set[Line] = set()  # read in vain, and nothing of them was taken since

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def most(self) -> int:
        """Of a line and priority: all fill about half of what is kept, where each has one kind."""
        tenants = max(TENANTS, len(self._tenants))
        return max(1, self._half // (tenants * len(Priority)))

    def full(self, kind: str) -> set[str]:
        """Tenants of whose runs of this kind the heads have more."""
        return {tenant for tenant, one in self._full if one == kind}

    def add(self, message: Message, kind: str) -> bool:
        line = (message.tenant, kind)
        if self._lines[line, message.priority] >= self.most:
            self.more(line, message.priority)
            return False
        self._lines[line, message.priority] += 1
        self._tenants[message.tenant] += 1
        self._marks.add(mark(message))
        return True

    def discard(self, message: Message, kind: str) -> bool:
        """It was taken; whether it was here."""
        self._idle.discard((message.tenant, kind))
        if mark(message) not in self._marks:
            return False
        tenant = message.tenant
        self._marks.discard(mark(message))
        self._lines[(tenant, kind), message.priority] -= 1
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
            for place in [((tenant, one), priority) for one in KINDS for priority in Priority]:
                self._lines.pop(place, None)
        return True

    def more(self, line: Line, priority: Priority = Priority.HIGH) -> None:
        """The heads have some that are not here, of that priority or less urgent."""
        self._full[line] = min(priority, self._full.get(line, priority))

    def rest(self, line: Line) -> None:
        """What the heads have of it is known already, and was before its tenant had a limit."""
        self._idle.add(line)

    def thin(self) -> list[tuple[Line, int]]:
        """Lines that had more, and have room again: they are full no more. And how many to read,
        to find one more than there is room for."""
        found = []
        for line in list(islice(self._thin(), AT_ONCE)):
            priority = self._full.pop(line)
            ahead = sum(self._lines[line, one] for one in Priority if one < priority)
            found.append((line, ahead + self.most + 1))
        return found

    def is_thin(self, kind: str) -> bool:
        """Whether a line of this kind is still to be read."""
        return any(line[1] == kind for line in self._thin())

    def _thin(self) -> Iterator[Line]:
        enough = self.most // 2
        return (
            line
            for line, priority in self._full.items()
            if self._lines[line, priority] <= enough and line not in self._idle
        )


def mark(message: Message) -> Mark:
    return message.run_id, message.version
