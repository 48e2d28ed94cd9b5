"""Lets calls wait for the next change, without a thread and without asking the database.

1. A commit with changes of a tenant schedules a release of the tenant's waiting calls.
2. A release lets the calls go that the changes may concern. Equal calls share one answer.
3. Releases keep a distance that grows with the number of calls. So many clients that follow a busy
   node cost a bounded part of its time.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from punctual.domain.errors import LimitExceeded
from punctual.engine.ports.lists.change_feed import ChangeKind
from punctual.engine.queries.slices import SlicedWork
from punctual.node.long_work import LongWork, Turn
from punctual.web.http.request import ChangeWait, Reply, Request
from punctual.web.routing import HandlerResult

MAX_WAITING_CALLS = 250  # for each tenant
MAX_IDLE_TENANTS = 1_000
MAX_READ_SECONDS = 60.0  # from the read of a call until it waits
SECONDS_PER_CALL = 0.02  # of the distance between two releases, for each call of the last one
SHARED_SLICE_SECONDS = 0.001  # of processor time; due runs start between two slices
MAX_LONG_ANSWERS = 4  # of a tenant at once, of its long requests
STAGGER_SECONDS = 0.002  # between two answers of a release
_ONLY_OPERATIONS = frozenset({ChangeKind.OPERATION})


class _SharedAnswer:
    """An answer that equal calls await. It is given up when the last of them has left."""

    def __init__(self, task: "asyncio.Task[Reply]") -> None:
        self._task = task
        self._callers = 0

    @property
    def is_given_up(self) -> bool:
        return self._task.cancelled() or self._task.cancelling() > 0

    async def get(self) -> Reply:
        self._callers += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._callers -= 1
            if not self._callers:
                self._task.cancel()


class _Release(NamedTuple):
    """A release of one call, with the answers that all calls of the release share."""

    answers: dict[str, _SharedAnswer]
    long_answers: asyncio.Semaphore
    place: int


class _WaitingCall(NamedTuple):
    wait: ChangeWait
    release: "asyncio.Future[_Release]"

    def is_concerned(self, job_ids: frozenset[str]) -> bool:
        """Return whether the changes of these jobs may match. Operations have an empty id."""
        filters = self.wait.filters
        if filters.job_id:
            return filters.job_id in job_ids
        return "" in job_ids if filters.kinds == _ONLY_OPERATIONS else bool(job_ids)


class _Tenant:
    """The waiting calls of a tenant. A change makes some of them due for the next release."""

    def __init__(self) -> None:
        self.waiting: list[_WaitingCall] = []
        self.due: list[_WaitingCall] = []
        self.last_row = 0
        self.changed_at = 0.0  # by the clock of the loop
        self.next_release = 0.0  # by the clock of the loop
        self.timer: asyncio.TimerHandle | None = None
        self.long_answers = asyncio.Semaphore(MAX_LONG_ANSWERS)

    def is_idle(self, at: float) -> bool:
        """Return whether no call waits, or has read and is about to wait."""
        return not (self.waiting or self.due) and at - self.changed_at > MAX_READ_SECONDS

    def remove(self, call: _WaitingCall) -> None:
        for calls in (self.waiting, self.due):
            if call in calls:
                calls.remove(call)


class ChangeWaits:
    """The waiting calls by tenant. All methods run on the thread of the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tenants: dict[str, _Tenant] = {}
        self._closed = False

    def on_change(self, name: str, last_row: int, items: Sequence[Sequence[Any]]) -> None:
        """Make the calls of a tenant due that a commit may concern."""
        tenant = self._find(name)
        tenant.last_row, tenant.changed_at = last_row, self._loop.time()
        if tenant.waiting:
            job_ids = frozenset(item[0] for item in items)
            due = [call for call in tenant.waiting if call.is_concerned(job_ids)]
            if due:
                tenant.waiting = [call for call in tenant.waiting if call not in due]
                tenant.due += due
                self._schedule(tenant)

    def must_pause(self, name: str) -> bool:
        """Return whether calls of this tenant were released a moment ago."""
        tenant = self._tenants.get(name)
        return tenant is not None and self._loop.time() < tenant.next_release

    async def wait(self, wait: ChangeWait, seconds: float) -> _Release | None:
        """Return the release of this call, or None if there is none in this time."""
        if self._closed or seconds <= 0:
            return None
        tenant = self._find(wait.tenant)
        if len(tenant.waiting) + len(tenant.due) >= MAX_WAITING_CALLS:
            raise LimitExceeded(
                f"{MAX_WAITING_CALLS} calls wait for changes: try again later, or without "
                "wait_seconds."
            )
        call = _WaitingCall(wait, self._loop.create_future())
        if wait.cursor is None or int(wait.cursor[0]) < tenant.last_row:
            tenant.due.append(call)
            self._schedule(tenant)
        else:
            tenant.waiting.append(call)
        try:
            return await asyncio.wait_for(call.release, seconds)
        except TimeoutError:
            return None
        finally:
            tenant.remove(call)

    def close(self) -> None:
        """Let all calls go, because the node stops."""
        self._closed = True
        for tenant in self._tenants.values():
            for call in (*tenant.waiting, *tenant.due):
                if not call.release.done():
                    call.release.set_exception(TimeoutError())

    def _schedule(self, tenant: _Tenant) -> None:
        if tenant.timer is None:
            delay = max(0.0, tenant.next_release - self._loop.time())
            tenant.timer = self._loop.call_later(delay, self._release, tenant)

    def _release(self, tenant: _Tenant) -> None:
        calls, tenant.due, tenant.timer = tenant.due, [], None
        tenant.next_release = self._loop.time() + SECONDS_PER_CALL * len(calls)
        answers: dict[str, _SharedAnswer] = {}
        for place, call in enumerate(calls):
            if not call.release.done():
                call.release.set_result(_Release(answers, tenant.long_answers, place))

    def _find(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            if len(self._tenants) >= MAX_IDLE_TENANTS:
                self._forget_idle_tenants()
            tenant = self._tenants[name] = _Tenant()
        return tenant

    def _forget_idle_tenants(self) -> None:
        now = self._loop.time()
        for name in [name for name, tenant in self._tenants.items() if tenant.is_idle(now)]:
            del self._tenants[name]


class ChangeCalls:
    """Answers the calls that wait for changes."""

    def __init__(
        self,
        waits: ChangeWaits,
        turn: Turn,
        answer: Callable[[Request], HandlerResult],
        long_work: LongWork,
    ) -> None:
        self._waits = waits
        self._turn = turn
        self._answer = answer
        self._long_work = long_work

    async def finish(self, request: Request, reply: Reply) -> Reply:
        """Return the first reply with changes, or the last one when the time is over."""
        request = request._replace(is_resumed=True)
        loop = asyncio.get_running_loop()
        ends_at = None
        while reply.wait is not None:
            ends_at = ends_at or loop.time() + reply.wait.seconds
            release = await self._waits.wait(reply.wait, ends_at - loop.time())
            if release is None:
                if reply.wait.cursor is not None:
                    return reply
                return await self._read(request, asyncio.Semaphore())
            answer = release.answers.get(request.query)
            if answer is None or answer.is_given_up:
                task = loop.create_task(self._read(request, release.long_answers))
                answer = release.answers[request.query] = _SharedAnswer(task)
            reply = await answer.get()
            await asyncio.sleep(release.place * STAGGER_SECONDS)
        return reply

    async def _read(self, request: Request, long_answers: asyncio.Semaphore) -> Reply:
        """Return the reply of now, in small slices: other work of the node goes on in between.

        Calls of one release read first in one turn, so that they end at the same place.
        """
        reply = await self._turn(partial(self._begin, request))
        if isinstance(reply, Reply):
            return reply
        try:
            async with long_answers:
                tenant = request.caller.tenant
                return await self._long_work.finish(tenant, reply, SHARED_SLICE_SECONDS)
        finally:
            reply.close()

    def _begin(self, request: Request) -> Reply | SlicedWork[Reply]:
        answer = self._answer(request)
        if isinstance(answer, Reply):
            return answer
        return self._long_work.begin(answer, SHARED_SLICE_SECONDS)
