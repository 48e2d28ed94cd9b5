"""Runs a poller from a wake-up until no timer is near."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.sqs.wakeups import SqsWakeUps, parse_wake_up
from punctual.domain.errors import Invalid, Unavailable
from punctual.domain.leases import POLLER_LEASE
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.dispatch.evaluation_retries import EvaluationRetries
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import HeldMessages
from punctual.engine.dispatch.on_demand.planner import MAX_TIMERS_PER_WAKEUP
from punctual.engine.dispatch.on_demand.poller import WINDOW_WORK_SECONDS, OnDemandPoller
from punctual.engine.dispatch.on_demand.wakeup_times import (
    BURST_TIMERS,
    CORE_THROUGHPUT,
    WARM_START_DURATION,
    Throughput,
    WakeUp,
    wake_up_time,
)
from punctual.engine.dispatch.poller import EARLY_TIMER_DELAY
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import Partitions, TimerPartition
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps
from punctual.lambdas.planner.handler import WakeUpSender
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric, Telemetry, engine_log

MAX_POLLER_SLEEP = timedelta(seconds=2.5)  # a longer sleep costs more than a new invocation
NEW_TIMER_CHECK_INTERVAL = timedelta(seconds=1)  # time between two checks for new timers
HAND_OVER_RESERVE = timedelta(seconds=15)  # reserved time of an invocation to hand over partitions
_HAND_OVER_DELAY = timedelta(
    seconds=1
)  # delay of a wake-up, so the leases are released before it arrives
MAX_LEASE_TRIES = 3
CACHED_TIMER_PAGES = 4  # a window holds two pages, and as many again may be put meanwhile


class PollerWakeUps:
    """Sends wake-ups for new timers, except for partitions that this poller holds."""

    def __init__(self, wake_ups: WakeUps) -> None:
        self._wake_ups = wake_ups
        self.poller: OnDemandPoller | None = None

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        own_partitions = set(self.poller.leased_partitions if self.poller else ())
        other_timers = [
            timer
            for timer in timers
            if TimerPartition(timer.bucket, timer.shard) not in own_partitions
        ]
        if self.poller is not None:
            self.poller.add_timers([timer for timer in timers if timer not in other_timers])
        if other_timers:
            self._wake_ups.notify_new_timers(other_timers)

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        self._wake_ups.request_stop(key, run_ids)


class PollerSession:
    """The work of one invocation. All its lasting state is in the store."""

    def __init__(
        self,
        *,
        poller: OnDemandPoller,
        timers: Timers,
        partitions: Partitions,
        wake_ups: WakeUpSender,
        owner: str,
        clock: Clock,
        pause: Callable[[float], None],
        is_dispatch_on: Callable[[], bool],
        log: Telemetry,
    ) -> None:
        self._poller = poller
        self._timers = timers
        self._partitions = partitions
        self._wake_ups = wake_ups
        self._owner = owner
        self._clock = clock
        self._pause = pause
        self._is_dispatch_on = is_dispatch_on
        self._log = log

    def run(self, partitions: Sequence[TimerPartition], ends_at: datetime) -> None:
        """Work on these partitions until `ends_at`. Send wake-ups for the rest."""
        if not self._is_dispatch_on():
            self._log("dispatch_is_off", places=len(partitions))
            return
        try:
            self._work(sorted(set(partitions)), ends_at)
        except Unavailable:
            # without this no poller could take them before the leases expire
            self._poller.release_leases(self._clock())
            raise

    def _work(self, partitions: Sequence[TimerPartition], ends_at: datetime) -> None:
        self._take_partitions(partitions)
        noticed_at = self._clock()
        while self._poller.leased_partitions:
            now = self._clock()
            if now >= ends_at or not self._is_dispatch_on():
                self._hand_over(now)
                return
            if now - noticed_at >= NEW_TIMER_CHECK_INTERVAL:
                self._poller.reread_changed_partitions(now)
                noticed_at = now
            if self._step(now):
                self._sleep_or_leave(self._clock())

    def _step(self, now: datetime) -> bool:
        """Evaluate the due timers. Return false if the store did not answer."""
        try:
            self._poller.step(now)
        except Unavailable as error:
            self._log.error("look_failed", error=error.message)
            self._pause(EARLY_TIMER_DELAY.total_seconds())
            return False
        return True

    def _sleep_or_leave(self, now: datetime) -> None:
        """Sleep until the next timer, or leave if it is far."""
        next_at = self._poller.next_step_at(now)
        if next_at is None:
            self._poller.release_leases(now)
        elif next_at - now > MAX_POLLER_SLEEP and not self._poller.has_held_messages:
            needed_at = self._poller.latest_start_at() or next_at
            self._wake_ups.send_wake_ups(
                [
                    WakeUp(
                        tuple(self._poller.next_timer_by_partition()),
                        needed_at - WARM_START_DURATION,
                    )
                ]
            )
            self._poller.release_leases(now)
        elif next_at > now:
            self._pause(min(next_at - now, NEW_TIMER_CHECK_INTERVAL).total_seconds())

    def _hand_over(self, now: datetime) -> None:
        """Send the messages of fired runs and leave.

        A wake-up starts another poller in a second.
        """
        self._poller.send_held_messages()
        if self._is_dispatch_on():
            self._wake_ups.send_wake_ups(
                [WakeUp(tuple(self._poller.leased_partitions), now + _HAND_OVER_DELAY)]
            )
        self._log("handed_over", places=len(self._poller.leased_partitions))
        for _ in range(MAX_LEASE_TRIES):
            if self._poller.release_leases(now):
                return

    def _take_partitions(self, partitions: Sequence[TimerPartition]) -> None:
        """Take the partitions that need work now, and send wake-ups for the others.

        The first read needs no lease, so an empty or distant partition costs none.
        """
        timer_count = 0
        wake_ups: list[WakeUp] = []
        for partition in partitions:
            latest_at = datetime.max.replace(tzinfo=partition.bucket.tzinfo)
            timers = self._timers.due(*partition, latest_at, None, BURST_TIMERS).timers
            if not timers:
                continue
            now, wake_up_at = (
                self._clock(),
                wake_up_time([timer.at for timer in timers], WARM_START_DURATION),
            )
            if wake_up_at - now > MAX_POLLER_SLEEP:
                wake_ups.append(WakeUp((partition,), wake_up_at))
            elif timer_count and timer_count + len(timers) > MAX_TIMERS_PER_WAKEUP:
                wake_ups.append(WakeUp((partition,), now + _HAND_OVER_DELAY))
            elif self._take_lease(partition, now):
                timer_count += MAX_TIMERS_PER_WAKEUP if len(timers) >= BURST_TIMERS else len(timers)
        if wake_ups:
            self._wake_ups.send_wake_ups(wake_ups)

    def _take_lease(self, partition: TimerPartition, now: datetime) -> bool:
        """Take the lease of a partition, or notify the poller that holds it.

        Return whether it is taken.
        """
        for _ in range(MAX_LEASE_TRIES):
            lease = self._partitions.acquire(*partition, self._owner, now, now + POLLER_LEASE)
            if lease is not None:
                self._poller.add_partition(lease)
                return True
            if self._partitions.signal_new_timers(*partition) is not None:
                return False
        raise Unavailable("The lease of a partition changed too often.")


class PollerHandler:
    """Handles wake-ups.

    While warm it counts failed evaluations, so a failing job is parked in time.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._retries = EvaluationRetries()

    @cached_property
    def _wake_ups(self) -> SqsWakeUps:
        return self._runtime.ports.wakeups.for_poller()

    @cached_property
    def _timers(self) -> DynamoTimers:
        """Return timers with a cache of rows read. Without it each delete would query first."""
        max_pairs = (
            int(self._throughput.fired_per_second * WINDOW_WORK_SECONDS) * CACHED_TIMER_PAGES
        )
        return self._runtime.ports.timers.with_cache_size(max_pairs)

    @property
    def _throughput(self) -> Throughput:
        return CORE_THROUGHPUT.scaled(self._runtime.cpu_share)

    def handle(self, event: Mapping[str, Any], remaining_seconds: float) -> dict[str, Any]:
        """Handle a batch of wake-ups within `remaining_seconds`.

        Return the wake-ups to deliver again.
        """
        log = self._runtime.log
        partitions: list[TimerPartition] = []
        unreadable_ids: list[str] = []
        parsed_ids: list[str] = []
        for record in event["Records"]:
            try:
                partitions += parse_wake_up(record["body"])
                parsed_ids.append(record["messageId"])
            except Invalid as error:
                unreadable_ids.append(record["messageId"])
                log.error("wake_up_refused", message_id=unreadable_ids[-1], error=error.message)
        with log.invocation():
            ends_at = (
                self._runtime.clock() + timedelta(seconds=remaining_seconds) - HAND_OVER_RESERVE
            )
            has_failed = self._run_session(partitions, ends_at) if partitions else False
        retry_ids = [*unreadable_ids, *parsed_ids] if has_failed else unreadable_ids
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in retry_ids]}

    def _run_session(self, partitions: Sequence[TimerPartition], ends_at: datetime) -> bool:
        """Run one session. Return whether it failed, so that all wake-ups are delivered again."""
        runtime, ports, clock = self._runtime, self._runtime.ports, self._runtime.clock
        early_messages, wake_ups = (
            HeldMessages(ports.run_queue, clock, self._throughput),
            PollerWakeUps(self._wake_ups),
        )
        applier = ChangeApplier(
            job_states=ports.job_states,
            timers=self._timers,
            partitions=ports.partitions,
            history=ports.history,
            run_queue=early_messages,
            notifications=ports.notifications,
            wakeups=wake_ups,
            clock=clock,
            steady=runtime.steady,
            log=engine_log(runtime.log),
        )
        poller = OnDemandPoller(
            timers=self._timers,
            partitions=ports.partitions,
            partition_leases=ports.partitions,
            evaluator=Evaluator(applier, runtime.new_id),
            held_messages=early_messages,
            retries=self._retries,
            throughput=self._throughput,
        )
        wake_ups.poller = poller
        session = PollerSession(
            poller=poller,
            timers=self._timers,
            partitions=ports.partitions,
            wake_ups=self._wake_ups,
            owner=f"{runtime.name}/{runtime.new_id()}",
            clock=clock,
            pause=runtime.pause,
            is_dispatch_on=runtime.dispatch_switch.is_on,
            log=runtime.log,
        )
        has_failed = False
        try:
            session.run(partitions, ends_at)
        except Unavailable as error:
            runtime.log.error("visit_failed", error=error.message, places=len(partitions))
            has_failed = True
        _log_session(runtime.log, poller, early_messages)
        return has_failed


def _log_session(log: Telemetry, poller: OnDemandPoller, early_messages: HeldMessages) -> None:
    metrics = {
        Metric.DUE: poller.timer_count,
        Metric.DISPATCHED: early_messages.sent_count,
        Metric.MISSED: poller.missed_count,
    }
    for metric, value in metrics.items():
        if value:
            log.metric(metric, value)
    log(
        "visit",
        due=poller.timer_count,
        dispatched=early_messages.sent_count,
        missed=poller.missed_count,
    )
