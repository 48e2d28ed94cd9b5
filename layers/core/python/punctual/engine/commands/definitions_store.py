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
from punctual.engine.ports.blobs import Blob, Blobs
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.engine.queries.slices import Sliced

SMALL = 8_192  # largest payload, in bytes, that a row holds
JSON = "application/json"
PAYLOADS = "payloads/"  # name prefix of large payloads
CHAIN = 10_000  # earlier definitions that one search reads at most


class Definitions:
    def __init__(self, heads: JobStates, blobs: Blobs) -> None:
        self._heads = heads
        self._blobs = blobs

    def body(
        self,
        key: Key,
        document: dict[str, Any],
        ref: str,
        edition: int,
        now: datetime,
        created_by: str,
    ) -> tuple[DefinitionRow, Blob | None]:
        """Return the row of a definition, and the blob of a large payload.

        The caller stores the blob before the row.
        """
        kept, payload, blob = document, document.get("payload"), None
        size, fingerprint = 0, ""
        if "payload" in document:
            kept = {name: value for name, value in document.items() if name != "payload"}
        if payload is not None:
            encoded = msgspec.json.encode(payload)
            if len(encoded) > SMALL:
                blob = Blob(payload_name(key, ref), encoded, JSON)
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
            document=kept,
            created_by=created_by,
            tags=document.get("tags") or {},
            payload=payload,
            payload_blob="" if blob is None else blob.name,
            payload_size=size,
            payload_print=fingerprint,
        )
        return row, blob

    def put(self, made: Sequence[tuple[DefinitionRow, Blob | None]]) -> None:
        """Store definitions. Blobs are stored first, so a row never names a missing blob."""
        blobs = [blob for _, blob in made if blob is not None]
        if blobs:
            for failure in self._blobs.put_many(blobs):
                if failure is not None:
                    raise failure
        self._heads.put_bodies([body for body, _ in made])

    def payload(self, body: DefinitionRow) -> Any:
        return self._read(body.payload_blob) if body.payload_blob else body.payload

    def whole(self, body: DefinitionRow) -> dict[str, Any]:
        """Return the document as the client sent it, including the payload."""
        payload = self.payload(body)
        return body.document if payload is None else {**body.document, "payload": payload}

    def full(self, body: DefinitionRow) -> DefinitionRow:
        """Return the row with its payload loaded."""
        return replace(body, payload=self.payload(body)) if body.payload_blob else body

    def put_payload(self, key: Key, run_id: str, payload: Any) -> None:
        self._blobs.put(payload_name(key, run_id), msgspec.json.encode(payload), JSON)

    def own_payload(self, key: Key, run_id: str) -> Any:
        return self._read(payload_name(key, run_id))

    def payload_of(self, key: Key, run: Run, present: DefinitionRow) -> Sliced[Any]:
        """Return the payload of a run, or UNSET if the present definition has the same payload."""
        if run.own_payload:
            return self.own_payload(key, run.run_id)
        if run.definition == present.edition:
            return UNSET
        for body in self.history(key, present):
            if body.edition == run.definition:
                return self.payload(body)
            yield
        return UNSET

    def history(self, key: Key, present: DefinitionRow) -> Iterator[DefinitionRow]:
        """Yield the definitions of a job, latest first.

        Each row names the one before it, and is read on demand.
        """
        body: DefinitionRow | None = present
        for _ in range(CHAIN):
            if body is None:
                return
            yield body
            if not body.previous:
                return
            wanted = (key, body.previous)
            body = self._heads.bodies([wanted]).get(wanted)

    def _read(self, name: str) -> Any:
        data = self._blobs.get(name)
        if data is None:
            raise Unavailable("A payload cannot be read from the store.")
        try:
            return msgspec.json.decode(data)
        except msgspec.MsgspecError as error:
            raise Unreadable("A payload is damaged in the store.") from error


def is_large(document: Mapping[str, Any]) -> bool:
    """Return whether the payload needs a blob. On the node a blob write waits for the disk."""
    payload = document.get("payload")
    return payload is not None and len(msgspec.json.encode(payload)) > SMALL


def payload_name(key: Key, given_by: str) -> str:
    """Return the blob name of a large payload. `given_by` is a definition ref or a run id."""
    return f"{PAYLOADS}{key.tenant}/{key.job_id}/{given_by}"


def job_of(name: str) -> Key | None:
    """Return the job of a payload name, or None if the name is not a payload name.

    >>> job_of(payload_name(Key("acme", "01900000"), "1-abc"))
    Key(tenant='acme', job_id='01900000')
    """
    parts = name.removeprefix(PAYLOADS).split("/")
    return Key(*parts[:2]) if name.startswith(PAYLOADS) and len(parts) == 3 else None
