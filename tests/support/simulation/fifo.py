"""A FIFO queue with the behaviour of SQS: visibility, redelivery, five minutes of deduplication."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.engine.ports.clock import Clock
from punctual.engine.ports.run_queue import Message

VISIBILITY = timedelta(seconds=30)
REMEMBERED = timedelta(minutes=5)


class Entry:
    """One message in the queue. `receipt` changes with every delivery."""

    __slots__ = ("message", "receipt", "visible_at")

    def __init__(self, message: Message, visible_at: datetime) -> None:
        self.message = message
        self.visible_at = visible_at
        self.receipt = 0


class Delivery:
    """One receiver's copy of a message. A later delivery invalidates its receipt."""

    __slots__ = ("entry", "message", "receipt")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.message = entry.message
        self.receipt = entry.receipt


class FifoQueue:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.entries: list[Entry] = []
        self._ids: dict[tuple[str, str, str, int], datetime] = {}
        self.sent: list[Message] = []

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        now = self._clock()
        for message in messages:
            mark = (message.tenant, message.job_id, message.run_id, message.version)
            known = self._ids.get(mark)
            if known is None or known + REMEMBERED <= now:
                self._ids[mark] = now
                self.sent.append(message)
                self.entries.append(Entry(message, now))
        return [True] * len(messages)

    def receive(self, most: int) -> list[Delivery]:
        now = self._clock()
        found: list[Delivery] = []
        for entry in self.entries:
            if entry.visible_at <= now and len(found) < most:
                entry.visible_at = now + VISIBILITY
                entry.receipt += 1
                found.append(Delivery(entry))
        return found

    def acknowledge(self, delivery: Delivery) -> None:
        if delivery.entry in self.entries and delivery.entry.receipt == delivery.receipt:
            self.entries.remove(delivery.entry)

    def hand_back(self, delivery: Delivery, until: datetime) -> None:
        if delivery.entry.receipt == delivery.receipt:
            delivery.entry.visible_at = until

    def repeat(self) -> None:
        """Redeliver messages in flight, as at-least-once delivery allows."""
        for entry in self.entries:
            entry.visible_at = min(entry.visible_at, self._clock())

    def next_at(self) -> datetime | None:
        return min((entry.visible_at for entry in self.entries), default=None)
