"""Accepting jobs: timer, body and head, many at once, each on its own."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.errors import PunctualError, Unavailable
from punctual.domain.events import Look
from punctual.domain.head import Head, State
from punctual.domain.orders import first_mark
from punctual.domain.schedule import next_after
from punctual.engine.change import Change
from punctual.engine.definition import compiled
from punctual.engine.documents import Documents
from punctual.engine.marks import marks
from punctual.engine.ports import Body, Clock, Key, NewId, Ports
from punctual.engine.receipts import Receipts, Submission
from punctual.engine.steps import Steps
from punctual.engine.views import JobView

TRIES = 6


class _New(NamedTuple):
    place: int
    base: Head
    body: Body
    writer: str

    @property
    def change(self) -> Change:
        return Change(Key(self.base.tenant, self.base.job_id), Look(), self.writer, safety=True)


class Submitting:
    def __init__(
        self,
        ports: Ports,
        steps: Steps,
        documents: Documents,
        receipts: Receipts,
        clock: Clock,
        new_id: NewId,
    ) -> None:
        self._ports = ports
        self._steps = steps
        self._documents = documents
        self._receipts = receipts
        self._clock = clock
        self._new_id = new_id

    def submit(
        self, tenant: str, caller: str, wanted: Sequence[Submission]
    ) -> list[JobView | PunctualError]:
        now = self._clock()  # the moment of the request, however long it takes from here
        answers: list[JobView | PunctualError | None] = [None] * len(wanted)
        asked = [(one.idempotency_key, one.fingerprint, self._new_id()) for one in wanted]
        new: list[_New] = []
        again: list[tuple[int, Key]] = []
        writers = marks(self._new_id, len(wanted))
        for index, answer in enumerate(self._receipts.ids(tenant, asked)):
            if isinstance(answer, PunctualError):
                answers[index] = answer
            elif answer != asked[index][2]:
                again.append((index, Key(tenant, answer)))
            else:
                one = wanted[index]
                new.append(self._new(index, tenant, caller, answer, one, writers[index], now))
        standing = self._ports.heads.load([key for _, key in again]) if again else {}
        for index, key in again:
            found = standing.get(key)
            if found is None or found.head.blank:  # its first request did not get so far
                one = wanted[index]
                new.append(self._new(index, tenant, caller, key.job_id, one, writers[index], now))
            else:
                answers[index] = self._present(key, found.head)
        self._create(new, answers)
        return [answer for answer in answers if answer is not None]

    def _present(self, key: Key, head: Head) -> JobView:
        wanted = (key, head.current.body)
        return JobView(head, self._documents.full(self._ports.heads.bodies([wanted])[wanted]))

    def _new(
        self,
        index: int,
        tenant: str,
        caller: str,
        job_id: str,
        asked: Submission,
        writer: str,
        now: datetime,
    ) -> _New:
        key, ref = Key(tenant, job_id), f"1-{writer}"
        meaning = compiled(asked.document, job_id, ref, now)
        begin = first_mark(meaning.schedule, now, now)
        base = Head(
            tenant=tenant,
            job_id=job_id,
            version=0,
            edition=1,
            definition=1,
            state=State.SCHEDULED,
            kind=meaning.kind,
            created_at=now,
            updated_at=now,
            schedule=meaning.schedule,
            rules={1: meaning.rules},
            limits=meaning.limits,
            mark=begin,
            next_at=next_after(meaning.schedule, begin),
        )
        body = self._documents.body(key, asked.document, ref, 1, now, caller)
        return _New(index, base, body, writer)

    def _create(self, new: Sequence[_New], answers: list[JobView | PunctualError | None]) -> None:
        """A place held by a timer that was faster than us is taken at its version."""
        pending = list(new)
        for _ in range(TRIES):
            if not pending:
                return
            self._ports.heads.put_bodies([one.body for one in pending])
            results = self._steps.create(
                [
                    (
                        Change(
                            Key(one.base.tenant, one.base.job_id), Look(), one.writer, safety=True
                        ),
                        one.base,
                    )
                    for one in pending
                ]
            )
            lost = []
            for one, result in zip(pending, results, strict=True):
                if result.decision is None:
                    lost.append(one)
                else:
                    body = self._documents.full(one.body)
                    answers[one.place] = JobView(result.decision.head, body)
            pending = self._rebase(lost, answers)
        for one in pending:
            answers[one.place] = Unavailable("The job could not be stored: try again.")

    def _rebase(
        self, lost: Sequence[_New], answers: list[JobView | PunctualError | None]
    ) -> list[_New]:
        if not lost:
            return []
        keys = [Key(one.base.tenant, one.base.job_id) for one in lost]
        standing = self._ports.heads.load(keys)
        again = []
        for one, key in zip(lost, keys, strict=True):
            found = standing.get(key)
            if found is not None and not found.head.blank:
                answers[one.place] = self._present(key, found.head)
            else:
                version = 0 if found is None else found.head.version
                again.append(one._replace(base=replace(one.base, version=version)))
        return again
