"""Render audit entries. A changed definition shows the fields that differ."""

from typing import Any

import msgspec

from punctual.domain.timestamps import format_time
from punctual.engine.commands.audit import JOB_CREATE, JOB_UPDATE
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.audit import AuditEntryView
from punctual.web.views.job import definition_json

MAX_VALUE_BYTES = 2_048  # a longer value shows only its size
_encode = msgspec.json.Encoder().encode

Fields = dict[str, Any]


def audit_entry_json(view: AuditEntryView) -> Fields:
    entry, note, subject = view.entry, view.entry.note, view.entry.subject
    before, after = _before_and_after(view)
    return {
        "audit_id": entry.audit_id,
        "at": format_time(note.at),
        "caller": note.actor.caller,
        "token_id": note.actor.token_id or None,
        "address": note.actor.address,
        "request_id": note.actor.request_id,
        "action": note.action,
        "job_id": subject.job_id or None,
        "run_id": note.run_id or None,
        "subject_token_id": note.subject_token_id or None,
        "before": before,
        "after": after,
        "count": note.count,
    }


def _before_and_after(view: AuditEntryView) -> tuple[Fields | None, Fields | None]:
    note = view.entry.note
    if note.action == JOB_CREATE:
        return None, None if view.after is None else _shorten_values(_sent_fields(view.after))
    if note.action == JOB_UPDATE and view.before is not None and view.after is not None:
        before, after = _changed_fields(view.before, view.after)
        return {**before, **(note.before or {})}, {**after, **(note.after or {})}
    return note.before, note.after


def _sent_fields(definition: DefinitionRow) -> Fields:
    fields = dict(definition.document)
    if definition.payload_blob or definition.payload is not None:
        fields["payload"] = _payload(definition)
    return fields


def _changed_fields(before: DefinitionRow, after: DefinitionRow) -> tuple[Fields, Fields]:
    old, new = definition_json(before), definition_json(after)
    names = {
        name for name in old.keys() | new.keys() if _encode(old.get(name)) != _encode(new.get(name))
    }
    if _payload_fingerprint(before) != _payload_fingerprint(after):
        names.add("payload")
    old["payload"], new["payload"] = _payload(before), _payload(after)
    return (
        _shorten_values({name: old.get(name) for name in sorted(names)}),
        _shorten_values({name: new.get(name) for name in sorted(names)}),
    )


def _payload_fingerprint(definition: DefinitionRow) -> str:
    """Identify a payload that is stored apart from its definition."""
    return definition.payload_fingerprint or definition.payload_blob


def _payload(definition: DefinitionRow) -> Any:
    return (
        {"bytes": definition.payload_size or None}
        if definition.payload_blob
        else definition.payload
    )


def _shorten_values(fields: Fields) -> Fields:
    return {name: _shorten(value) for name, value in fields.items()}


def _shorten(value: Any) -> Any:
    size = len(_encode(value))
    return value if size <= MAX_VALUE_BYTES else {"bytes": size}
