"""A poller that a wake-up starts, and that ends as soon as no timer is near."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.evaluation_retries import EvaluationRetries
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import MAX_EARLY_SEND, HeldMessages
from punctual.engine.dispatch.on_demand.wakeup_times import (
    FIRE_BATCH_SPAN,
    FIRE_LEAD,
    MAX_FIRE_AHEAD,
    POLLER_SETUP_DURATION,
    SEND_LEAD,
    Throughput,
    begin_at,
)
from punctual.engine.dispatch.poller import MAX_TIMER_BATCH, Poller, StepResult
from punctual.engine.ports.partitions import PartitionLeases, Partitions, TimerPartition
from punctual.engine.ports.timers import Timer, Timers

WINDOW_WORK_SECONDS = 60  # of work that the window holds
MAX_RELEASED_MESSAGES = 1_000  # messages sent in one step
MIN_TIMER_BATCH = 100  # smallest batch; takes 0.8 s with the least memory


class OnDemandPoller(Poller):
    """A poller that closes no partition. The planner reads each one after its end."""

    def __init__(
        self,
        *,
        timers: Timers,
        partitions: Partitions,
        partition_leases: PartitionLeases,
        evaluator: Evaluator,
        held_messages: HeldMessages,
        retries: EvaluationRetries,
        throughput: Throughput,
    ) -> None:
        super().__init__(
            timers,
            partitions,
            evaluator,
            FIRE_BATCH_SPAN,
            # Half a second of work, because held messages wait in the meantime.
            batch_size=min(
                MAX_TIMER_BATCH, max(MIN_TIMER_BATCH, int(throughput.fired_per_second / 2))
            ),
            page_size=int(throughput.fired_per_second * WINDOW_WORK_SECONDS),
            retries=retries,
        )
        self._throughput = throughput
        self._partition_leases = partition_leases
        self._held_messages = held_messages
        self.timer_count = 0
        self.missed_count = 0

    def step(self, now: datetime) -> StepResult:
        """Send messages that are near, then fire: soon due runs, or a burst a minute ahead."""
        self._release(now, now + self._held_messages.send_lead)
        result = super().step(now)
        self.timer_count += result.timer_count
        return result

    def _current_fire_ahead(self, now: datetime) -> timedelta:
        next_timer_at, begin_time = self._window.next_timer_at(), self._begin_at()
        if next_timer_at is None or begin_time is None or begin_time > now:
            return timedelta(0)
        return FIRE_BATCH_SPAN if next_timer_at - FIRE_LEAD <= now else MAX_FIRE_AHEAD

    def record_results(
        self, evaluations: Sequence[tuple[Sequence[Timer], Result]], now: datetime
    ) -> None:
        for _, result in evaluations:
            if result.decision is not None:
                self.missed_count += sum(
                    run.occurrence_count
                    for run in result.decision.runs_to_record
                    if run.status is RunStatus.MISSED
                )
        super().record_results(self._held_messages.hold_back(evaluations), now)

    @property
    def has_held_messages(self) -> bool:
        """Return True if messages are held. No other poller sends them on time."""
        return self._held_messages.next_send_at() is not None

    def send_held_messages(self) -> None:
        """Send all held messages. An executor returns a message that is early."""
        while (send_at := self._held_messages.next_send_at()) is not None:
            self._release(send_at, send_at + MAX_EARLY_SEND)

    def _release(self, now: datetime, until: datetime) -> None:
        released = self._held_messages.release(until, MAX_RELEASED_MESSAGES)
        if released.consumed_timers:
            self._timers.delete(released.consumed_timers)
        if released.evaluations:
            super().record_results(released.evaluations, now)

    def _close_partitions(self, now: datetime) -> None:
        """Close no partition."""

    def next_step_at(self, _now: datetime) -> datetime | None:
        """Return when work is due, without regard to lease renewals."""
        return self._next_work_at(FIRE_LEAD)

    def latest_start_at(self) -> datetime | None:
        """Return the latest time a poller must run. One already running starts earlier."""
        return self._next_work_at(SEND_LEAD + POLLER_SETUP_DURATION)

    def _next_work_at(self, lead: timedelta) -> datetime | None:
        times = [at for at, _ in self._delayed_timers]
        for at in (self._begin_at(lead), self._held_messages.next_send_at()):
            if at is not None:
                times.append(at)
        return min(times, default=None)

    def _begin_at(self, lead: timedelta = FIRE_LEAD) -> datetime | None:
        """Return when to begin, so that the runs of each second are fired in time.

        The result is at most a minute before the first timer.
        """
        next_timer_at = self._window.next_timer_at()
        if next_timer_at is None:
            return None
        begin_time = (
            begin_at([timer.at for timer in self._window.pending_timers()], self._throughput)
            - SEND_LEAD
        )
        begin_time -= self._held_messages.send_duration  # held messages are sent first
        return max(min(begin_time, next_timer_at - lead), next_timer_at - MAX_FIRE_AHEAD)

    def next_timer_by_partition(self) -> Mapping[TimerPartition, datetime]:
        """Return when the earliest timer of each leased partition is due."""
        next_times: dict[TimerPartition, datetime] = {}
        pending = [
            (timer.at, timer) for timer in self._window.pending_timers()
        ] + self._delayed_timers
        for at, timer in pending:
            partition = TimerPartition(timer.bucket, timer.shard)
            next_times[partition] = min(at, next_times.get(partition, at))
        return {partition: at for partition, at in next_times.items() if partition in self._leases}

    def reread_changed_partitions(self, now: datetime) -> None:
        """Read partitions with new timers again, and give up those of other pollers."""
        valid_leases = self._partition_leases.valid_leases(self.leased_partitions)
        for partition, lease in list(self._leases.items()):
            valid_lease = valid_leases.get(partition)
            if valid_lease is None or (valid_lease.token, valid_lease.signal_count) != (
                lease.token,
                lease.signal_count,
            ):
                self._lease_again(partition, lease, now)

    def release_leases(self, now: datetime) -> bool:
        """Release all leases. Return False if a signal of new timers came for one."""
        for partition, lease in list(self._leases.items()):
            if self._partitions.release(lease):
                self._window.remove_partition(partition)
                del self._leases[partition]
            else:
                self._lease_again(partition, lease, now)
        return not self._leases
