"""The messages of one invocation: hide, acknowledge, and return them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from punctual.aws.sqs.visibility import SqsDeliveries
from punctual.domain.durations import CLAIM_LEASE
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.lambdas.telemetry import Telemetry

LONGEST_BACK = 300  # longest delay, in seconds, of a message while the store fails


class Delivered(Protocol):
    """One delivery of a message about a run or a notification."""

    @property
    def id(self) -> str: ...

    @property
    def handle(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def receives(self) -> int: ...


class MessageBatch:
    def __init__(self, deliveries: SqsDeliveries, clock: Clock, tell: Telemetry) -> None:
        self._deliveries = deliveries
        self._clock = clock
        self._tell = tell
        self._again: dict[Delivered, datetime] = {}
        self._acknowledged: set[str] = set()  # receipt handles

    def hide(self, some: Iterable[Delivered]) -> None:
        """Hide messages for the lease of a claim.

        After a crash they reappear when the lease expires.
        """
        seconds = int(CLAIM_LEASE.total_seconds())
        self._hide({one: seconds for one in some if one.handle not in self._acknowledged})

    def hide_longer(self, some: Iterable[Delivered]) -> None:
        """Hide messages for longer after each delivery.

        A message that crashes its executor must not return more often than others.
        """
        self._hide({one: _longer(one.receives - 1) for one in some})

    def acknowledge(self, some: Sequence[Delivered]) -> None:
        """Delete messages. They do not return, however this invocation ends."""
        for url in {one.url for one in some}:
            handles = [one.handle for one in some if one.url == url]
            self._deliveries.acknowledge(url, handles)
            self._acknowledged.update(handles)

    def again(self, one: Delivered, at: datetime) -> None:
        self._again[one] = at

    def later(self, some: Iterable[Delivered]) -> None:
        """Return messages after a failed store call, with a longer delay after each delivery."""
        now = self._clock()
        for one in some:
            self._again[one] = now + timedelta(seconds=_longer(one.receives))

    def hand_back(self) -> list[str]:
        """Set the delay of returned messages. Return their message ids."""
        now = self._clock()
        back = {
            one: -((now - at) // timedelta(seconds=1))
            for one, at in self._again.items()
            if one.handle not in self._acknowledged
        }
        try:
            self._hide(back)
        except Unavailable as error:
            # The messages return anyway, only at another time.
            self._tell.problem("hiding_failed", messages=len(back), error=error.message)
        return [one.id for one in back]

    def _hide(self, seconds: Mapping[Delivered, int]) -> None:
        for url in {one.url for one in seconds}:
            handles = {one.handle: for_ for one, for_ in seconds.items() if one.url == url}
            self._deliveries.hide(url, handles)


def _longer(times: int) -> int:
    """Return the delay in seconds after this number of deliveries.

    >>> [_longer(times) for times in (1, 2, 3, 9, 50)]
    [30, 60, 120, 300, 300]
    """
    return min(LONGEST_BACK, int(CLAIM_LEASE.total_seconds()) << min(times - 1, 8))
