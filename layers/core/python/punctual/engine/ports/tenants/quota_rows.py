"""The rows of limits that instances share."""

from typing import NamedTuple, Protocol


class QuotaRow(NamedTuple):
    """A row of a shared limit. A missing row has an empty `text` and version 0."""

    text: str
    version: int


class QuotaRows(Protocol):
    def read(self, tenant: str, quota_name: str, /) -> QuotaRow | None: ...

    def swap(
        self, tenant: str, quota_name: str, expected_version: int, text: str, /
    ) -> QuotaRow | None:
        """Write the next version. Return None if it was written, else the present row."""
