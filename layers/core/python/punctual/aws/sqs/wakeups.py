"""Wake-ups for pollers in a standard queue. A FIFO queue has no delay for single messages."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from punctual.aws.dynamodb.sort_keys import moment, parse_moment
from punctual.aws.sqs.sender import Queue
from punctual.domain.errors import Invalid, Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.engine.dispatch.on_demand.wakeup_times import MANY, START, WARM, WakeUp, wake_at
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer

LAYOUT = 1
# Two minutes that the planner works ahead, and one for clock differences.
HANDED_OUT = timedelta(minutes=3)
LONGEST = 900  # seconds; the longest delay of SQS
PLACES = 1_000  # timer partitions in one message
MORE = (25, 100, MANY)  # numbers of timers in a partition above which the poller must start earlier
_DELIVERED = timedelta(seconds=2)  # SQS may deliver a message this much early


class _Called(NamedTuple):
    """A wake-up under way. Its poller reads all timers put before it starts."""

    at: datetime
    many: int  # timers put for the partition so far


class SqsWakeUps:
    """A sender of wake-ups that remembers those under way.

    A new timer needs no wake-up while an earlier one is under way.
    """

    def __init__(self, queue: Queue, url: str, clock: Clock, start: timedelta = START) -> None:
        self._queue = queue
        self._url = url
        self._clock = clock
        self._start = start
        self._called: dict[TimerPartition, _Called] = {}

    def from_poller(self) -> "SqsWakeUps":
        """Return a sender for a poller. Its wake-ups within minutes meet warm functions."""
        return SqsWakeUps(self._queue, self._url, self._clock, WARM)

    def nudge(self, timers: Sequence[Timer]) -> None:
        """Send wake-ups for timers in minutes that the planner has handed out already.

        Each wake-up arrives when its timers need a poller. If the number of timers in a partition
        grows past a step of `MORE`, an earlier wake-up follows.
        """
        now = self._clock()
        last = bucket_of(now) + HANDED_OUT
        called = {place: one for place, one in self._called.items() if one.at - _DELIVERED > now}
        near: dict[TimerPartition, list[datetime]] = {}
        for timer in timers:
            if timer.bucket <= last:
                near.setdefault(TimerPartition(timer.bucket, timer.shard), []).append(timer.at)
        wanted: dict[TimerPartition, datetime] = {}
        only: set[TimerPartition] = set()  # partitions without an earlier wake-up under way
        for place, moments in near.items():
            before = called.get(place)
            many = len(moments) + (before.many if before else 0)
            if before is None or max(now, wake_at([min(moments)], self._start)) < before.at:
                wanted[place] = max(now, wake_at(moments, self._start))
                called[place] = _Called(wanted[place], many)
                only.add(place)
            else:
                called[place] = before._replace(many=many)
            if before is not None and _rank(before.many) < _rank(many):
                wanted[place] = max(now, wake_at([min(moments)] * many, self._start))
        calls = _by_minute(wanted)
        for call in calls:  # sent for the earliest of its partitions
            for place in only.intersection(call.places):
                called[place] = called[place]._replace(at=call.at)
        self.call_all(calls)
        self._called = called

    def call(self, places: Sequence[TimerPartition], at: datetime) -> None:
        """Wake a poller of these partitions at `at`, or after 15 minutes if `at` is later."""
        self.call_all([WakeUp(tuple(places), at)])

    def call_all(self, calls: Sequence[WakeUp]) -> None:
        now = self._clock()
        entries = [
            {
                "MessageBody": _body(call.places[start : start + PLACES]),
                "DelaySeconds": max(0, min(LONGEST, int((call.at - now).total_seconds()))),
            }
            for call in calls
            for start in range(0, len(call.places), PLACES)
        ]
        if not all(self._queue.send(self._url, entries)):
            raise Unavailable("A wake-up could not be sent.")

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        """Send nothing. Executors read cancel requests with each heartbeat, every four seconds."""


def _rank(many: int) -> int:
    return sum(many >= least for least in MORE)


def _by_minute(wanted: Mapping[TimerPartition, datetime]) -> list[WakeUp]:
    """Return one wake-up for each minute, at the earliest time of its partitions."""
    return [
        WakeUp(tuple(places), min(wanted[place] for place in places))
        for _, some in groupby(sorted(wanted), key=lambda place: place.bucket)
        for places in [list(some)]
    ]


def parse_wake(body: str) -> list[TimerPartition]:
    try:
        values = json.loads(body)
        if values["f"] > LAYOUT:
            raise ValueError(values["f"])
        return [TimerPartition(parse_moment(bucket), shard) for bucket, shard in values["places"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a wake-up of Punctual, or one of a later version.") from error


def _body(places: Sequence[TimerPartition]) -> str:
    named = [(moment(place.bucket), place.shard) for place in places]
    return json.dumps({"f": LAYOUT, "places": named}, separators=(",", ":"))
