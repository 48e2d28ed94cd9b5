"""The poller: a step, (now) → effects and when to step again. It never sleeps."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.retries import EvaluationRetries
from punctual.engine.dispatch.timer_window import TimerPartition, TimerWindow
from punctual.engine.ports.partitions import BucketLease, Buckets
from punctual.engine.ports.timers import Timer, Timers

BATCH = 500
BUCKET = timedelta(minutes=1)
GRACE = timedelta(seconds=15)  # 5 s of skew, and the 10 s that a write may take
AGAIN = timedelta(seconds=1)  # what was too early is looked at again after this, at the soonest
LEASE = timedelta(seconds=60)
RENEW = timedelta(seconds=20)


class Stepped(NamedTuple):
    """What a step did, and when the next is due (None: nothing to wait for)."""

    handled: int
    next_at: datetime | None


class Poller:
    """Holds leases on places and looks at their timers on time.

    `ahead`: how long before its time an occurrence may be fired, so that only sending is left.
    """

    def __init__(
        self,
        timers: Timers,
        buckets: Buckets,
        looker: Evaluator,
        ahead: timedelta = timedelta(0),
    ) -> None:
        self._timers = timers
        self._buckets = buckets
        self._looker = looker
        self._ahead = ahead
        self._batch = BATCH
        self._window = TimerWindow(timers)
        self._leases: dict[TimerPartition, BucketLease] = {}
        self._later: list[tuple[datetime, Timer]] = []
        self._failing = EvaluationRetries()

    @property
    def places(self) -> Sequence[TimerPartition]:
        return list(self._leases)

    def open(self, lease: BucketLease) -> None:
        place = TimerPartition(lease.bucket, lease.shard)
        self._leases[place] = lease
        self._window.open(place)

    def nudge(self, timers: Sequence[Timer]) -> None:
        self._window.add(timers)

    def start_over(self) -> None:
        """After a unit that was undone: read again what stands."""
        self._later = []
        self._window.start_over()

    def forget_pauses(self) -> None:
        """The clock was set: what waits for a moment of the old time is looked at now."""
        self._failing = EvaluationRetries()
        self.start_over()

    def step(self, now: datetime) -> Stepped:
        """Look at what is due, a batch at most; close what is surely empty."""
        self._bring_back(now)
        self._renew(now)
        self._window.fill()
        due = self._window.take(now + self._ahead, self._batch)
        if due:
            self._look(due, now)
        if not len(self._window):
            self._window.fill()
        self._close(now)
        return Stepped(len(due), self.next_at(now))

    def _look(self, due: Sequence[Timer], now: datetime) -> None:
        try:
            looked = self._looker.look(due, self._ahead)
        except Unavailable:
            again = self._failing.unanswered_at(now)
            self._later.extend((again, timer) for timer in due)
            raise
        self._failing.answered()
        self.settle(looked, now)

    def settle(self, looked: Sequence[tuple[Sequence[Timer], Result]], now: datetime) -> None:
        over: list[Timer] = []
        for brought, result in looked:
            if result.failed:
                self._fail(brought, now, result.later)
                continue
            if not result.effects_done or result.contended:
                at = self._failing.undone_at(brought[0].key, now)
                self._later.extend((at, timer) for timer in brought)
                continue
            if self._failing:
                self._failing.mended(brought[0].key)
            if result.kept:
                over.extend(timer for timer in brought if timer not in result.kept)
                self._later.extend((max(timer.at, now + AGAIN), timer) for timer in result.kept)
            else:
                over.extend(brought)
        self._window.forget(over)

    def _fail(self, brought: Sequence[Timer], now: datetime, later: bool) -> None:
        """Again after a pause; in the end not before the reconciler puts a timer once more.

        A head of a later version only waits for that: its timers stay, and the watermark with them.
        """
        key = brought[0].key
        at = self._failing.again_at(key, now, waits=later)
        if at is not None:
            self._later.extend((at, timer) for timer in brought)
            return
        self._timers.delete(brought)
        self._window.forget(brought)
        self._looker.tell("look_set_aside", job_id=key.job_id)

    def _bring_back(self, now: datetime) -> None:
        if self._later:
            ripe = [timer for at, timer in self._later if at <= now]
            self._later = [(at, timer) for at, timer in self._later if at > now]
            self._window.put_back(ripe)

    def _renew(self, now: datetime) -> None:
        for place, lease in list(self._leases.items()):
            if lease.until - now > RENEW:
                continue
            renewed = self._buckets.renew(lease, now + LEASE)
            if renewed is None:
                self._take_again(place, lease, now)
            else:
                self._leases[place] = renewed

    def _take_again(self, place: TimerPartition, lease: BucketLease, now: datetime) -> None:
        """A nudge came: read again what is still ours. Or another has it, and it is let go."""
        taken = self._buckets.acquire(*place, lease.owner, now, now + LEASE)
        if taken is None:
            self._window.close(place)
            del self._leases[place]
        else:
            self._leases[place] = taken
            self._window.reread(place)

    def _close(self, now: datetime) -> None:
        """A bucket is done when it is found empty, consistently, 15 s after its end."""
        for place, lease in list(self._leases.items()):
            if place.bucket + BUCKET + GRACE > now or self._window.has(place):
                continue
            forever = datetime.max.replace(tzinfo=now.tzinfo)
            found = self._timers.due(place.bucket, place.shard, forever, None, BATCH)
            if found.timers or found.later:
                self._window.reread(place)
            elif self._buckets.done(lease):
                self._window.close(place)
                del self._leases[place]
            else:
                self._take_again(place, lease, now)

    def next_at(self, now: datetime) -> datetime | None:
        """When the next step is due; None when nothing is waited for."""
        moments = [at for at, _ in self._later]
        soonest = self._window.next_at()
        if soonest is not None:
            moments.append(soonest - self._ahead / 2)  # by then more have come near: one batch
        for place, lease in self._leases.items():
            moments.append(max(lease.until - RENEW, now))
            closes = place.bucket + BUCKET + GRACE
            if not self._window.has(place):
                moments.append(max(closes, now))
        return min(moments, default=None)
