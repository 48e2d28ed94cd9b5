"""The event bus, to which `event` tasks publish."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from punctual.aws.retries import Client, RetryPolicy, answer
from punctual.domain.errors import Invalid, Unavailable

MOST = 10
# The limit of EventBridge for source, detail-type and detail of all entries of one call.
MOST_BYTES = 262_144


class EventBusFeed:
    """A publisher of events. A failed entry is sent again, so an event may arrive twice.

    Consumers recognise a repeated event by its run id.
    """

    def __init__(self, client: Client, bus: str, patience: RetryPolicy) -> None:
        self._client = client
        self._bus = bus
        self._patience = patience

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        entries = [self._entry(event) for event in events]
        ids: list[str] = []
        for chunk in _fitting(entries):
            ids += self._publish(chunk)
        return ids

    def _entry(self, event: Mapping[str, Any]) -> dict[str, str]:
        entry = {
            "Source": event["source"],
            "DetailType": event["detail-type"],
            "Detail": json.dumps(event["detail"], ensure_ascii=False, separators=(",", ":")),
            "EventBusName": self._bus,
        }
        if _weight(entry) > MOST_BYTES:
            raise Invalid(f"An event of {_weight(entry)} bytes is over the bus's {MOST_BYTES}.")
        return entry

    def _publish(self, entries: Sequence[Any]) -> list[str]:
        ids = [""] * len(entries)
        left = list(range(len(entries)))
        for attempt in range(self._patience.tries):
            wanted = [entries[place] for place in left]
            response = answer("publishing events", partial(self._put, wanted))
            for place, result in zip(left, response["Entries"], strict=True):
                ids[place] = result.get("EventId", "")
            left = [place for place in left if not ids[place]]
            if not left:
                return ids
            self._patience.wait(attempt, "publish")
        raise Unavailable(f"The event bus did not take {len(left)} events.")

    def _put(self, entries: Sequence[Any]) -> Any:
        return self._client().put_events(Entries=entries)


def _weight(entry: Mapping[str, str]) -> int:
    return sum(len(entry[name].encode()) for name in ("Source", "DetailType", "Detail"))


def _fitting(entries: Sequence[Mapping[str, str]]) -> list[list[Mapping[str, str]]]:
    """Return the entries in order, in as few calls as count and size allow."""
    calls: list[list[Mapping[str, str]]] = []
    weight = 0
    for entry in entries:
        one = _weight(entry)
        if not calls or len(calls[-1]) == MOST or weight + one > MOST_BYTES:
            calls.append([])
            weight = 0
        calls[-1].append(entry)
        weight += one
    return calls
