"""The rows of limits that instances share."""

from typing import NamedTuple, Protocol


class QuotaRow(NamedTuple):
    """`text` is empty and the version 0 if the row does not exist."""

    text: str
    version: int


class QuotaRows(Protocol):
    def read(self, tenant: str, what: str, /) -> QuotaRow | None: ...

    def swap(self, tenant: str, what: str, expect: int, text: str, /) -> QuotaRow | None:
        """Write version `expect + 1`; return None if it was written, else the present row."""
