"""Stores definitions and payloads. Small payloads stand in the row, large ones in a blob."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.run import Run
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE, Blob, Blobs
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.queries.slices import Sliced

MAX_INLINE_PAYLOAD_BYTES = 8_192  # largest payload, in bytes, that a row holds
PAYLOAD_PREFIX = "payloads/"  # name prefix of large payloads
MAX_DEFINITION_HISTORY = 10_000  # earlier definitions that one search reads at most


class Definitions:
    def __init__(self, job_states: JobStates, blobs: Blobs) -> None:
        self._job_states = job_states
        self._blobs = blobs

    def build_row(
        self,
        key: JobKey,
        document: dict[str, Any],
        ref: str,
        edition: int,
        now: datetime,
        created_by: str,
    ) -> tuple[DefinitionRow, Blob | None]:
        """Return the row of a definition, and the blob of a large payload.

        The caller stores the blob before the row.
        """
        stored_document, payload, blob = document, document.get("payload"), None
        size, fingerprint = 0, ""
        if "payload" in document:
            stored_document = {name: value for name, value in document.items() if name != "payload"}
        if payload is not None:
            encoded = msgspec.json.encode(payload)
            if len(encoded) > MAX_INLINE_PAYLOAD_BYTES:
                blob = Blob(payload_name(key, ref), encoded, JSON_MEDIA_TYPE)
                payload = None
                size = len(encoded)
                fingerprint = blake2b(encoded, digest_size=8).hexdigest()
        row = DefinitionRow(
            tenant=key.tenant,
            job_id=key.job_id,
            ref=ref,
            edition=edition,
            created_at=now,
            name=document["name"],
            document=stored_document,
            created_by=created_by,
            tags=document.get("tags") or {},
            payload=payload,
            payload_blob="" if blob is None else blob.name,
            payload_size=size,
            payload_fingerprint=fingerprint,
        )
        return row, blob

    def put(self, rows_and_blobs: Sequence[tuple[DefinitionRow, Blob | None]]) -> None:
        """Store definitions. Blobs are stored first, so a row never names a missing blob."""
        blobs = [blob for _, blob in rows_and_blobs if blob is not None]
        if blobs:
            for error in self._blobs.put_many(blobs):
                if error is not None:
                    raise error
        self._job_states.put_definitions([row for row, _ in rows_and_blobs])

    def load_payload(self, definition: DefinitionRow) -> Any:
        return (
            self._read(definition.payload_blob) if definition.payload_blob else definition.payload
        )

    def full_document(self, definition: DefinitionRow) -> dict[str, Any]:
        """Return the document as the client sent it, including the payload."""
        payload = self.load_payload(definition)
        return (
            definition.document if payload is None else {**definition.document, "payload": payload}
        )

    def with_payload(self, definition: DefinitionRow) -> DefinitionRow:
        """Return the row with its payload loaded."""
        return (
            replace(definition, payload=self.load_payload(definition))
            if definition.payload_blob
            else definition
        )

    def put_run_payload(self, key: JobKey, run_id: str, payload: Any) -> None:
        self._blobs.put(payload_name(key, run_id), msgspec.json.encode(payload), JSON_MEDIA_TYPE)

    def load_run_payload(self, key: JobKey, run_id: str) -> Any:
        return self._read(payload_name(key, run_id))

    def payload_of_run(self, key: JobKey, run: Run, current: DefinitionRow) -> Sliced[Any]:
        """Return the payload of a run, or UNSET if the present definition has the same payload."""
        if run.has_own_payload:
            return self.load_run_payload(key, run.run_id)
        if run.definition == current.edition:
            return UNSET
        for definition in self.history(key, current):
            if definition.edition == run.definition:
                return self.load_payload(definition)
            yield
        return UNSET

    def find(self, key: JobKey, ref: str) -> DefinitionRow | None:
        return self._job_states.load_definitions([(key, ref)]).get((key, ref))

    def history(self, key: JobKey, current: DefinitionRow) -> Iterator[DefinitionRow]:
        """Yield the definitions of a job, latest first.

        Each row names the one before it, and is read on demand.
        """
        definition: DefinitionRow | None = current
        for _ in range(MAX_DEFINITION_HISTORY):
            if definition is None:
                return
            yield definition
            if not definition.previous_ref:
                return
            definition = self.find(key, definition.previous_ref)

    def _read(self, name: str) -> Any:
        data = self._blobs.get(name)
        if data is None:
            raise Unavailable("A payload cannot be read from the store.")
        try:
            return msgspec.json.decode(data)
        except msgspec.MsgspecError as error:
            raise Unreadable("A payload is damaged in the store.") from error


def has_large_payload(document: Mapping[str, Any]) -> bool:
    """Return whether the payload needs a blob. On the node a blob write waits for the disk."""
    payload = document.get("payload")
    return payload is not None and len(msgspec.json.encode(payload)) > MAX_INLINE_PAYLOAD_BYTES


def payload_name(key: JobKey, source_id: str) -> str:
    """Return the blob name of a large payload. `source_id` is a definition ref or a run id."""
    return f"{PAYLOAD_PREFIX}{key.tenant}/{key.job_id}/{source_id}"


def job_of_payload(name: str) -> JobKey | None:
    """Return the job of a payload name, or None if the name is not a payload name.

    >>> job_of_payload(payload_name(JobKey("acme", "01900000"), "1-abc"))
    JobKey(tenant='acme', job_id='01900000')
    """
    parts = name.removeprefix(PAYLOAD_PREFIX).split("/")
    return JobKey(*parts[:2]) if name.startswith(PAYLOAD_PREFIX) and len(parts) == 3 else None
