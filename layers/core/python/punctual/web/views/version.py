"""Render the versions of a job."""

from typing import Any

from punctual.domain.timestamps import format_time
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.job_versions import VersionView
from punctual.web.http.json_body import encode_canonical
from punctual.web.models.defaults import with_defaults
from punctual.web.views.job import definition_json


def version_json(view: VersionView) -> dict[str, Any]:
    definition = view.definition
    is_first = not definition.previous_ref
    return {
        "version": definition.edition,
        "at": format_time(definition.created_at),
        "by": definition.created_by if is_first else definition.changed_by,
        "changed": [] if view.previous is None else changed_fields(definition, view.previous),
        "job": definition_json(definition),
    }


def changed_fields(new: DefinitionRow, old: DefinitionRow) -> list[str]:
    """Return the fields with another value, as both versions are shown."""
    shown_before = with_defaults(old.document)
    changed = [
        name
        for name, value in with_defaults(new.document).items()
        if name != "payload" and encode_canonical(value) != encode_canonical(shown_before[name])
    ]
    return changed if _is_same_payload(new, old) else [*changed, "payload"]


def _is_same_payload(new: DefinitionRow, old: DefinitionRow) -> bool:
    """Compare payloads without loading the one of the old version."""
    if new.payload_blob or old.payload_blob:
        return (new.payload_size, new.payload_fingerprint) == (
            old.payload_size,
            old.payload_fingerprint,
        )
    return encode_canonical(new.payload) == encode_canonical(old.payload)
