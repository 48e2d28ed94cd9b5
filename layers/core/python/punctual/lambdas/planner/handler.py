"""Handles the tick of the planner: reads the settings, wakes pollers, continues operations."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from punctual.aws.operator_settings import OperatorSettings, SsmOperatorSettings
from punctual.domain.errors import Unavailable
from punctual.engine.clock import Clocks
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner, PeekResult
from punctual.engine.dispatch.on_demand.wakeup_times import WakeUp
from punctual.engine.ports.partitions import Partitions
from punctual.lambdas.planner.stalled_operations import StalledOperations
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric, Telemetry

# longest search of one tick, so that wake-ups go out before the function's timeout
MAX_TICK_SEARCH = timedelta(seconds=30)


class WakeUpSender(Protocol):
    def send_wake_ups(self, wake_ups: Sequence[WakeUp]) -> None: ...


class DispatchControl(Protocol):
    def shards(self) -> int:
        """Return the number of shards. One read returns it together with the switch."""

    def is_on(self) -> bool: ...

    def set(self, is_on: bool) -> None: ...


class PlannerHandler:
    """Runs ticks. While warm it remembers partitions it has read."""

    def __init__(
        self,
        *,
        planner: PeekingPlanner,
        partitions: Partitions,
        wake_ups: WakeUpSender,
        read_settings: Callable[[], OperatorSettings],
        dispatch_switch: DispatchControl,
        send_stalled_operations: Callable[[], None],
        clocks: Clocks,
        log: Telemetry,
    ) -> None:
        self._planner = planner
        self._partitions = partitions
        self._wake_ups = wake_ups
        self._read_settings = read_settings
        self._dispatch_switch = dispatch_switch
        self._send_stalled_operations = send_stalled_operations
        self._clocks = clocks
        self._log = log
        self._settings: OperatorSettings | None = None

    def tick(self) -> None:
        """Run one tick. After an error the next tick reads everything anew."""
        now, is_late = self._clocks.read().wall, self._clocks.countdown(MAX_TICK_SEARCH)
        try:
            self._tick(now, is_late)
        except BaseException:
            self._planner.forget_findings()
            raise
        self._send_stalled_operations()

    def _tick(self, now: datetime, is_late: Callable[[], bool]) -> None:
        settings = self._load_settings()
        shards = self._dispatch_switch.shards()
        if settings.shards > shards:
            self._partitions.raise_shard_count(settings.shards)
            shards = self._partitions.shard_count()
            self._log("shards_grown", shards=shards)
        self._dispatch_switch.set(settings.dispatch)
        self._log.metric(Metric.TICKS)
        if not settings.dispatch:
            watermark = self._planner.skip_tick(now)
            self._log("dispatch_is_off", watermark=watermark.isoformat())
        else:
            result = self._planner.tick(now, shards, settings.pace, is_late)
            self._wake_ups.send_wake_ups(result.wakeups)
            self._log_tick(result)
            watermark = result.watermark
        self._log.metric(Metric.WATERMARK_LAG, max(0.0, (now - watermark).total_seconds()))

    def _load_settings(self) -> OperatorSettings:
        """Return the settings of the operator, or the last known ones if they cannot be read.

        A new environment knows only the dispatch switch, from the copy in the control table.
        """
        try:
            settings = self._read_settings()
        except Unavailable as error:
            self._log.error("knobs_unread", error=error.message)
            return self._settings or OperatorSettings(dispatch=self._dispatch_switch.is_on())
        if settings.invalid:
            self._log.error("knobs_wrong", names=list(settings.invalid))
        if "dispatch" in settings.invalid:  # a typing error must not start or stop a deployment
            settings = settings._replace(dispatch=self._dispatch_switch.is_on())
        self._settings = settings
        return settings

    def _log_tick(self, result: PeekResult) -> None:
        self._log(
            "tick",
            watermark=result.watermark.isoformat(),
            behind=result.waiting_minutes,
            calls=len(result.wakeups),
            places=sum(len(wake_up.partitions) for wake_up in result.wakeups),
        )
        if result.unread_count:
            self._log.error("places_unread", places=result.unread_count)
        if result.newer_format_count:
            self._log.error("timers_of_a_later_version", places=result.newer_format_count)


def build_handler(runtime: Runtime) -> PlannerHandler:
    ports = runtime.ports
    operator_settings = SsmOperatorSettings(lambda: runtime.clients.ssm, runtime.settings.knobs)
    stalled_operations = StalledOperations(
        ports.operations, ports.operation_queue, runtime.clock, runtime.log
    )
    return PlannerHandler(
        planner=PeekingPlanner(ports.timers, ports.partitions, ports.partitions),
        partitions=ports.partitions,
        wake_ups=ports.wakeups,
        read_settings=operator_settings.read,
        dispatch_switch=runtime.dispatch_switch,
        send_stalled_operations=stalled_operations.send_again,
        clocks=Clocks(runtime.clock, runtime.steady),
        log=runtime.log,
    )
