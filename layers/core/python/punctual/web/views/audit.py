"""A line of the audit as the API shows it: of a changed definition, the fields that differ."""

from typing import Any

import msgspec

from punctual.engine.commands.audit import JOB_CREATE, JOB_UPDATE
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.audit import AuditLine
from punctual.web.http.timestamps import format_time
from punctual.web.views.job import definition_json

MAX_VALUE_BYTES = 2_048  # bytes of one field's value: a longer one is told by its size
_encode = msgspec.json.Encoder().encode

Fields = dict[str, Any]


def audit_entry_json(line: AuditLine) -> Fields:
    entry, note, about = line.entry, line.entry.note, line.entry.subject
    before, after = _sides(line)
    return {
        "audit_id": entry.audit_id,
        "at": format_time(note.at),
        "caller": note.actor.caller,
        "token_id": note.actor.token_id or None,
        "address": note.actor.address,
        "request_id": note.actor.request_id,
        "action": note.action,
        "job_id": about.job_id or None,
        "run_id": note.run_id or None,
        "subject_token_id": note.subject_token_id or None,
        "before": before,
        "after": after,
        "count": note.count,
    }


def _sides(line: AuditLine) -> tuple[Fields | None, Fields | None]:
    note = line.entry.note
    if note.action == JOB_CREATE:
        return None, None if line.after is None else _bounded(_sent_fields(line.after))
    if note.action == JOB_UPDATE and line.before is not None and line.after is not None:
        before, after = _changed_fields(line.before, line.after)
        return {**before, **(note.before or {})}, {**after, **(note.after or {})}
    return note.before, note.after


def _sent_fields(body: DefinitionRow) -> Fields:
    fields = dict(body.document)
    if body.payload_blob or body.payload is not None:
        fields["payload"] = _payload(body)
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
        _bounded({name: old.get(name) for name in sorted(names)}),
        _bounded({name: new.get(name) for name in sorted(names)}),
    )


def _payload_fingerprint(body: DefinitionRow) -> str:
    """Of a payload that stands beside its definition; what stands in it is compared itself."""
    return body.payload_print or body.payload_blob


def _payload(body: DefinitionRow) -> Any:
    return {"bytes": body.payload_size or None} if body.payload_blob else body.payload


def _bounded(fields: Fields) -> Fields:
    return {name: _short(value) for name, value in fields.items()}


def _short(value: Any) -> Any:
    size = len(_encode(value))
    return value if size <= MAX_VALUE_BYTES else {"bytes": size}
