"""The event bus, to which `event` tasks publish."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from punctual.aws.retries import Client, RetryPolicy, call_aws
from punctual.domain.errors import Invalid, Unavailable

MAX_EVENTS_PER_PUT = 10
# The limit of EventBridge for source, detail-type and detail of all entries of one call.
MAX_EVENT_BYTES_PER_PUT = 262_144


class EventBusFeed:
    """A publisher of events. A failed entry is sent again, so an event may arrive twice.

    Consumers recognise a repeated event by its run id.
    """

    def __init__(self, client: Client, bus: str, retry_policy: RetryPolicy) -> None:
        self._client = client
        self._bus = bus
        self._retry_policy = retry_policy

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        entries = [self._entry(event) for event in events]
        ids: list[str] = []
        for chunk in _split_into_calls(entries):
            ids += self._publish(chunk)
        return ids

    def _entry(self, event: Mapping[str, Any]) -> dict[str, str]:
        entry = {
            "Source": event["source"],
            "DetailType": event["detail-type"],
            "Detail": json.dumps(event["detail"], ensure_ascii=False, separators=(",", ":")),
            "EventBusName": self._bus,
        }
        if _entry_size(entry) > MAX_EVENT_BYTES_PER_PUT:
            raise Invalid(
                f"An event may have at most {MAX_EVENT_BYTES_PER_PUT} bytes; this one has "
                f"{_entry_size(entry)}."
            )
        return entry

    def _publish(self, entries: Sequence[Any]) -> list[str]:
        ids = [""] * len(entries)
        unsent = list(range(len(entries)))
        for attempt in range(self._retry_policy.tries):
            batch = [entries[index] for index in unsent]
            response = call_aws("publishing events", partial(self._put, batch))
            for index, result in zip(unsent, response["Entries"], strict=True):
                ids[index] = result.get("EventId", "")
            unsent = [index for index in unsent if not ids[index]]
            if not unsent:
                return ids
            self._retry_policy.wait(attempt, "publish")
        raise Unavailable(f"The event bus did not take {len(unsent)} events.")

    def _put(self, entries: Sequence[Any]) -> Any:
        return self._client().put_events(Entries=entries)


def _entry_size(entry: Mapping[str, str]) -> int:
    return sum(len(entry[name].encode()) for name in ("Source", "DetailType", "Detail"))


def _split_into_calls(entries: Sequence[Mapping[str, str]]) -> list[list[Mapping[str, str]]]:
    """Return the entries in order, in as few calls as count and size allow."""
    calls: list[list[Mapping[str, str]]] = []
    call_size = 0
    for entry in entries:
        size = _entry_size(entry)
        if (
            not calls
            or len(calls[-1]) == MAX_EVENTS_PER_PUT
            or call_size + size > MAX_EVENT_BYTES_PER_PUT
        ):
            calls.append([])
            call_size = 0
        calls[-1].append(entry)
        call_size += size
    return calls
