"""The poller: a step evaluates due timers and returns when to step again. It never sleeps."""

import heapq
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import BUCKET_LENGTH
from punctual.domain.leases import POLLER_LEASE
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.evaluation_retries import EvaluationRetries
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.partitions import PartitionLease, Partitions, TimerPartition
from punctual.engine.ports.timers import Timer, Timers

TIMER_WINDOW_PAGE_SIZE = 2_000
MAX_TIMER_BATCH = 500
BUCKET_CLOSE_DELAY = timedelta(seconds=15)  # 5 s of clock skew, and 10 s for a slow put
# Shortest pause before a timer that was too early is evaluated again.
EARLY_TIMER_DELAY = timedelta(seconds=1)
POLLER_LEASE_RENEWAL = timedelta(seconds=20)


class _ReadPosition:
    """The position in a partition. Timers before `read_until_at` are in the heap or consumed."""

    __slots__ = ("cursor", "is_complete", "read_until_at")

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.read_until_at: datetime | None = None
        self.is_complete = False


class TimerWindow:
    """The timers of some partitions, soonest first, read page by page to bound the memory.

    It knows each timer until `forget`.
    """

    def __init__(self, timers: Timers, page_size: int = TIMER_WINDOW_PAGE_SIZE) -> None:
        self._timers = timers
        self._page_size = page_size
        self._positions: dict[TimerPartition, _ReadPosition] = {}
        self._heap: list[tuple[tuple[datetime, str, str, int], Timer]] = []
        self._known_timers: set[Timer] = set()
        # Number of known timers by partition.
        self._timer_counts: Counter[TimerPartition] = Counter()

    @property
    def partitions(self) -> Sequence[TimerPartition]:
        return list(self._positions)

    def __len__(self) -> int:
        return len(self._heap)

    def add_partition(self, partition: TimerPartition) -> None:
        if partition not in self._positions:
            self._positions[partition] = _ReadPosition()

    def remove_partition(self, partition: TimerPartition) -> None:
        self._positions.pop(partition, None)
        if not self._timer_counts[partition]:
            del self._timer_counts[partition]

    def has_timers(self, partition: TimerPartition) -> bool:
        """Return True if the partition has known timers that are not consumed."""
        return self._timer_counts[partition] > 0

    def reread(self, partition: TimerPartition) -> None:
        """Read the partition from its start again. Known timers are not taken twice."""
        if partition in self._positions:
            self._positions[partition] = _ReadPosition()

    def add_timers(self, timers: Sequence[Timer]) -> None:
        """Add new timers, except those that a later page returns anyway."""
        for timer in timers:
            partition = TimerPartition(timer.bucket, timer.shard)
            position = self._positions.get(partition)
            if position is None:
                continue
            if position.is_complete or (
                position.read_until_at and timer.at < position.read_until_at
            ):
                self._push(timer)
            elif timer.at == position.read_until_at:  # before or after the cursor
                if len(self._heap) < self._page_size:
                    self._push(timer)
                else:
                    self.reread(partition)

    def fill(self) -> None:
        """Read pages while there is room, the earliest partition first."""
        for partition in sorted(self._positions):
            position = self._positions[partition]
            while not position.is_complete and len(self._heap) < self._page_size:
                self._read_page(partition, position)

    def _read_page(self, partition: TimerPartition, position: _ReadPosition) -> None:
        page = self._timers.due(
            partition.bucket,
            partition.shard,
            datetime.max.replace(tzinfo=partition.bucket.tzinfo),
            position.cursor,
            self._page_size,
        )
        for timer in page.timers:
            self._push(timer)
        if page.timers:
            position.read_until_at = page.timers[-1].at
        position.cursor, position.is_complete = page.cursor, page.cursor is None

    def _push(self, timer: Timer) -> None:
        if timer not in self._known_timers:
            self._known_timers.add(timer)
            self._timer_counts[TimerPartition(timer.bucket, timer.shard)] += 1
            heapq.heappush(self._heap, (timer.sort_key, timer))

    def take(self, until: datetime, limit: int) -> list[Timer]:
        """Take the soonest timers that are due by `until`. They stay known until `forget`."""
        timers: list[Timer] = []
        while self._heap and len(timers) < limit and self._heap[0][1].at <= until:
            timers.append(heapq.heappop(self._heap)[1])
        return timers

    def put_back(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            heapq.heappush(self._heap, (timer.sort_key, timer))

    def forget(self, timers: Sequence[Timer]) -> None:
        known_timers = self._known_timers.intersection(timers)
        self._known_timers -= known_timers
        for partition, count in Counter(
            [(timer.bucket, timer.shard) for timer in known_timers]
        ).items():
            self._timer_counts[TimerPartition(*partition)] -= count

    def reread_all(self) -> None:
        """Forget all timers that were read, after a transaction was rolled back."""
        self._heap, self._known_timers, self._timer_counts = [], set(), Counter()
        self._positions = {partition: _ReadPosition() for partition in self._positions}

    def next_timer_at(self) -> datetime | None:
        """Return when the soonest timer is due. Later pages of a partition are not earlier."""
        return self._heap[0][1].at if self._heap else None

    def pending_timers(self) -> list[Timer]:
        """Return the known timers that are not taken, in no order."""
        return [timer for _, timer in self._heap]


class StepResult(NamedTuple):
    """The number of timers in a step, and when the next step is due (None: no timer is known)."""

    timer_count: int
    next_step_at: datetime | None


class Poller:
    """Holds leases on partitions and evaluates their timers on time.

    `fire_ahead` is how long before its time an occurrence may be fired. Then only the send is left.
    `batch_size` bounds the timers of one step, and `page_size` those of one read.
    """

    def __init__(
        self,
        timers: Timers,
        partitions: Partitions,
        evaluator: Evaluator,
        fire_ahead: timedelta = timedelta(0),
        *,
        batch_size: int = MAX_TIMER_BATCH,
        page_size: int = TIMER_WINDOW_PAGE_SIZE,
        retries: EvaluationRetries | None = None,
    ) -> None:
        self._timers = timers
        self._partitions = partitions
        self._evaluator = evaluator
        self._fire_ahead = fire_ahead
        self._batch_size = batch_size
        self._window = TimerWindow(timers, page_size)
        self._leases: dict[TimerPartition, PartitionLease] = {}
        self._delayed_timers: list[tuple[datetime, Timer]] = []
        self._retries = EvaluationRetries() if retries is None else retries

    @property
    def leased_partitions(self) -> Sequence[TimerPartition]:
        return list(self._leases)

    def add_partition(self, lease: PartitionLease) -> None:
        partition = TimerPartition(lease.bucket, lease.shard)
        self._leases[partition] = lease
        self._window.add_partition(partition)

    def add_timers(self, timers: Sequence[Timer]) -> None:
        self._window.add_timers(timers)

    def reread_all(self) -> None:
        """Forget the timers and read them again, after a transaction was rolled back."""
        self._delayed_timers = []
        self._window.reread_all()

    def clear_delays(self) -> None:
        """Evaluate delayed timers now. The clock was set, so their times no longer apply."""
        self._retries = EvaluationRetries()
        self.reread_all()

    def step(self, now: datetime) -> StepResult:
        """Evaluate at most a batch of due timers, and close the partitions that are empty."""
        fire_ahead = self._current_fire_ahead(now)
        self._return_delayed(now)
        self._renew_leases(now)
        self._window.fill()
        due = self._window.take(now + fire_ahead, self._batch_size)
        if due:
            self._evaluate(due, now, fire_ahead)
        if not len(self._window):
            self._window.fill()
        self._close_partitions(now)
        return StepResult(len(due), self.next_step_at(now))

    def _current_fire_ahead(self, _now: datetime) -> timedelta:
        """Return how long before its time an occurrence may be fired in this step."""
        return self._fire_ahead

    def _evaluate(self, due: Sequence[Timer], now: datetime, fire_ahead: timedelta) -> None:
        try:
            evaluations = self._evaluator.evaluate_timers(due, fire_ahead)
        except Unavailable:
            retry_at = self._retries.unanswered_retry_at(now)
            self._delayed_timers.extend((retry_at, timer) for timer in due)
            raise
        self._retries.reset_unanswered()
        self.record_results(evaluations, now)

    def record_results(
        self, evaluations: Sequence[tuple[Sequence[Timer], Result]], now: datetime
    ) -> None:
        consumed_timers: list[Timer] = []
        for trigger_timers, result in evaluations:
            if result.has_failed:
                self._delay_or_park(trigger_timers, now, result.is_newer_format)
                continue
            if not result.effects_done or result.is_contended:
                retry_at = self._retries.incomplete_retry_at(trigger_timers[0].key, now)
                self._delayed_timers.extend((retry_at, timer) for timer in trigger_timers)
                continue
            if self._retries:
                self._retries.forget(trigger_timers[0].key)
            if result.remaining_timers:
                consumed_timers.extend(
                    timer for timer in trigger_timers if timer not in result.remaining_timers
                )
                self._delayed_timers.extend(
                    (max(timer.at, now + EARLY_TIMER_DELAY), timer)
                    for timer in result.remaining_timers
                )
            else:
                consumed_timers.extend(trigger_timers)
        self._window.forget(consumed_timers)

    def _delay_or_park(
        self, trigger_timers: Sequence[Timer], now: datetime, is_newer_format: bool
    ) -> None:
        """Delay the timers of a failed evaluation, and delete them after the last try.

        The reconciler puts a new timer later. If only a later version of Punctual can read the
        state, the timers stay, and the watermark does not pass them.
        """
        key = trigger_timers[0].key
        retry_at = self._retries.failed_retry_at(key, now, never_parks=is_newer_format)
        if retry_at is not None:
            self._delayed_timers.extend((retry_at, timer) for timer in trigger_timers)
            return
        self._timers.delete(trigger_timers)
        self._window.forget(trigger_timers)
        self._evaluator.log("look_set_aside", job_id=key.job_id)

    def _return_delayed(self, now: datetime) -> None:
        if self._delayed_timers:
            due = [timer for retry_at, timer in self._delayed_timers if retry_at <= now]
            self._delayed_timers = [
                (retry_at, timer) for retry_at, timer in self._delayed_timers if retry_at > now
            ]
            self._window.put_back(due)

    def _renew_leases(self, now: datetime) -> None:
        for partition, lease in list(self._leases.items()):
            if lease.expires_at - now > POLLER_LEASE_RENEWAL:
                continue
            renewed_lease = self._partitions.renew(lease, now + POLLER_LEASE)
            if renewed_lease is None:
                self._lease_again(partition, lease, now)
            else:
                self._leases[partition] = renewed_lease

    def _lease_again(self, partition: TimerPartition, lease: PartitionLease, now: datetime) -> None:
        """Lease the partition again after a signal of new timers, and read it anew.

        If another poller has it, give it up.
        """
        new_lease = self._partitions.acquire(*partition, lease.owner, now, now + POLLER_LEASE)
        if new_lease is None:
            self._window.remove_partition(partition)
            del self._leases[partition]
        else:
            self._leases[partition] = new_lease
            self._window.reread(partition)

    def _close_partitions(self, now: datetime) -> None:
        """Mark the partitions as done that a consistent read finds empty 15 s after their end."""
        for partition, lease in list(self._leases.items()):
            if (
                partition.bucket + BUCKET_LENGTH + BUCKET_CLOSE_DELAY > now
                or self._window.has_timers(partition)
            ):
                continue
            forever = datetime.max.replace(tzinfo=now.tzinfo)
            page = self._timers.due(
                partition.bucket, partition.shard, forever, None, MAX_TIMER_BATCH
            )
            if page.timers or page.newer_format_count:
                self._window.reread(partition)
            elif self._partitions.mark_done(lease):
                self._window.remove_partition(partition)
                del self._leases[partition]
            else:
                self._lease_again(partition, lease, now)

    def next_step_at(self, now: datetime) -> datetime | None:
        """Return when the next step is due, or None if no lease and no timer is known."""
        times = [retry_at for retry_at, _ in self._delayed_timers]
        next_timer_at = self._window.next_timer_at()
        if next_timer_at is not None:
            # Step when half of `fire_ahead` is left, not as early as possible, so that one batch
            # covers more timers.
            times.append(next_timer_at - self._fire_ahead / 2)
        for partition, lease in self._leases.items():
            times.append(max(lease.expires_at - POLLER_LEASE_RENEWAL, now))
            closes_at = partition.bucket + BUCKET_LENGTH + BUCKET_CLOSE_DELAY
            if not self._window.has_timers(partition):
                times.append(max(closes_at, now))
        return min(times, default=None)
