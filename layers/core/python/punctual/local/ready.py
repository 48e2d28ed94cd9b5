"""What is queued on this machine: by priority, then by due time, for each kind of slot.

Only a hint in memory: the heads say what is queued, and fill it again after a start or when more
was queued than it keeps.
"""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TypeVar

from punctual.domain.head import Head, Priority
from punctual.domain.run import Run, Status
from punctual.engine.ports import Message
from punctual.local.apart import Apart, mark
from punctual.local.kinds import INLINE, KINDS, Lines, kind_of
from punctual.local.limits import Admission

KEPT = 100_000

_Early = tuple[datetime, int, Message]
_Ready = tuple[Priority, datetime, int, Message]
# What is due by then, so many at most, of one kind: of all tenants but some, or of one.
Refill = Callable[[datetime, int, Collection[str], Lines], Iterable[Message]]


_Place = TypeVar("_Place", _Early, _Ready)


class Ready:
    """The Messages port of the node. Lists in order: what comes nearly always comes last."""

    def __init__(
        self,
        refill: Refill,
        inline_types: frozenset[str],
        admission: Admission | None = None,
        kept: int = KEPT,
    ) -> None:
        """`admission`, where it is on, says how many runs of a tenant may start."""
        self._refill = refill
        self._admission = admission if admission is not None and admission.on else None
        self._inline = inline_types
        self._kept = kept
        self._early: list[_Early] = []
        self._ready: dict[str, list[_Ready]] = {kind: [] for kind in KINDS}
        self._lines: dict[str, dict[str, list[_Ready]]] = {kind: {} for kind in self._ready}
        self._known: set[tuple[str, int]] = set()
        self._apart = Apart(kept)
        self._sent = 0  # what is due together goes as it came: jobs side by side, as their rows are
        self._others: Counter[str] = Counter()  # that are not apart, by kind
        self._overflowed = set(KINDS)  # after a start nothing is known

    def __len__(self) -> int:
        return len(self._known)

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        for message in messages:
            marked = mark(message)
            if marked in self._known:
                continue
            kind = self._kind(message)
            if self._may_wait(message.tenant):
                if not self._apart.add(message, kind):
                    continue
            elif self._others[kind] >= self._kept:
                self._overflowed.add(kind)
                continue
            else:
                self._others[kind] += 1
            self._known.add(marked)
            self._sent += 1
            _put(self._early, (message.due_at, self._sent, message))
        return [True] * len(messages)

    def hold(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Keep those of runs that stand nowhere else: True for each that is inline, and kept."""
        if len(self._known) + len(messages) > self._kept:
            return [False] * len(messages)
        kept = [
            message.task_type in self._inline and not self._may_wait(message.tenant)
            for message in messages
        ]
        self.send([message for message, ours in zip(messages, kept, strict=True) if ours])
        return kept

    def again(self, message: Message, at: datetime) -> None:
        """It could not be taken yet: offer it once more then."""
        self.send([message._replace(due_at=max(at, message.due_at))])

    def start_over(self) -> None:
        """What was taken may not have been claimed: ask the heads."""
        self._early = []
        self._ready = {kind: [] for kind in self._ready}
        self._lines = {kind: {} for kind in self._ready}
        self._known = set()
        self._apart = Apart(self._kept)
        self._others.clear()
        self._overflowed = set(KINDS)

    def take(self, kind: str, now: datetime, most: int) -> list[Message]:
        """What is due now and not started, the most urgent first."""
        self._fill(now)
        self._ripen(now)
        if self._admission is None:
            ready = self._ready[kind]
            taken = [message for *_, message in ready[:most]]
            del ready[:most]
        else:
            taken = self._admitted(self._admission, kind, now, most)
        for message in taken:
            self._known.discard(mark(message))
            if not self._apart.discard(message, kind):
                self._others[kind] -= 1
        return taken

    def _fill(self, now: datetime) -> None:
        """From the heads, where they had more than was kept."""
        apart, half = self._apart, self._kept // 2
        for kind in [kind for kind in KINDS if kind in self._overflowed]:
            if self._others[kind] < half:
                self._read_all(now, half, kind)
        for line, most in apart.thin():
            found, before = list(self._refill(now, most, (), line)), len(apart)
            self.send(found)
            if len(found) < most:
                continue
            if not self._may_wait(line[0]):
                self._overflowed.add(line[1])
                continue
            apart.more(line, found[-1].priority)
            if len(apart) == before:
                apart.rest(line)

    def _read_all(self, now: datetime, half: int, kind: str) -> None:
        """The others' whoever has too much."""
        apart, full = self._apart, None
        while full is None or full != apart.full(kind):
            full = apart.full(kind)  # what somebody had too much of stood for another's
            found = list(self._refill(now, half, full, (None, kind)))
            self._overflowed.discard(kind)
            if len(found) >= half:  # there may be more
                self._overflowed.add(kind)
            self.send(found)
        for tenant in full:  # of whom only the first were seen
            apart.more((tenant, kind))

    def _kind(self, message: Message) -> str:
        return kind_of(message.task_type, message.lane, self._inline)

    def _admitted(self, admission: Admission, kind: str, now: datetime, most: int) -> list[Message]:
        """The most urgent of all that may start: whose limit is reached holds up no other."""
        self._set_apart(kind, most)
        ready, lines = self._ready[kind], self._lines[kind]
        offered = [(place, "") for place in ready[:most]]
        for tenant, line in lines.items():
            room = admission.room(tenant, now, most, instant=kind == INLINE)
            offered += [(place, tenant) for place in line[:room]]
        offered.sort()
        chosen = offered[:most]
        counts = Counter(tenant for _, tenant in chosen)
        del ready[: counts.pop("", 0)]
        for tenant, count in counts.items():
            admission.reserve(tenant, count)
            del lines[tenant][:count]
            if not lines[tenant]:
                del lines[tenant]
        return [message for (*_, message), _ in chosen]

    def _set_apart(self, kind: str, most: int) -> None:
        """Of tenants that were given a limit since these became due."""
        ready = self._ready[kind]
        kept = []
        for place in ready[:most]:
            tenant = place[-1].tenant
            if self._may_wait(tenant):
                _put(self._lines[kind].setdefault(tenant, []), place)
            else:
                kept.append(place)
        ready[:most] = kept

    def _may_wait(self, tenant: str) -> bool:
        return self._admission is not None and self._admission.holds(tenant)

    def _ripen(self, now: datetime) -> None:
        early, ready = self._early, self._ready
        if not early or early[0][0] > now:
            return
        ripe = bisect_right(early, now, key=itemgetter(0))
        waits: dict[str, bool] = {}
        for due_at, sent, message in early[:ripe]:
            kind = self._kind(message)
            place = (message.priority, due_at, sent, message)
            if self._admission is None:
                _put(ready[kind], place)
                continue
            tenant = message.tenant
            if tenant not in waits:
                waits[tenant] = self._may_wait(tenant)
            _put(self._lines[kind].setdefault(tenant, []) if waits[tenant] else ready[kind], place)
        del early[:ripe]

    def next_at(self) -> datetime | None:
        """When the next one is due, or a tenant may start more; others wait for a slot."""
        moments = [self._early[0][0]] if self._early else []
        if self._admission is not None:
            free = {self._admission.free_at(tenant) for tenant in self._limited()}
            moments += [at for at in free if at is not None]
        return min(moments, default=None)

    def _limited(self) -> set[str]:
        return {tenant for lines in self._lines.values() for tenant in lines}

    def waiting(self, kind: str, now: datetime) -> bool:
        """Whether anything of this kind only waits for a slot, or to be read."""
        if self._ready[kind] or self._apart.is_thin(kind):
            return True
        admission = self._admission
        return admission is not None and any(
            admission.room(tenant, now, 1, instant=kind == INLINE) for tenant in self._lines[kind]
        )


def _put(line: list[_Place], place: _Place) -> None:
    if line and place < line[-1]:
        insort(line, place)
    else:
        line.append(place)


def messages_of(head: Head) -> list[Message]:
    """What is queued of one job, as the swaps that queued it announced it."""
    return [_message(head, run) for run in head.runs if run.status is Status.QUEUED]


def _message(head: Head, run: Run) -> Message:
    rules = head.rules[run.definition]
    return Message(
        head.tenant,
        head.job_id,
        run.run_id,
        run.due_at,
        rules.priority,
        rules.lane,
        head.version,
        rules.task_type,
    )
