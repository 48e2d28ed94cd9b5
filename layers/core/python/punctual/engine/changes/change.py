"""Something that happens to a job, and what came of it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Event
from punctual.domain.run import Lease
from punctual.engine.commands.audit import Note
from punctual.engine.ports.rows import Detail, Key
from punctual.engine.ports.timers import Timer


class Change(NamedTuple):
    """`writer` marks this request's swap as its own; it is drawn once, not once a decision."""

    key: Key
    event: Event
    writer: str
    brought: tuple[Timer, ...] = ()
    detail: Detail | None = None  # what a finished attempt left behind
    edition: int | None = None  # only if the job is still at this client's version
    safety: bool = False  # nothing durable brought it: a timer stands in until its effects are done
    spared: bool = False  # one of many messages: that it cannot be decided must not stop the others
    note: Note | None = None  # whose it is, where a client asked for it
    ahead: timedelta = timedelta(0)  # how long before its time a look may fire an occurrence


class Result(Struct, frozen=True):
    """What came of a change: no decision where there is no such job."""

    decision: Decision | None
    effects_done: bool = True
    recorded: bool = True  # of its effects: what ended has its history row
    contended: bool = False
    leases: Mapping[str, Lease] = {}  # by run id, as the decision read them
    kept: tuple[Timer, ...] = ()  # of those that brought it: still to be looked at in their time
    failed: bool = False  # deciding raised: nothing was done, and the rest of its batch went on
    later: bool = False  # failed, for the head is a later version's: it waits until that is back

    @property
    def verdict(self) -> Verdict:
        return Verdict.GONE if self.decision is None else self.decision.verdict
