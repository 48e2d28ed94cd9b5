"""A FIFO queue with the behaviour of SQS: visibility, redelivery, five minutes of deduplication."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.engine.ports.clock import Clock
from punctual.engine.ports.run_queue import Message

VISIBILITY = timedelta(seconds=30)
DEDUPLICATION_PERIOD = timedelta(minutes=5)


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
            deduplication_id = (message.tenant, message.job_id, message.run_id, message.version)
            sent_at = self._ids.get(deduplication_id)
            if sent_at is None or sent_at + DEDUPLICATION_PERIOD <= now:
                self._ids[deduplication_id] = now
                self.sent.append(message)
                self.entries.append(Entry(message, now))
        return [True] * len(messages)

    def receive(self, limit: int) -> list[Delivery]:
        now = self._clock()
        deliveries: list[Delivery] = []
        for entry in self.entries:
            if entry.visible_at <= now and len(deliveries) < limit:
                entry.visible_at = now + VISIBILITY
                entry.receipt += 1
                deliveries.append(Delivery(entry))
        return deliveries

    def acknowledge(self, delivery: Delivery) -> None:
        if delivery.entry in self.entries and delivery.entry.receipt == delivery.receipt:
            self.entries.remove(delivery.entry)

    def change_visibility(self, delivery: Delivery, until: datetime) -> None:
        if delivery.entry.receipt == delivery.receipt:
            delivery.entry.visible_at = until

    def repeat(self) -> None:
        """Redeliver messages in flight, as at-least-once delivery allows."""
        for entry in self.entries:
            entry.visible_at = min(entry.visible_at, self._clock())

    def next_at(self) -> datetime | None:
        return min((entry.visible_at for entry in self.entries), default=None)
