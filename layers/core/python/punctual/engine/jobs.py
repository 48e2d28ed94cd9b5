"""The writes of the API: submit and change jobs, order and cancel runs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from punctual.domain import events
from punctual.domain.decide import Verdict
from punctual.domain.errors import (
    Conflict,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    PunctualError,
    Unavailable,
)
from punctual.domain.events import Event
from punctual.domain.head import Head, Misfire, State
from punctual.domain.line import LINE_MOST
from punctual.domain.placement import derived_id
from punctual.domain.run import Trigger
from punctual.engine.backfilling import Backfilling
from punctual.engine.change import Change, Result
from punctual.engine.definition import compiled, keep_phase
from punctual.engine.documents import Documents
from punctual.engine.marks import mark
from punctual.engine.ports import Body, Clock, Key, NewId, Ports, Stored
from punctual.engine.receipts import Receipts, Submission
from punctual.engine.search import Search
from punctual.engine.steps import TRIES, Steps
from punctual.engine.submitting import Submitting
from punctual.engine.views import JobView, RunView

__all__ = ["Jobs", "Submission"]


class _Revised(NamedTuple):
    body: Body
    event: Event


class Jobs:
    """Each call is durable when it returns, and final: nothing it forbids starts afterwards."""

    def __init__(
        self, ports: Ports, steps: Steps, search: Search, clock: Clock, new_id: NewId
    ) -> None:
        self._ports = ports
        self._steps = steps
        self._search = search
        self._clock = clock
        self._new_id = new_id
        self._documents = Documents(ports)
        self._receipts = Receipts(ports, clock)
        self._submitting = Submitting(ports, steps, self._documents, self._receipts, clock, new_id)
        self._backfilling = Backfilling(ports)

    def submit(
        self, tenant: str, caller: str, wanted: Sequence[Submission]
    ) -> list[JobView | PunctualError]:
        """Accept each job on its own; what is answered is kept."""
        return self._submitting.submit(tenant, caller, wanted)

    def change(
        self,
        tenant: str,
        job_id: str,
        revise: Callable[[dict[str, Any]], dict[str, Any]],
        if_match: int | None = None,
    ) -> JobView:
        """Put a new definition in force; `revise` makes it from the present one.

        Where it answers the present one itself, nothing changes, the version neither.
        """
        asked_at = self._clock()
        key, writer = Key(tenant, job_id), mark(self._new_id)
        for _ in range(TRIES):
            stored, body = self._load(key)
            _check(stored.head, if_match)
            present = self._documents.whole(body)
            document = revise(present)
            if document is present:
                _check_alive(stored.head)
                return self._search.job(tenant, job_id)
            revised = self._revise(key, stored, body, document, writer, asked_at)
            result = self._apply_to(stored, key, revised.event, writer, revised.body)
            if result is not None:
                self._refuse(result)
                return self._search.job(tenant, job_id)
        raise Unavailable("Too many changes of this job at the same time: try again.")

    def _revise(
        self,
        key: Key,
        stored: Stored,
        body: Body,
        document: dict[str, Any],
        writer: str,
        now: datetime,
    ) -> _Revised:
        head = stored.head
        ref = f"{head.edition + 1}-{writer}"
        new = self._documents.body(key, document, ref, head.edition + 1, now, body.created_by)
        meaning = compiled(document, key.job_id, ref, now)
        return _Revised(
            replace(new, previous=body.ref),
            events.Update(
                kind=meaning.kind,
                rules=meaning.rules,
                limits=meaning.limits,
                schedule=None
                if meaning.kind is head.kind and head.kind == "IMMEDIATE"
                else keep_phase(meaning.schedule, head.schedule),
                asked_at=now,
            ),
        )

    def _apply_to(
        self, read: Stored, key: Key, event: Event, writer: str, body: Body
    ) -> Result | None:
        """Apply what was made for this very head; None if it has changed under our hands."""
        self._ports.heads.put_bodies([body])
        change = Change(key, event, writer, safety=True, edition=read.head.edition)
        (result,) = self._steps.apply([change])
        return None if result.verdict is Verdict.STALE else result

    def pause(self, tenant: str, job_id: str, if_match: int | None = None) -> JobView:
        return self._command(Key(tenant, job_id), events.Pause(), if_match)

    def resume(
        self, tenant: str, job_id: str, missed: Misfire | None = None, if_match: int | None = None
    ) -> JobView:
        return self._command(Key(tenant, job_id), events.Resume(missed), if_match)

    def cancel(self, tenant: str, job_id: str, if_match: int | None = None) -> JobView:
        return self._command(Key(tenant, job_id), events.Cancel(), if_match)

    def _command(self, key: Key, event: Event, if_match: int | None) -> JobView:
        if if_match is not None:
            _check(self._load(key)[0].head, if_match)
        change = Change(key, event, self._new_id(), safety=True, edition=if_match)
        (result,) = self._steps.apply([change])
        if result.verdict is Verdict.STALE:
            raise PreconditionFailed("The job has another version by now: read it again.")
        self._refuse(result)
        return self._search.job(*key)

    def run_now(
        self,
        tenant: str,
        job_id: str,
        payload: Any = UNSET,
        key: str | None = None,
        fingerprint: str = "",
    ) -> RunView:
        job = Key(tenant, job_id)
        fresh = self._new_run_id(job_id)
        run_id = self._receipts.one(tenant, key, fingerprint, fresh)
        made = None if run_id == fresh else self._made(job, run_id)
        if made is not None:
            return made
        if payload is not UNSET:
            self._documents.put_payload(job, run_id, payload)
        return self._order(job, events.Order(run_id, own_payload=payload is not UNSET))

    def retry(
        self, tenant: str, job_id: str, run_id: str, key: str | None = None, fingerprint: str = ""
    ) -> RunView:
        """Once more, by the present definition, with the payload it had."""
        job = Key(tenant, job_id)
        former = self._search.run(tenant, job_id, run_id)
        if former.run.ended_at is None:
            raise Conflict("Only a run that has ended can be retried: this one is alive.")
        fresh = self._new_run_id(job_id)
        new_id = self._receipts.one(tenant, key, fingerprint, fresh)
        made = None if new_id == fresh else self._made(job, new_id)
        if made is not None:
            return made
        payload = self._documents.payload_of(job, former.run, self._load(job)[1])
        if payload is not UNSET:
            self._documents.put_payload(job, new_id, payload)
        order = events.Order(
            new_id,
            trigger=Trigger.RETRY,
            own_payload=payload is not UNSET,
            retried_from=run_id,
            scheduled_at=former.run.scheduled_at,
        )
        return self._order(job, order)

    def _made(self, key: Key, run_id: str) -> RunView | None:
        """The run that an earlier request with the same key made: it may have left the head."""
        try:
            return self._search.run(*key, run_id)
        except NotFound:
            return None

    def _new_run_id(self, job_id: str) -> str:
        return derived_id(self._clock(), job_id, self._new_id())

    def _order(self, key: Key, order: events.Order) -> RunView:
        (result,) = self._steps.apply([Change(key, order, self._new_id(), safety=True)])
        self._refuse(result)
        return self._search.run(*key, order.run_id)

    def cancel_run(self, tenant: str, job_id: str, run_id: str) -> RunView:
        key = Key(tenant, job_id)
        change = Change(key, events.CancelRun(run_id), self._new_id(), safety=True)
        (result,) = self._steps.apply([change])
        if result.decision is None or result.contended:
            self._refuse(result)
        view = self._search.run(tenant, job_id, run_id)
        if result.verdict is not Verdict.OK:
            raise Conflict(f"The run has ended already: it is {view.run.status}.")
        return view

    def backfill(
        self, tenant: str, job_id: str, start: datetime, end: datetime, dry_run: bool
    ) -> Sequence[datetime]:
        """Run what fell into [start, end) and did not run; the nominal times of it."""
        key = Key(tenant, job_id)
        head = self._load(key)[0].head
        asked = self._backfilling.missing(key, head, start, end, self._clock())
        times = [at for _, at in asked]
        if dry_run or not times:
            return times
        change = Change(key, events.Backfill(tuple(asked)), self._new_id(), safety=True)
        (result,) = self._steps.apply([change])
        self._refuse(result)
        return times

    def _load(self, key: Key) -> tuple[Stored, Body]:
        stored = self._ports.heads.load([key]).get(key)
        if stored is None or stored.head.blank:
            raise NotFound("There is no such job.")
        wanted = (key, stored.head.current.body)
        return stored, self._ports.heads.bodies([wanted])[wanted]

    def _refuse(self, result: Result) -> None:
        if result.contended:
            raise Unavailable("Too many changes of this job at the same time: try again.")
        if result.decision is None or result.decision.head.blank:
            raise NotFound("There is no such job.")
        if result.verdict is Verdict.FULL:
            raise LimitExceeded(
                f"The job's line holds {LINE_MOST} runs at most: order again when some have ended."
            )
        if result.verdict is Verdict.CONFLICT:
            raise _conflict(result.decision.head)


def _check(head: Head, if_match: int | None) -> None:
    if if_match is not None and head.edition != if_match:
        raise PreconditionFailed("The job has another version by now: read it again.")


def _check_alive(head: Head) -> None:
    if head.state is State.CANCELLED:
        raise _conflict(head)


def _conflict(head: Head) -> Conflict:
    return Conflict(f"The job is {head.state}: this cannot be done to it any more.")
