"""Accepts jobs in batches. The jobs of a batch are stored or refused separately."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from punctual.domain.errors import PunctualError, Unavailable
from punctual.domain.events import Evaluate
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.schedules.schedule import next_after
from punctual.domain.transitions.commands import first_mark
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.change import Change
from punctual.engine.changes.write_ids import mark_of
from punctual.engine.commands.audit import JOB_CREATE
from punctual.engine.commands.definition import compile_definition
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys, Submission
from punctual.engine.ports.audit_log import Actor, Note
from punctual.engine.ports.blobs import Blob
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.job_states import JobStates, Swap
from punctual.engine.ports.quotas import Granted, Quotas
from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.engine.ports.timers import Timer
from punctual.engine.ports.wakeups import WakeUps
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import is_order, too_many_jobs, too_many_orders

TRIES = 6
_NONE: Mapping[str, Any] = {}


class _New(NamedTuple):
    """A job to create.

    If its time is in the future, `head` is the state that `decide` would make.
    """

    place: int
    head: JobState
    body: DefinitionRow
    blob: Blob | None  # the payload, if it is large
    writer: str
    note: Note | None

    @property
    def key(self) -> Key:
        return Key(self.head.tenant, self.head.job_id)

    @property
    def planned(self) -> bool:
        return self.head.timer_at is not None

    def shown(self, head: JobState) -> JobView:
        """Return the view from the request data, without a read of the stored row."""
        if self.blob is None:
            return JobView(head, self.body)
        return JobView(head, replace(self.body, payload=msgspec.json.decode(self.blob.data)))


class JobSubmission:
    def __init__(
        self,
        *,
        heads: JobStates,
        wake: WakeUps,
        steps: ChangeApplier,
        documents: Definitions,
        receipts: IdempotencyKeys,
        clock: Clock,
        new_id: NewId,
        quotas: Quotas,
    ) -> None:
        self._heads = heads
        self._wake = wake
        self._steps = steps
        self._documents = documents
        self._receipts = receipts
        self._clock = clock
        self._new_id = new_id
        self._quotas = quotas

    def submit(
        self, tenant: str, caller: str, wanted: Sequence[Submission], by: Actor | None
    ) -> list[JobView | PunctualError]:
        now = self._clock()  # the time of the request, however long it takes from here
        note = None if by is None else Note(by, JOB_CREATE, now)
        answers: list[JobView | PunctualError | None] = [None] * len(wanted)
        fresh = [self._new_id() for _ in wanted]
        new: list[_New] = []
        again: list[tuple[int, Key]] = []
        for index, answer in enumerate(self._ids(tenant, wanted, fresh, now)):
            if isinstance(answer, PunctualError):
                answers[index] = answer
            elif answer != fresh[index]:
                again.append((index, Key(tenant, answer)))
            else:
                one, writer = wanted[index], mark_of(answer)
                new.append(self._new(index, tenant, caller, answer, one, writer, note, now))
        standing = self._heads.load([key for _, key in again]) if again else {}
        for index, key in again:
            found = standing.get(key)
            if found is None or found.head.blank:  # the first request crashed before its swap
                one, writer = wanted[index], mark_of(fresh[index])
                new.append(self._new(index, tenant, caller, key.job_id, one, writer, note, now))
            else:
                answers[index] = self._present(key, found.head)
        self._create(self._within(tenant, new, answers), answers)
        return [answer for answer in answers if answer is not None]

    def repeated(self, tenant: str, idempotency_key: str, fingerprint: str) -> JobView | None:
        """Return the job that an earlier request with this key made, or None.

        The same request may be invalid now because its time has passed.
        """
        job_id = self._receipts.made(tenant, idempotency_key, fingerprint, self._clock())
        if job_id is None:
            return None
        key = Key(tenant, job_id)
        found = self._heads.load([key]).get(key)
        return None if found is None or found.head.blank else self._present(key, found.head)

    def _within(
        self, tenant: str, new: list[_New], answers: list[JobView | PunctualError | None]
    ) -> list[_New]:
        """Return the jobs that the quotas of the tenant allow, the first ones first.

        Jobs of repeated requests do not count.
        """
        if not new:
            return new
        new.sort(key=lambda one: one.place)
        room = self._quotas.jobs(tenant, len(new))
        for one in new[room:]:
            answers[one.place] = too_many_jobs()
        ordered = [one for one in new[:room] if is_order(one.head.schedule, one.head.created_at)]
        granted = self._quotas.orders(tenant, len(ordered)) if ordered else Granted(0)
        refused = {one.place for one in ordered[granted.number :]}
        for place in refused:
            answers[place] = too_many_orders(granted.again_after)
        return [one for one in new[:room] if one.place not in refused]

    def _ids(
        self, tenant: str, wanted: Sequence[Submission], fresh: Sequence[str], now: datetime
    ) -> Sequence[str | PunctualError]:
        if all(one.idempotency_key is None for one in wanted):
            return fresh
        return self._receipts.ids(
            tenant,
            [
                (one.idempotency_key, one.fingerprint, made)
                for one, made in zip(wanted, fresh, strict=True)
            ],
            now,
        )

    def _present(self, key: Key, head: JobState) -> JobView:
        wanted = (key, head.current.body)
        return JobView(head, self._documents.full(self._heads.bodies([wanted])[wanted]))

    def _new(
        self,
        place: int,
        tenant: str,
        caller: str,
        job_id: str,
        asked: Submission,
        writer: str,
        note: Note | None,
        now: datetime,
    ) -> _New:
        """Return a job to create. A job due in the future needs no decision before its timer."""
        ref = f"1-{writer}"
        meaning = compile_definition(asked.document, job_id, ref, now)
        begin = first_mark(meaning.schedule, now, now)
        next_at = next_after(meaning.schedule, begin)
        due_at = next_at
        if next_at is not None and meaning.limits.jitter_ms:
            due_at = next_at + meaning.limits.jitter
        planned = due_at is not None and due_at > now
        head = JobState(  # positional, since keyword arguments cost five times as much
            tenant,
            job_id,
            1 if planned else 0,  # version
            1,  # edition
            1,  # definition
            JobStatus.SCHEDULED,
            meaning.kind,
            now,
            now,
            meaning.schedule,
            {1: meaning.rules},
            meaning.limits,
            begin,
            next_at,
            timer_at=due_at if planned else None,
            writers=(writer,) if planned else (),
            notify=meaning.notify,
        )
        body, blob = self._documents.body(Key(tenant, job_id), asked.document, ref, 1, now, caller)
        return _New(place, head, body, blob, writer, note)

    def _create(self, new: Sequence[_New], answers: list[JobView | PunctualError | None]) -> None:
        self._documents.put([(one.body, one.blob) for one in new])
        lost = self._plan([one for one in new if one.planned], answers)
        lost = [one for one in new if not one.planned] + self._rebase(lost, answers)
        for _ in range(TRIES):
            if not lost:
                return
            lost = self._rebase(self._decide(lost, answers), answers)
        for one in lost:
            answers[one.place] = Unavailable("The job could not be stored: try again.")

    def _plan(
        self, new: Sequence[_New], answers: list[JobView | PunctualError | None]
    ) -> list[_New]:
        """Put timers, then swap job states. Return the jobs with a lost swap.

        The job state names its timer, so no further step follows.
        """
        if not new:
            return []
        placing, begun = self._steps.placing, self._steps.clocks.read()
        timers: Sequence[Timer] = [
            placing.timer(one.key, one.head.timer_at, 1, begun.wall)
            for one in new
            if one.head.timer_at is not None
        ]
        timers = self._steps.timers.put(timers, begun)
        won = self._heads.swap([Swap(one.head, 0, _NONE, _NONE, one.note) for one in new])
        lost = []
        for one, stored in zip(new, won, strict=True):
            if stored:
                answers[one.place] = one.shown(one.head)
            else:
                lost.append(one)
        self._wake.nudge(timers)
        return lost

    def _decide(
        self, new: Sequence[_New], answers: list[JobView | PunctualError | None]
    ) -> list[_New]:
        """Create jobs that are due now and fire them in the same swap. Return the lost ones."""
        results = self._steps.create(
            [
                (Change(one.key, Evaluate(), one.writer, safety=True, note=one.note), one.head)
                for one in new
            ]
        )
        lost = []
        for one, result in zip(new, results, strict=True):
            if result.decision is None:
                lost.append(one)
            else:
                answers[one.place] = one.shown(result.decision.head)
        return lost

    def _rebase(
        self, lost: Sequence[_New], answers: list[JobView | PunctualError | None]
    ) -> list[_New]:
        """Return the lost jobs at the version of their row.

        A blank row may hold the place, because a timer was evaluated before the creation.
        """
        if not lost:
            return []
        keys = [one.key for one in lost]
        standing = self._heads.load(keys)
        again = []
        for one, key in zip(lost, keys, strict=True):
            found = standing.get(key)
            if found is not None and not found.head.blank:
                answers[one.place] = self._present(key, found.head)
            else:
                version = 0 if found is None else found.head.version
                base = replace(one.head, version=version, timer_at=None, writers=())
                again.append(one._replace(head=base))
        return again
