"""The port for the names of recurring jobs: one row for each name of a tenant.

A row names the job that has the name. Each write of a row draws a new mark, which never comes back.
So a conditional write reaches only the row that was read.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from punctual.engine.ports.rows import JobKey


class NameKey(NamedTuple):
    tenant: str
    name: str


class NameRow(NamedTuple):
    """A name, the job that has it, and the mark of the write."""

    tenant: str
    name: str
    job_id: str
    mark: str

    @property
    def key(self) -> NameKey:
        return NameKey(self.tenant, self.name)

    @property
    def job_key(self) -> JobKey:
        return JobKey(self.tenant, self.job_id)


class NameRows(Protocol):
    """Rows of names. Reads by key are strongly consistent."""

    def find(self, keys: Sequence[NameKey]) -> Mapping[NameKey, NameRow]:
        """Return the rows that exist."""

    def put(self, rows: Sequence[NameRow]) -> Sequence[NameRow | None]:
        """Write each row if its name has none yet. Return the existing row for each other one.

        None means that the row is written, now or by an earlier try of this call.
        """

    def replace(self, replacements: Sequence[tuple[NameRow, NameRow]]) -> Sequence[bool]:
        """Write the second row of each pair if the first one still stands, by its mark."""

    def remove(self, rows: Sequence[NameRow]) -> None:
        """Remove each row that still stands, by its mark."""
