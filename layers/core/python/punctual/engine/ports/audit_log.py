"""The port of the audit, with the entries that it stores and returns."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import sortable_id


class Actor(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The caller of a request, its token and address, and the request id."""

    caller: str
    token_id: str = ""
    address: str = ""
    request_id: str = ""


class Note(
    Struct, frozen=True, array_like=True, omit_defaults=True, rename={"replaced_ref": "former"}
):
    """Describes a change and is written with it. All jobs of a batch share one note."""

    actor: Actor
    action: str
    at: datetime
    run_id: str = ""
    subject_token_id: str = ""
    replaced_ref: str = ""  # ref of the definition that an update replaced
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    count: int = 1


class Subject(NamedTuple):
    """The job of a note, its version after the change, and the ref of its new definition."""

    job_id: str = ""
    version: int = 0
    definition_ref: str = ""


class NoteWithSubjects(NamedTuple):
    """A note and all jobs it is about."""

    note: Note
    subjects: list[Subject]


class AuditEntry(NamedTuple):
    """One audit entry. Its id derives from its content, so a repeated write adds no entry."""

    tenant: str
    note: Note
    subject: Subject

    @property
    def audit_id(self) -> str:
        note, subject = self.note, self.subject
        identity = (
            note.action,
            subject.job_id,
            str(subject.version),
            note.run_id,
            note.subject_token_id,
        )
        text = "\0".join((self.tenant, *identity, note.actor.request_id))
        digest = blake2b(text.encode(), digest_size=8).digest()
        # Order by microseconds. One millisecond may hold several changes.
        return sortable_id(note.at, (note.at.microsecond % 1_000).to_bytes(2, "big") + digest)


class AuditFilters(NamedTuple):
    job_id: str = ""
    caller: str = ""
    action: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def within_retention(self, now: datetime) -> "AuditFilters":
        """Return these filters, limited to entries within the retention time."""
        since = now - HISTORY_RETENTION
        return self if self.start is not None and self.start > since else self._replace(start=since)

    def matches(self, note: Note) -> bool:
        """Return whether the note passes every filter except `job_id`."""
        return (
            (not self.caller or note.actor.caller == self.caller)
            and (not self.action or note.action == self.action)
            and (self.start is None or note.at >= self.start)
            and (self.end is None or note.at < self.end)
        )


class AuditPage(NamedTuple):
    """Entries, newest first. `next_cursor` is None on the last page."""

    entries: Sequence[AuditEntry]
    next_cursor: tuple[str, ...] | None


class AuditLog(Protocol):
    """Stores notes. An entry never changes, and expires after the same time as a run."""

    def add_note(self, tenant: str, note: Note) -> None:
        """Store a note that belongs to no job.

        It is durable on return, or with the surrounding transaction.
        """

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """Return up to `limit` entries.

        A page may be short if the filters pass few of the entries read.
        """
