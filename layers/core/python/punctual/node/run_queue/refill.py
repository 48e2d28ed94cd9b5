"""The heads' queued runs, read some at a time: after a start, and where some were left out."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from punctual.domain.job_state import Priority
from punctual.engine.ports.rows import Key
from punctual.engine.ports.run_queue import Message
from punctual.node.run_queue.cache import OTHERS, Memory
from punctual.node.run_queue.slots import KINDS, MIXED, Place, Rank, rank
from punctual.node.sqlite.codec import moment

LISTED = 2_000  # places that one step looks at, of each priority
LOADED = 500  # heads that it reads of them


class Queued(Protocol):
    """What the heads say is queued."""

    def places(self, rank: int, after: Place | None, most: int, /) -> Sequence[Place]:
        """Of heads whose queued runs are of this rank, by the time of the earliest."""

    def keys(self, places: Sequence[Place], /) -> Sequence[Key]: ...

    def messages(self, keys: Collection[Key], /) -> Sequence[Message]:
        """All that is queued of these jobs."""


class _Walk:
    """Over the heads of a kind and priority, those whose runs are of several first: who ceases to
    be one of them comes to stand ahead."""

    def __init__(self, at: Rank, wanted: set[str] | None) -> None:
        self.wanted = wanted  # by whom it was begun; None: by a start, which knows nothing
        self.ranks = [MIXED, rank(at[1], at[0])]
        self.after: Place | None = None
        self.missed: dict[str, datetime] = {}  # since it began: what is short when it ends
        self.done: set[str] = set()  # full, of what is due before all that is still to come

    @property
    def mixed(self) -> bool:
        return len(self.ranks) > 1

    @property
    def begun(self) -> bool:
        return self.after is not None or not self.mixed


class Rereading:
    """A head may change while a walk is on its way. Where its place then moves back, behind the
    walk, a run of it was announced in this moment: whatever is announced is read again."""

    def __init__(self, queued: Queued, memory: Memory) -> None:
        self._queued = queued
        self._memory = memory
        self._walks: dict[Rank, _Walk] = {
            (kind, priority): _Walk((kind, priority), None)
            for kind in KINDS
            for priority in Priority
        }
        self._announced: set[Key] = set()

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._add(message)
        if any(walk.begun for walk in self._walks.values()):
            self._announced.update(Key(one.tenant, one.job_id) for one in messages)

    def _add(self, message: Message) -> None:
        walks = self._walks
        missed = self._memory.add(message, walks)
        if missed is not None and missed[0] in walks:
            at, whose, since = missed
            self._miss(walks[at], whose, since)

    def _miss(self, walk: _Walk, whose: str, since: datetime) -> None:
        walk.missed[whose] = min(since, walk.missed.get(whose, since))

    def is_wanted(self, kind: str) -> bool:
        return any(
            (kind, priority) in self._walks or self._memory.thin((kind, priority))
            for priority in Priority
        )

    def go_on(self, kind: str) -> None:
        """Some of what is wanted: nobody waits for long until it is read."""
        announced, self._announced = self._announced, set()
        self._read(announced)
        for priority in Priority:
            at = (kind, priority)
            self._memory.lift(at)
            if at not in self._walks:
                thin = self._memory.thin(at)
                if not thin:
                    continue
                self._walks[at] = _Walk(at, thin)
            self._step(at, self._walks[at])

    def _step(self, at: Rank, walk: _Walk) -> None:
        places = self._queued.places(walk.ranks[0], walk.after, LISTED)
        seen = self._look_at(places, at, walk)
        if seen:
            walk.after = places[seen - 1]
        if seen < len(places) or len(places) == LISTED:
            if self._has_enough(at, walk):
                self._stop(at, walk)
            return
        walk.ranks.pop(0)
        walk.after = None
        if walk.ranks:
            self._step(at, walk)
            return
        self._memory.short[at] = walk.missed
        del self._walks[at]

    def _look_at(self, places: Sequence[Place], at: Rank, walk: _Walk) -> int:
        """Read those that are wanted; how many were seen to."""
        wanted: list[Place] = []
        rooms: dict[str, int] = {}
        loaded = 0
        for seen, place in enumerate(places):
            if walk.mixed:
                wanted.append(place)
            elif self._wants(at, walk, place):
                wanted.append(place)
                whose = self._memory.whose(place[1])
                rooms[whose] = rooms.get(whose, self._memory.room(at, whose)) - 1
                if rooms[whose] > 0 and loaded + len(wanted) < LOADED:
                    continue
                # Some may have been known: only now it is seen who has enough.
                loaded += len(wanted)
                self._read(self._queued.keys(wanted))
                wanted.clear()
                rooms.clear()
                if self._has_enough(at, walk):
                    return seen + 1
            if loaded + len(wanted) >= LOADED:
                self._read(self._queued.keys(wanted))
                return seen + 1
        self._read(self._queued.keys(wanted))
        return len(places)

    def _read(self, keys: Collection[Key]) -> None:
        for message in self._queued.messages(keys) if keys else ():
            self._add(message)

    def _wants(self, at: Rank, walk: _Walk, place: Place) -> bool:
        """Whether a run that stands there may be one that is left out, and is to be kept now."""
        memory = self._memory
        whose = memory.whose(place[1])
        if whose in walk.done:
            return False
        short = memory.short[at]
        # Who was given a limit since was one of the others, and short of the same.
        if walk.wanted is not None and whose not in short and OTHERS not in short:
            return False
        last = memory.last(at, whose)
        if last is None:
            return True
        due_at = moment(place[0])
        if due_at < last:
            return True
        short[whose] = min(due_at, short.get(whose, due_at))
        self._miss(walk, whose, due_at)
        walk.done.add(whose)
        return False

    def _has_enough(self, at: Rank, walk: _Walk) -> bool:
        memory = self._memory
        return (
            walk.wanted is not None
            and not walk.mixed
            and all(one in walk.done or memory.last(at, one) for one in walk.wanted)
        )

    def _stop(self, at: Rank, walk: _Walk) -> None:
        """All before this place is known now."""
        assert walk.after is not None
        since, short = moment(walk.after[0]), self._memory.short[at]
        for whose in short:
            short[whose] = min(since, walk.missed.get(whose, since))
        del self._walks[at]
