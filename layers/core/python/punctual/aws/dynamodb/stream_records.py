"""Decoding of the records that Lambda passes from the stream of the jobs table."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.control.counter_keys import is_body
from punctual.aws.dynamodb.jobs.state_rows import from_row, note_of
from punctual.aws.dynamodb.keys import BY, PK
from punctual.domain.job_state import JobState
from punctual.engine.ports.audit_log import Note

_ENDS = {"INSERT": (False, True), "MODIFY": (True, True), "REMOVE": (True, False)}


class Unreadable(ValueError):
    """Raised for a record with an unknown event name or without an image."""


class Record(NamedTuple):
    """One write of a job state, with the state before and after it."""

    place: str  # its sequence number in the stream
    name: str  # its event id, unique among records
    at: datetime
    old: JobState | None
    new: JobState | None
    note: Note | None = None  # the audit note, if a client made this change

    @property
    def head(self) -> JobState:
        head = self.new or self.old
        assert head is not None
        return head


def place_of(record: Mapping[str, Any]) -> str:
    place: str = record["dynamodb"]["SequenceNumber"]
    return place


def to_record(record: Mapping[str, Any]) -> Record | None:
    """Return the decoded record, or None for a definition row.

    Raise `LaterVersion` if the layout of the row is newer.
    """
    change = record["dynamodb"]
    if is_body(change["Keys"][PK]["S"]):
        return None
    wanted = _ENDS.get(record["eventName"])
    if wanted is None:
        raise Unreadable(f"{record['eventName']!r} is no change of a row")
    before, after = (
        _row(change, image) if there else None
        for image, there in zip(("OldImage", "NewImage"), wanted, strict=True)
    )
    old = None if before is None else from_row(before).head
    new = None if after is None else from_row(after).head
    at = datetime.fromtimestamp(float(change["ApproximateCreationDateTime"]), UTC)
    return Record(place_of(record), record["eventID"], at, old, new, _note(before, after))


def _note(before: Item | None, after: Item | None) -> Note | None:
    """Return the note of this change, or None.

    A later write, for example a heartbeat, may leave the note of an earlier change in place.
    """
    if after is None or (before is not None and before.get(BY) == after.get(BY)):
        return None
    return note_of(after)


def _row(change: Mapping[str, Any], image: str) -> Item:
    if image not in change:
        raise Unreadable(f"the record has no {image}: the stream must carry both")
    return {name: _attribute(value) for name, value in change[image].items()}


def _attribute(attribute: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attribute with its bytes decoded. Lambda passes bytes as base64."""
    ((kind, value),) = attribute.items()
    match kind:
        case "B":
            return {kind: b64decode(value) if isinstance(value, str) else value}
        case "L":
            return {kind: [_attribute(part) for part in value]}
        case "M":
            return {kind: {name: _attribute(part) for name, part in value.items()}}
    return dict(attribute)
