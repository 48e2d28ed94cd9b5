"""Artifacts: files for script jobs, addressed by their content within a tenant."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

MEGABYTE_BYTES = 1024 * 1024
MAX_ARTIFACT_BYTES = 250 * 1024 * 1024
MAX_ARTIFACT_NAME_CHARACTERS = 200
ARTIFACT_PREFIX = "artifacts/"  # of the names of blobs
ARTIFACT_CONTENT_TYPE = "application/octet-stream"
ARTIFACT_HEAD_BYTES = 64  # enough for the header of an ELF file
# How long an upload may take to come, and how long a blob without a row is kept.
PENDING_ARTIFACT_RETENTION = timedelta(hours=24)
# From a delete to the removal of the bytes. It is longer than any request that creates a job.
ARTIFACT_REMOVAL_DELAY = timedelta(hours=1)

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_ELF_MAGIC = b"\x7fELF"
_MACHINE_OFFSET, _BYTE_ORDER_OFFSET, _BIG_ENDIAN = 18, 5, 2
_MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "arm64", 243: "riscv"}


class ArtifactStatus(StrEnum):
    """The states of an artifact.

    - PENDING: its upload has not arrived.
    - STORED: jobs may use it.
    - DELETED: no new job may use it. Its bytes remain for `ARTIFACT_REMOVAL_DELAY`.
    - REMOVING: its bytes are being removed.
    """

    PENDING = "PENDING"
    STORED = "STORED"
    DELETED = "DELETED"
    REMOVING = "REMOVING"


class Artifact(Struct, frozen=True, omit_defaults=True):
    """One file of a tenant. `revision` is new with each write of the row."""

    tenant: str
    artifact_id: str
    sha256: str
    size: int
    name: str
    status: ArtifactStatus
    created_at: datetime
    created_by: str
    revision: str
    deleted_at: datetime | None = None
    architecture: str = ""  # of an ELF file

    @property
    def blob_name(self) -> str:
        return artifact_blob_name(self.tenant, self.sha256)

    @property
    def expires_at(self) -> datetime | None:
        """Return when the row counts as absent, or None for a row that remains."""
        if self.status is ArtifactStatus.PENDING:
            return self.created_at + PENDING_ARTIFACT_RETENTION
        if self.status is ArtifactStatus.REMOVING and self.deleted_at is not None:
            return self.deleted_at + PENDING_ARTIFACT_RETENTION
        return None

    @property
    def counts(self) -> bool:
        """Return whether the artifact counts against the limits of its tenant."""
        return self.status in (ArtifactStatus.PENDING, ArtifactStatus.STORED)


def artifact_id_of(tenant: str, digest: str) -> str:
    """Return the artifact id of content with this digest, in the form of a UUID.

    >>> artifact_id_of("acme", "0" * 64) == artifact_id_of("globex", "0" * 64)
    False
    """
    text = sha256(f"punctual artifact\0{tenant}\0{digest}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def artifact_blob_name(tenant: str, digest: str) -> str:
    return f"{ARTIFACT_PREFIX}{tenant}/{digest}"


def parse_artifact_blob_name(name: str) -> tuple[str, str] | None:
    """Return the tenant and the digest of a blob's name, or None for any other name.

    >>> parse_artifact_blob_name(artifact_blob_name("acme", "0" * 64)) == ("acme", "0" * 64)
    True
    """
    tenant, _, digest = name.removeprefix(ARTIFACT_PREFIX).rpartition("/")
    is_own = name.startswith(ARTIFACT_PREFIX) and tenant and is_digest(digest)
    return (tenant, digest) if is_own else None


def is_digest(text: str) -> bool:
    """Return whether the text is a SHA-256 digest in hexadecimal.

    >>> is_digest("0" * 64), is_digest("A" * 64)
    (True, False)
    """
    return _DIGEST_PATTERN.fullmatch(text) is not None


def architecture_of(head: bytes) -> str:
    """Return the architecture of an ELF file by its first bytes, or an empty text.

    >>> architecture_of(b"#!/bin/sh")
    ''
    """
    if len(head) < _MACHINE_OFFSET + 2 or not head.startswith(_ELF_MAGIC):
        return ""
    order = "big" if head[_BYTE_ORDER_OFFSET] == _BIG_ENDIAN else "little"
    number = int.from_bytes(head[_MACHINE_OFFSET : _MACHINE_OFFSET + 2], order)  # type: ignore[arg-type]
    return _MACHINES.get(number, f"machine {number}")
