"""Receipts of idempotency keys."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from punctual.engine.ports.rows import Receipt


class Receipts(Protocol):
    def claim(
        self, tenant: str, named_receipts: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        """Return the receipt of each key: an earlier valid one, or the given one."""

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]: ...
