"""A change to a job, and its result."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Event
from punctual.domain.run import Lease
from punctual.engine.ports.audit_log import Note
from punctual.engine.ports.rows import Detail, Key
from punctual.engine.ports.timers import Timer


class Change(NamedTuple):
    """An event for a job, from one request.

    `writer` is the write id of its swap. It is drawn once a request, not once a decision.
    """

    key: Key
    event: Event
    writer: str
    brought: tuple[Timer, ...] = ()
    detail: Detail | None = None  # the result of a finished attempt
    edition: int | None = None  # apply only if the job still has this edition
    safety: bool = False  # no durable trigger: a timer secures the effects until they are done
    spared: bool = False  # one of many messages: its failure must not stop the others
    note: Note | None = None  # the audit note of a client's request
    ahead: timedelta = timedelta(0)  # how long before its time an occurrence may be fired


class Result(Struct, frozen=True):
    """The result of a change. `decision` is None if the job does not exist."""

    decision: Decision | None
    effects_done: bool = True
    recorded: bool = True  # each run that ended has its history row
    contended: bool = False
    leases: Mapping[str, Lease] = {}  # by run id, as the decision read them
    kept: tuple[Timer, ...] = ()  # trigger timers that are not consumed yet
    failed: bool = False  # the decision raised an error: nothing was written
    later: bool = False  # failed because only a later version of Punctual reads the state

    @property
    def verdict(self) -> Verdict:
        return Verdict.GONE if self.decision is None else self.decision.verdict
