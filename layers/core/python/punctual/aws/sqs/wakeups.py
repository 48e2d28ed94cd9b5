"""Wake-ups for pollers: a standard queue, for FIFO knows no delay of a single message."""

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
from punctual.engine.dispatch.timer_window import TimerPartition
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer

LAYOUT = 1
HANDED_OUT = timedelta(minutes=3)  # the planner's two minutes ahead, and one for clocks that differ
LONGEST = 900  # seconds that SQS delays a message
PLACES = 1_000  # in one message
MORE = (25, 100, MANY)  # timers of one place, from which on they need a poller earlier
_DELIVERED = timedelta(seconds=2)  # a message may come so much before its moment


class _Called(NamedTuple):
    """A message under way: whoever takes it sees what was put until then."""

    at: datetime
    many: int  # timers put since it was sent


class SqsWakeUps:
    """Remembers whom it called: while a message is under way, later timers need none."""

    def __init__(self, queue: Queue, url: str, clock: Clock, start: timedelta = START) -> None:
        self._queue = queue
        self._url = url
        self._clock = clock
        self._start = start
        self._called: dict[TimerPartition, _Called] = {}

    def from_poller(self) -> "SqsWakeUps":
        """For who is a poller: whoever is called within minutes is, or was, at work as well."""
        return SqsWakeUps(self._queue, self._url, self._clock, WARM)

    def nudge(self, timers: Sequence[Timer]) -> None:
        """Call for those whose minute is handed out already, not before they need a poller.

        Where there turn out to be more, one more call brings it in time to fire them early.
        """
        now = self._clock()
        last = bucket_of(now) + HANDED_OUT
        called = {place: one for place, one in self._called.items() if one.at - _DELIVERED > now}
        near: dict[TimerPartition, list[datetime]] = {}
        for timer in timers:
            if timer.bucket <= last:
                near.setdefault(TimerPartition(timer.bucket, timer.shard), []).append(timer.at)
        wanted: dict[TimerPartition, datetime] = {}
        only: set[TimerPartition] = set()  # places that no message under way names
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
        for call in calls:  # it goes when the first of its places needs it
            for place in only.intersection(call.places):
                called[place] = called[place]._replace(at=call.at)
        self.call_all(calls)
        self._called = called

    def call(self, places: Sequence[TimerPartition], at: datetime) -> None:
        """Wake who looks after these, at `at`; what is over 15 minutes away is woken too early."""
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
        """Nothing to send: holders read the cancel wish with each beat, every four seconds."""


def _rank(many: int) -> int:
    return sum(many >= least for least in MORE)


def _by_minute(wanted: Mapping[TimerPartition, datetime]) -> list[WakeUp]:
    """One message a minute: its places are woken for the soonest of them."""
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
