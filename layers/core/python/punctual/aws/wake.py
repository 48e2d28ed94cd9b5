"""Wake-ups for pollers: a standard queue, for FIFO knows no delay of a single message."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.aws.sorting import moment, parse_moment
from punctual.aws.sqs import Queue
from punctual.domain.errors import Invalid, Unavailable
from punctual.domain.placement import bucket_of
from punctual.engine.ports import Clock, Key, Timer
from punctual.engine.window import Place

LAYOUT = 1
HANDED_OUT = timedelta(minutes=3)  # the planner's two minutes ahead, and one for clocks that differ
LONGEST = 900  # seconds that SQS delays a message
PLACES = 1_000  # in one message


class SqsWake:
    def __init__(self, queue: Queue, url: str, clock: Clock) -> None:
        self._queue = queue
        self._url = url
        self._clock = clock

    def nudge(self, timers: Sequence[Timer]) -> None:
        """One message for them all. Later minutes are not handed out yet: nobody need be woken."""
        last = bucket_of(self._clock()) + HANDED_OUT
        near = {Place(timer.bucket, timer.shard) for timer in timers if timer.bucket <= last}
        self.call(sorted(near), self._clock())

    def call(self, places: Sequence[Place], at: datetime) -> None:
        """Wake who looks after these, at `at`; what is over 15 minutes away is woken too early."""
        seconds = int((at - self._clock()).total_seconds())
        entries = [
            {
                "MessageBody": _body(places[start : start + PLACES]),
                "DelaySeconds": max(0, min(LONGEST, seconds)),
            }
            for start in range(0, len(places), PLACES)
        ]
        if not all(self._queue.send(self._url, entries)):
            raise Unavailable("A wake-up could not be sent.")

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        """Nothing to send: holders read the cancel wish with each beat, every four seconds."""


def parse_wake(body: str) -> list[Place]:
    try:
        values = json.loads(body)
        if values["f"] > LAYOUT:
            raise ValueError(values["f"])
        return [Place(parse_moment(bucket), shard) for bucket, shard in values["places"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a wake-up of Punctual, or one of a later version.") from error


def _body(places: Sequence[Place]) -> str:
    named = [(moment(place.bucket), place.shard) for place in places]
    return json.dumps({"f": LAYOUT, "places": named}, separators=(",", ":"))
