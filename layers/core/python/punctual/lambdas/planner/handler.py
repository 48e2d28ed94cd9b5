"""Handles the tick of the planner: reads the settings, looks for timers, and wakes pollers."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from punctual.aws.operator_settings import OperatorSettings, SsmOperatorSettings
from punctual.domain.errors import Unavailable
from punctual.engine.clock import Clocks
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner, Seen
from punctual.engine.dispatch.on_demand.wakeup_times import WakeUp
from punctual.engine.ports.partitions import Buckets
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric, Telemetry

# longest search of one tick, so that wake-ups go out before the function's timeout
ENOUGH = timedelta(seconds=30)


class Calls(Protocol):
    def call_all(self, calls: Sequence[WakeUp]) -> None: ...


class Switch(Protocol):
    def shards(self) -> int:
        """Return the number of shards. One read returns it together with the switch."""

    def open(self) -> bool: ...

    def set(self, is_open: bool) -> None: ...


class PlannerHandler:
    """Runs ticks. While warm it remembers partitions it has read."""

    def __init__(
        self,
        lookout: PeekingPlanner,
        buckets: Buckets,
        calls: Calls,
        knobs: Callable[[], OperatorSettings],
        switch: Switch,
        clocks: Clocks,
        tell: Telemetry,
    ) -> None:
        self._lookout = lookout
        self._buckets = buckets
        self._calls = calls
        self._read_knobs = knobs
        self._switch = switch
        self._clocks = clocks
        self._tell = tell
        self._knobs: OperatorSettings | None = None

    def tick(self) -> None:
        """Run one tick. After an error the next tick reads everything anew."""
        now, is_late = self._clocks.read().wall, self._clocks.countdown(ENOUGH)
        try:
            self._tick(now, is_late)
        except BaseException:
            self._lookout.start_over()
            raise

    def _tick(self, now: datetime, is_late: Callable[[], bool]) -> None:
        knobs = self._turned()
        shards = self._switch.shards()
        if knobs.shards > shards:
            self._buckets.grow(knobs.shards)
            shards = self._buckets.shards()
            self._tell("shards_grown", shards=shards)
        self._switch.set(knobs.dispatch)
        self._tell.measure(Metric.TICKS)
        if not knobs.dispatch:
            watermark = self._lookout.rest(now)
            self._tell("dispatch_is_off", watermark=watermark.isoformat())
        else:
            seen = self._lookout.tick(now, shards, knobs.pace, is_late)
            self._calls.call_all(seen.calls)
            self._say(seen)
            watermark = seen.watermark
        self._tell.measure(Metric.WATERMARK_LAG, max(0.0, (now - watermark).total_seconds()))

    def _turned(self) -> OperatorSettings:
        """Return the settings of the operator, or the last known ones if they cannot be read.

        A new environment knows only the dispatch switch, from the copy in the control table.
        """
        try:
            knobs = self._read_knobs()
        except Unavailable as error:
            self._tell.problem("knobs_unread", error=error.message)
            return self._knobs or OperatorSettings(dispatch=self._switch.open())
        if knobs.wrong:
            self._tell.problem("knobs_wrong", names=list(knobs.wrong))
        if "dispatch" in knobs.wrong:  # a typing error must not start or stop a deployment
            knobs = knobs._replace(dispatch=self._switch.open())
        self._knobs = knobs
        return knobs

    def _say(self, seen: Seen) -> None:
        self._tell(
            "tick",
            watermark=seen.watermark.isoformat(),
            behind=seen.behind,
            calls=len(seen.calls),
            places=sum(len(call.places) for call in seen.calls),
        )
        if seen.unread:
            self._tell.problem("places_unread", places=seen.unread)
        if seen.later:
            self._tell.problem("timers_of_a_later_version", places=seen.later)


def planning(runtime: Runtime) -> PlannerHandler:
    ports = runtime.ports
    knobs = SsmOperatorSettings(lambda: runtime.clients.ssm, runtime.settings.knobs)
    return PlannerHandler(
        PeekingPlanner(ports.timers, ports.buckets, ports.buckets),
        ports.buckets,
        ports.wake,
        knobs.read,
        runtime.gate,
        Clocks(runtime.clock, runtime.steady),
        runtime.tell,
    )
