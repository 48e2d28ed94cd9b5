"""The poller: a step evaluates due timers and returns when to step again. It never sleeps."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.retries import EvaluationRetries
from punctual.engine.dispatch.timer_window import PAGE, TimerWindow
from punctual.engine.ports.partitions import BucketLease, Buckets, TimerPartition
from punctual.engine.ports.timers import Timer, Timers

BATCH = 500
BUCKET = timedelta(minutes=1)
GRACE = timedelta(seconds=15)  # 5 s of clock skew, and 10 s for a slow put
AGAIN = timedelta(seconds=1)  # shortest pause before a timer that was too early is evaluated again
LEASE = timedelta(seconds=60)
RENEW = timedelta(seconds=20)


class Stepped(NamedTuple):
    """The number of timers in a step, and when the next step is due (None: no timer is known)."""

    handled: int
    next_at: datetime | None


class Poller:
    """Holds leases on partitions and evaluates their timers on time.

    `ahead` is how long before its time an occurrence may be fired, so that only the send is left.
    `batch` bounds the timers of one step, and `page` those of one read.
    """

    def __init__(
        self,
        timers: Timers,
        buckets: Buckets,
        looker: Evaluator,
        ahead: timedelta = timedelta(0),
        *,
        batch: int = BATCH,
        page: int = PAGE,
        failing: EvaluationRetries | None = None,
    ) -> None:
        self._timers = timers
        self._buckets = buckets
        self._looker = looker
        self._ahead = ahead
        self._batch = batch
        self._window = TimerWindow(timers, page)
        self._leases: dict[TimerPartition, BucketLease] = {}
        self._later: list[tuple[datetime, Timer]] = []
        self._failing = EvaluationRetries() if failing is None else failing

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
        """Forget the timers and read them again, after a transaction was rolled back."""
        self._later = []
        self._window.start_over()

    def forget_pauses(self) -> None:
        """Evaluate delayed timers now. The clock was set, so their times no longer apply."""
        self._failing = EvaluationRetries()
        self.start_over()

    def step(self, now: datetime) -> Stepped:
        """Evaluate at most a batch of due timers, and close the partitions that are empty."""
        ahead = self._reach(now)
        self._bring_back(now)
        self._renew(now)
        self._window.fill()
        due = self._window.take(now + ahead, self._batch)
        if due:
            self._look(due, now, ahead)
        if not len(self._window):
            self._window.fill()
        self._close(now)
        return Stepped(len(due), self.next_at(now))

    def _reach(self, _now: datetime) -> timedelta:
        """Return how long before its time an occurrence may be fired in this step."""
        return self._ahead

    def _look(self, due: Sequence[Timer], now: datetime, ahead: timedelta) -> None:
        try:
            looked = self._looker.look(due, ahead)
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
        """Delay the timers of a failed evaluation, and delete them after the last try.

        The reconciler puts a new timer later. If only a later version of Punctual can read the
        state, the timers stay, and the watermark does not pass them.
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
        """Lease the partition again after a signal of new timers, and read it anew.

        If another poller has it, give it up.
        """
        taken = self._buckets.acquire(*place, lease.owner, now, now + LEASE)
        if taken is None:
            self._window.close(place)
            del self._leases[place]
        else:
            self._leases[place] = taken
            self._window.reread(place)

    def _close(self, now: datetime) -> None:
        """Mark the partitions as done that a consistent read finds empty 15 s after their end."""
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
        """Return when the next step is due, or None if no lease and no timer is known."""
        moments = [at for at, _ in self._later]
        soonest = self._window.next_at()
        if soonest is not None:
            moments.append(soonest - self._ahead / 2)  # so that one batch takes more timers
        for place, lease in self._leases.items():
            moments.append(max(lease.until - RENEW, now))
            closes = place.bucket + BUCKET + GRACE
            if not self._window.has(place):
                moments.append(max(closes, now))
        return min(moments, default=None)
