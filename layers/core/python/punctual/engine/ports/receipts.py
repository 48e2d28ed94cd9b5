"""Receipts of idempotency keys."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from punctual.engine.ports.rows import Receipt


class Receipts(Protocol):
    def claim(
        self, tenant: str, wanted: Sequence[tuple[str, Receipt]], now: datetime
    ) -> Sequence[Receipt]:
        """The receipt that stands for each key: the given one, or the earlier one still valid."""

    def find(self, tenant: str, names: Sequence[str], now: datetime) -> Mapping[str, Receipt]: ...
