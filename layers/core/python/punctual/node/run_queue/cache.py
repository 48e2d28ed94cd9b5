"""What is kept in memory of the queued runs: of each part the first, and where more begins."""

from collections.abc import Callable, Container
from datetime import datetime

from punctual.domain.job_state import Priority
from punctual.engine.ports.run_queue import Message
from punctual.node.run_queue.priority_list import Entry, Line
from punctual.node.run_queue.slots import INLINE, KINDS, Rank, kind_of

OTHERS, HELD = "", "*"  # who need not wait, by no tenant's name; and what stands here alone
_TENANTS = 20  # at their limits, that together may have half of what is kept

Mark = tuple[str, int]


class Memory:
    """A part is what one tenant that may have to wait, or all others, have of a kind and priority.

    It has a bound, so that who has a hundred thousand leaves room for all others, its long runs
    for its quick ones, and its LOW for its HIGH. Of a part that has more than that, this keeps
    the first by time. The rest is `short` here: the heads alone know it, from that moment on, and
    whoever comes behind it waits there as well, or those who are there would wait for ever.
    """

    def __init__(self, kept: int, inline: frozenset[str], may_wait: Callable[[str], bool]) -> None:
        self.lines: dict[str, dict[str, Line]] = {kind: {} for kind in KINDS}
        self.short: dict[Rank, dict[str, datetime]] = {
            (kind, priority): {} for kind in KINDS for priority in Priority
        }
        self._kept = kept
        self._inline = inline
        self.may_wait = may_wait
        self._known: dict[str, Message] = {}
        self._held: set[Mark] = set()
        self._sent = 0  # what is due together goes as it came: jobs side by side, as their rows are

    def __len__(self) -> int:
        return len(self._known) + len(self._held)

    def whose(self, tenant: str) -> str:
        return tenant if self.may_wait(tenant) else OTHERS

    def has_room(self, count: int) -> bool:
        return len(self) + count <= self._kept

    def hold(self, message: Message) -> None:
        """It stands nowhere else: it is never put out for another."""
        if mark(message) not in self._held:
            self._held.add(mark(message))
            self._put(INLINE, HELD, message)

    def add(self, message: Message, reading: Container[Rank]) -> tuple[Rank, str, datetime] | None:
        """Keep it, perhaps for another. Which part is short by that, and from when on, if one is.

        `reading`: what is being read from the heads, so that none need wait to be read.
        """
        if self._is_known(message):
            return None
        kind = kind_of(message.task_type, message.lane, self._inline)
        rank, whose, due_at = (kind, message.priority), self.whose(message.tenant), message.due_at
        since = self.short[rank].get(whose)
        if since is not None and due_at >= since and rank not in reading:
            return None
        missed = None
        line = self.lines[kind].get(whose)
        part = line.parts[message.priority] if line is not None else []
        if len(part) >= self.most(whose):
            last = part[-1]
            if due_at >= last[1]:
                return self._miss(rank, whose, due_at)
            if mark(last[-1]) not in self._held:
                part.pop()
                self._forget(last[-1])
                missed = self._miss(rank, whose, last[1])
        self._known[message.run_id] = message
        self._put(kind, whose, message)
        return missed

    def _is_known(self, message: Message) -> bool:
        """What is announced again while it waits need not wait twice."""
        known = self._known.get(message.run_id)
        return (
            known is not None
            and known.due_at <= message.due_at
            and known.priority == message.priority
            and known.lane == message.lane
            and known.task_type == message.task_type
        )

    def _put(self, kind: str, whose: str, message: Message) -> None:
        self._sent += 1
        entry = (message.priority, message.due_at, self._sent, message)
        lines = self.lines[kind]
        line = lines.get(whose)
        if line is None:
            line = lines[whose] = Line()
        line.put(entry)

    def _miss(self, rank: Rank, whose: str, at: datetime) -> tuple[Rank, str, datetime]:
        short = self.short[rank]
        short[whose] = min(at, short.get(whose, at))
        return rank, whose, at

    def take(self, kind: str, whose: str, priority: Priority, count: int) -> None:
        """The first so many of a part were given away."""
        lines = self.lines[kind]
        part = lines[whose].parts[priority]
        for entry in part[:count]:
            self._forget(entry[-1])
        del part[:count]
        if not part and not lines[whose]:
            del lines[whose]

    def _forget(self, message: Message) -> None:
        if self._known.get(message.run_id) is message:
            del self._known[message.run_id]
        else:
            self._held.discard(mark(message))

    def set_apart(self, kind: str, now: datetime, most: int) -> None:
        """What would be offered next is of tenants that need not wait: others got a limit since."""
        waits: dict[str, bool] = {}
        for whose in (OTHERS, HELD):
            line = self.lines[kind].get(whose)
            for part in () if line is None else line.parts.values():
                kept: list[Entry] = []
                seen = 0
                for entry in part:
                    seen += 1
                    tenant = entry[-1].tenant
                    if tenant not in waits:
                        waits[tenant] = self.may_wait(tenant)
                    if entry[1] > now or not waits[tenant]:
                        kept.append(entry)
                    else:
                        self.lines[kind].setdefault(tenant, Line()).put(entry)
                    if entry[1] > now or len(kept) == most:
                        break
                if len(kept) < seen:
                    part[:seen] = kept
            if line is not None and not line:
                del self.lines[kind][whose]

    def lift(self, rank: Rank) -> None:
        """Who has no limit any more is one of the others: what it is short of, they are."""
        short = self.short[rank]
        for tenant in [whose for whose in short if whose and not self.may_wait(whose)]:
            self._miss(rank, OTHERS, short.pop(tenant))

    def size(self, rank: Rank, whose: str) -> int:
        line = self.lines[rank[0]].get(whose)
        return 0 if line is None else len(line.parts[rank[1]])

    def room(self, rank: Rank, whose: str) -> int:
        return self.most(whose) - self.size(rank, whose)

    def last(self, rank: Rank, whose: str) -> datetime | None:
        """When the last of a full part is due; None while there is room."""
        if self.size(rank, whose) < self.most(whose):
            return None
        return self.lines[rank[0]][whose].parts[rank[1]][-1][1]

    def most(self, whose: str) -> int:
        if whose == OTHERS:
            return max(1, self._kept // len(Priority))
        tenants = max(_TENANTS, *(len(lines) for lines in self.lines.values()))
        return max(1, self._kept // 2 // (tenants * len(Priority)))

    def thin(self, rank: Rank) -> set[str]:
        """Whose part has more in the heads, and room for a good deal of it."""
        return {
            whose for whose in self.short[rank] if self.size(rank, whose) <= self.most(whose) // 2
        }


def mark(message: Message) -> Mark:
    return message.run_id, message.version
