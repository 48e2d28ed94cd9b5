"""Decoding of the records that Lambda passes from the stream of the jobs table."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.jobs.state_rows import from_row, note_of
from punctual.aws.dynamodb.keys import AUDIT_NOTE_ATTR, PK, SK, STATE_SORT_KEY, RowKey
from punctual.aws.dynamodb.lists import operation_rows
from punctual.domain.job_state import JobState
from punctual.domain.operations.operation import Operation
from punctual.engine.ports.audit_log import Note

_IMAGES_BY_EVENT = {"INSERT": (False, True), "MODIFY": (True, True), "REMOVE": (True, False)}


class UnreadableRecord(ValueError):
    """Raised for a record with an unknown event name or without an image."""


class Record(NamedTuple):
    """One write of a job state, with the state before and after it."""

    sequence_number: str  # its sequence number in the stream
    event_id: str  # its event id, unique among records
    changed_at: datetime
    old: JobState | None
    new: JobState | None
    note: Note | None = None  # the audit note, if a client made this change

    @property
    def state(self) -> JobState:
        state = self.new or self.old
        assert state is not None
        return state

    @property
    def sequence(self) -> int:
        """Return a number that grows with each change. The expiry comes after the last version."""
        return self.state.version + (self.new is None)


class OperationRecord(NamedTuple):
    """One write of an operation, with the operation after it."""

    sequence_number: str
    event_id: str
    changed_at: datetime
    operation: Operation


def sequence_number_of(record: Mapping[str, Any]) -> str:
    sequence_number: str = record["dynamodb"]["SequenceNumber"]
    return sequence_number


def parse_record(record: Mapping[str, Any]) -> Record | None:
    """Return the decoded record, or None for a definition row.

    Raise `LaterVersion` if the layout of the row is newer.
    """
    change = record["dynamodb"]
    if change["Keys"][SK]["S"] != STATE_SORT_KEY:
        return None
    images_present = _IMAGES_BY_EVENT.get(record["eventName"])
    if images_present is None:
        raise UnreadableRecord(f"{record['eventName']!r} is not a change of a row")
    old_row, new_row = (
        _decode_image(change, image) if is_present else None
        for image, is_present in zip(("OldImage", "NewImage"), images_present, strict=True)
    )
    old = None if old_row is None else from_row(old_row).state
    new = None if new_row is None else from_row(new_row).state
    return Record(
        sequence_number_of(record),
        record["eventID"],
        _changed_at(record),
        old,
        new,
        _note_of_change(old_row, new_row),
    )


def parse_operation_record(record: Mapping[str, Any]) -> OperationRecord | None:
    """Return the decoded record of an operation, or None for another row, or an expired one."""
    change = record["dynamodb"]
    key = RowKey(change["Keys"][PK]["S"], change["Keys"][SK]["S"])
    if not operation_rows.is_operation_key(key) or record["eventName"] == "REMOVE":
        return None
    operation = operation_rows.from_row(_decode_image(change, "NewImage"))
    return OperationRecord(
        sequence_number_of(record), record["eventID"], _changed_at(record), operation
    )


def _changed_at(record: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(float(record["dynamodb"]["ApproximateCreationDateTime"]), UTC)


def _note_of_change(old_row: Item | None, new_row: Item | None) -> Note | None:
    """Return the note of this change, or None.

    A later write, for example a heartbeat, may leave the note of an earlier change in place.
    """
    if new_row is None or (
        old_row is not None and old_row.get(AUDIT_NOTE_ATTR) == new_row.get(AUDIT_NOTE_ATTR)
    ):
        return None
    return note_of(new_row)


def _decode_image(change: Mapping[str, Any], image: str) -> Item:
    if image not in change:
        raise UnreadableRecord(f"the record has no {image}: the stream must carry both")
    return {name: _decode_attribute(value) for name, value in change[image].items()}


def _decode_attribute(attribute: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attribute with its bytes decoded. Lambda passes bytes as base64."""
    ((kind, value),) = attribute.items()
    match kind:
        case "B":
            return {kind: b64decode(value) if isinstance(value, str) else value}
        case "L":
            return {kind: [_decode_attribute(part) for part in value]}
        case "M":
            return {kind: {name: _decode_attribute(part) for name, part in value.items()}}
    return dict(attribute)
