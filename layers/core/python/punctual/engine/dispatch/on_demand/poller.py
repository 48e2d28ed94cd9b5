"""A poller that a wake-up starts, and that ends as soon as no timer is near."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import LONGEST, EarlyMessages
from punctual.engine.dispatch.on_demand.throughput import Pace, begin_at
from punctual.engine.dispatch.on_demand.wakeup_times import AHEAD, EARLY, FIRE, READY, SEND
from punctual.engine.dispatch.poller import BATCH, Poller, Stepped
from punctual.engine.dispatch.retries import EvaluationRetries
from punctual.engine.ports.partitions import Buckets, HeldPartition, TimerPartition
from punctual.engine.ports.timers import Timer, Timers

READ = 60  # seconds of work that the window holds
RELEASED = 1_000  # messages sent in one step
AT_ONCE = 100  # smallest batch; takes 0.8 s with the least memory


class OnDemandPoller(Poller):
    """A poller that closes no partition. The planner reads each one after its end."""

    def __init__(
        self,
        *,
        timers: Timers,
        buckets: Buckets,
        held: HeldPartition,
        looker: Evaluator,
        early: EarlyMessages,
        failing: EvaluationRetries,
        pace: Pace,
    ) -> None:
        super().__init__(
            timers,
            buckets,
            looker,
            AHEAD,
            # Half a second of work, because held messages wait in the meantime.
            batch=min(BATCH, max(AT_ONCE, int(pace.fired / 2))),
            page=int(pace.fired * READ),
            failing=failing,
        )
        self._pace = pace
        self._held = held
        self._early = early
        self.handled = 0
        self.missed = 0

    def step(self, now: datetime) -> Stepped:
        """Send messages that are near, then fire: soon due runs, or a burst a minute ahead."""
        self._release(now, now + self._early.lead)
        stepped = super().step(now)
        self.handled += stepped.handled
        return stepped

    def _reach(self, now: datetime) -> timedelta:
        soonest, begin = self._window.next_at(), self._begin_at()
        if soonest is None or begin is None or begin > now:
            return timedelta(0)
        return AHEAD if soonest - FIRE <= now else EARLY

    def settle(self, looked: Sequence[tuple[Sequence[Timer], Result]], now: datetime) -> None:
        for _, result in looked:
            if result.decision is not None:
                self.missed += sum(
                    run.count for run in result.decision.records if run.status is RunStatus.MISSED
                )
        super().settle(self._early.adopt(looked), now)

    @property
    def holds(self) -> bool:
        """Return True if messages are held. No other poller sends them on time."""
        return self._early.next_at() is not None

    def send_all(self) -> None:
        """Send all held messages. An executor returns a message that is early."""
        while (at := self._early.next_at()) is not None:
            self._release(at, at + LONGEST)

    def _release(self, now: datetime, until: datetime) -> None:
        released = self._early.release(until, RELEASED)
        if released.gone:
            self._timers.delete(released.gone)
        if released.looked:
            super().settle(released.looked, now)

    def _close(self, now: datetime) -> None:
        """Close no partition."""

    def next_at(self, _now: datetime) -> datetime | None:
        """Return when work is due, without regard to lease renewals."""
        return self._soonest(FIRE)

    def needed_at(self) -> datetime | None:
        """Return the latest time a poller must run. One already running starts earlier."""
        return self._soonest(SEND + READY)

    def _soonest(self, before: timedelta) -> datetime | None:
        moments = [at for at, _ in self._later]
        for at in (self._begin_at(before), self._early.next_at()):
            if at is not None:
                moments.append(at)
        return min(moments, default=None)

    def _begin_at(self, before: timedelta = FIRE) -> datetime | None:
        """Return when to begin, so that the runs of each second are fired in time.

        The result is at most a minute before the first timer.
        """
        soonest = self._window.next_at()
        if soonest is None:
            return None
        begin = begin_at([timer.at for timer in self._window.waiting()], self._pace) - SEND
        begin -= self._early.sending  # held messages are sent first
        return max(min(begin, soonest - before), soonest - EARLY)

    def soonest(self) -> Mapping[TimerPartition, datetime]:
        """Return when the earliest timer of each leased partition is due."""
        found: dict[TimerPartition, datetime] = {}
        waiting = [(timer.at, timer) for timer in self._window.waiting()] + self._later
        for at, timer in waiting:
            place = TimerPartition(timer.bucket, timer.shard)
            found[place] = min(at, found.get(place, at))
        return {place: at for place, at in found.items() if place in self._leases}

    def notice(self, now: datetime) -> None:
        """Read partitions with new timers again, and give up those of other pollers."""
        standing = self._held.held(self.places)
        for place, lease in list(self._leases.items()):
            found = standing.get(place)
            if found is None or (found.token, found.look) != (lease.token, lease.look):
                self._take_again(place, lease, now)

    def leave(self, now: datetime) -> bool:
        """Release all leases. Return False if a signal of new timers came for one."""
        for place, lease in list(self._leases.items()):
            if self._buckets.give_back(lease):
                self._window.close(place)
                del self._leases[place]
            else:
                self._take_again(place, lease, now)
        return not self._leases
