"""A change to a job, and its result."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Event
from punctual.domain.run import Lease
from punctual.engine.ports.audit_log import Note
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.ports.timers import Timer


class Change(NamedTuple):
    """An event for a job, from one request.

    `write_id` is the write id of its swap. It is drawn once a request, not once a decision.
    """

    key: JobKey
    event: Event
    write_id: str
    trigger_timers: tuple[Timer, ...] = ()
    detail: Detail | None = None  # the result of a finished attempt
    edition: int | None = None  # apply only if the job still has this edition
    version: int | None = None  # apply only if the state still has this version
    # No durable trigger: a timer secures the effects until they are done.
    needs_fallback_timer: bool = False
    isolates_failure: bool = False  # one of many messages: its failure must not stop the others
    note: Note | None = None  # the audit note of a client's request
    fire_ahead: timedelta = timedelta(0)  # how long before its time an occurrence may be fired


class Result(Struct, frozen=True):
    """The result of a change. `decision` is None if the job does not exist."""

    decision: Decision | None
    effects_done: bool = True
    history_recorded: bool = True  # each run that ended has its history row
    is_contended: bool = False
    leases: Mapping[str, Lease] = {}  # by run id, as the decision read them
    remaining_timers: tuple[Timer, ...] = ()  # trigger timers that are not consumed yet
    has_failed: bool = False  # the decision raised an error: nothing was written
    is_newer_format: bool = False  # failed because only a later version of Punctual reads the state
    may_succeed_later: bool = False  # it failed because a store did not answer

    @property
    def verdict(self) -> Verdict:
        return Verdict.GONE if self.decision is None else self.decision.verdict
