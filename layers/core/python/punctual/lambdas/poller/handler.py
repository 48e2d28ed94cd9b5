"""Runs a poller from a wake-up until no timer is near."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.sqs.wakeups import SqsWakeUps, parse_wake
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import EarlyMessages
from punctual.engine.dispatch.on_demand.planner import SHARE
from punctual.engine.dispatch.on_demand.poller import READ, OnDemandPoller
from punctual.engine.dispatch.on_demand.throughput import A_CORE, Pace
from punctual.engine.dispatch.on_demand.wakeup_times import MANY, WARM, WakeUp, wake_at
from punctual.engine.dispatch.poller import AGAIN, LEASE
from punctual.engine.dispatch.retries import EvaluationRetries
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import Buckets, TimerPartition
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps
from punctual.lambdas.planner.handler import Calls
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric, Telemetry, of_engine

GAP = timedelta(seconds=2.5)  # a longer sleep costs more than a new invocation
OFTEN = timedelta(seconds=1)  # time between two checks for new timers
SPARE = timedelta(seconds=15)  # reserved time of an invocation to hand over partitions
_ONE = timedelta(seconds=1)  # delay of a wake-up, so the leases are released before it arrives
TRIES = 3
PAGES_KNOWN = 4  # a window holds two pages, and as many again may be put meanwhile


class OwnWakeUps:
    """Sends wake-ups for new timers, except for partitions that this poller holds."""

    def __init__(self, others: WakeUps) -> None:
        self._others = others
        self.visitor: OnDemandPoller | None = None

    def nudge(self, timers: Sequence[Timer]) -> None:
        mine = set(self.visitor.places if self.visitor else ())
        foreign = [
            timer for timer in timers if TimerPartition(timer.bucket, timer.shard) not in mine
        ]
        if self.visitor is not None:
            self.visitor.nudge([timer for timer in timers if timer not in foreign])
        if foreign:
            self._others.nudge(foreign)

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        self._others.kill(key, run_ids)


class PollerSession:
    """The work of one invocation. All its lasting state is in the store."""

    def __init__(
        self,
        *,
        visitor: OnDemandPoller,
        timers: Timers,
        buckets: Buckets,
        calls: Calls,
        owner: str,
        clock: Clock,
        pause: Callable[[float], None],
        is_open: Callable[[], bool],
        tell: Telemetry,
    ) -> None:
        self._visitor = visitor
        self._timers = timers
        self._buckets = buckets
        self._calls = calls
        self._owner = owner
        self._clock = clock
        self._pause = pause
        self._is_open = is_open
        self._tell = tell

    def run(self, places: Sequence[TimerPartition], until: datetime) -> None:
        """Work on these partitions until `until`. Send wake-ups for the rest."""
        if not self._is_open():
            self._tell("dispatch_is_off", places=len(places))
            return
        try:
            self._stay(sorted(set(places)), until)
        except Unavailable:
            # without this no poller could take them before the leases expire
            self._visitor.leave(self._clock())
            raise

    def _stay(self, places: Sequence[TimerPartition], until: datetime) -> None:
        self._enter(places)
        noticed = self._clock()
        while self._visitor.places:
            now = self._clock()
            if now >= until or not self._is_open():
                self._hand_over(now)
                return
            if now - noticed >= OFTEN:
                self._visitor.notice(now)
                noticed = now
            if self._step(now):
                self._rest(self._clock())

    def _step(self, now: datetime) -> bool:
        """Evaluate the due timers. Return false if the store did not answer."""
        try:
            self._visitor.step(now)
        except Unavailable as error:
            self._tell.problem("look_failed", error=error.message)
            self._pause(AGAIN.total_seconds())
            return False
        return True

    def _rest(self, now: datetime) -> None:
        """Sleep until the next timer, or leave if it is far."""
        at = self._visitor.next_at(now)
        if at is None:
            self._visitor.leave(now)
        elif at - now > GAP and not self._visitor.holds:
            needed = self._visitor.needed_at() or at
            self._calls.call_all([WakeUp(tuple(self._visitor.soonest()), needed - WARM)])
            self._visitor.leave(now)
        elif at > now:
            self._pause(min(at - now, OFTEN).total_seconds())

    def _hand_over(self, now: datetime) -> None:
        """Send the messages of fired runs and leave.

        A wake-up starts another poller in a second.
        """
        self._visitor.send_all()
        if self._is_open():
            self._calls.call_all([WakeUp(tuple(self._visitor.places), now + _ONE)])
        self._tell("handed_over", places=len(self._visitor.places))
        for _ in range(TRIES):
            if self._visitor.leave(now):
                return

    def _enter(self, places: Sequence[TimerPartition]) -> None:
        """Take the partitions that need work now, and send wake-ups for the others.

        The first read needs no lease, so an empty or distant partition costs none.
        """
        weight = 0
        calls: list[WakeUp] = []
        for place in places:
            forever = datetime.max.replace(tzinfo=place.bucket.tzinfo)
            found = self._timers.due(*place, forever, None, MANY).timers
            if not found:
                continue
            now, at = self._clock(), wake_at([timer.at for timer in found], WARM)
            if at - now > GAP:
                calls.append(WakeUp((place,), at))
            elif weight and weight + len(found) > SHARE:
                calls.append(WakeUp((place,), now + _ONE))
            elif self._take(place, now):
                weight += SHARE if len(found) >= MANY else len(found)
        if calls:
            self._calls.call_all(calls)

    def _take(self, place: TimerPartition, now: datetime) -> bool:
        """Take the lease of a partition, or notify the poller that holds it.

        Return whether it is taken.
        """
        for _ in range(TRIES):
            lease = self._buckets.acquire(*place, self._owner, now, now + LEASE)
            if lease is not None:
                self._visitor.open(lease)
                return True
            if self._buckets.nudge(*place) is not None:
                return False
        raise Unavailable("A place changed hands too often.")


class PollerHandler:
    """Handles wake-ups.

    While warm it counts failed evaluations, so a failing job is parked in time.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._failing = EvaluationRetries()

    @cached_property
    def _wake(self) -> SqsWakeUps:
        return self._runtime.ports.wake.from_poller()

    @cached_property
    def _timers(self) -> DynamoTimers:
        """Return timers with a cache of rows read. Without it each delete would query first."""
        pages = int(self._pace.fired * READ) * PAGES_KNOWN
        return self._runtime.ports.timers.knowing(pages)

    @property
    def _pace(self) -> Pace:
        return A_CORE.on(self._runtime.share)

    def answer(self, event: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Handle a batch of wake-ups within `seconds`. Return the ones to deliver again."""
        tell = self._runtime.tell
        places: list[TimerPartition] = []
        poison: list[str] = []
        taken: list[str] = []
        for record in event["Records"]:
            try:
                places += parse_wake(record["body"])
                taken.append(record["messageId"])
            except Invalid as error:
                poison.append(record["messageId"])
                tell.problem("wake_up_refused", message_id=poison[-1], error=error.message)
        with tell.told():
            until = self._runtime.clock() + timedelta(seconds=seconds) - SPARE
            failed = self._visit(places, until) if places else False
        again = [*poison, *taken] if failed else poison
        return {"batchItemFailures": [{"itemIdentifier": one} for one in again]}

    def _visit(self, places: Sequence[TimerPartition], until: datetime) -> bool:
        """Run one session. Return whether it failed, so that all wake-ups are delivered again."""
        runtime, ports, clock = self._runtime, self._runtime.ports, self._runtime.clock
        early, wake = EarlyMessages(ports.messages, clock, self._pace), OwnWakeUps(self._wake)
        steps = ChangeApplier(
            heads=ports.heads,
            timers=self._timers,
            buckets=ports.buckets,
            history=ports.history,
            messages=early,
            notices=ports.notices,
            wake=wake,
            clock=clock,
            monotonic=runtime.steady,
            log=of_engine(runtime.tell),
        )
        visitor = OnDemandPoller(
            timers=self._timers,
            buckets=ports.buckets,
            held=ports.buckets,
            looker=Evaluator(steps, runtime.new_id),
            early=early,
            failing=self._failing,
            pace=self._pace,
        )
        wake.visitor = visitor
        visit = PollerSession(
            visitor=visitor,
            timers=self._timers,
            buckets=ports.buckets,
            calls=self._wake,
            owner=f"{runtime.name}/{runtime.new_id()}",
            clock=clock,
            pause=runtime.pause,
            is_open=runtime.gate.open,
            tell=runtime.tell,
        )
        failed = False
        try:
            visit.run(places, until)
        except Unavailable as error:
            runtime.tell.problem("visit_failed", error=error.message, places=len(places))
            failed = True
        _measure(runtime.tell, visitor, early)
        return failed


def _measure(tell: Telemetry, visitor: OnDemandPoller, early: EarlyMessages) -> None:
    found = {
        Metric.DUE: visitor.handled,
        Metric.DISPATCHED: early.sent,
        Metric.MISSED: visitor.missed,
    }
    for metric, value in found.items():
        if value:
            tell.measure(metric, value)
    tell("visit", due=visitor.handled, dispatched=early.sent, missed=visitor.missed)
