"""A row for each tenant and limit. Instances lease uses from it, so a use costs no write."""

from collections.abc import Callable
from math import exp
from typing import Generic, TypeVar

import msgspec

from punctual.domain.errors import Unavailable
from punctual.domain.tenants.quota_ledger import MICROSECONDS_PER_SECOND
from punctual.engine.ports.tenants.quota_rows import QuotaRow, QuotaRows

MAX_ROW_SWAPS = 8
DEMAND_SECONDS = 2.0

S = TypeVar("S")
A = TypeVar("A")


class Contended(Unavailable):
    """The row answers, but other instances wrote it each time. Then nothing is admitted."""


class LeasedRow(Generic[S]):
    """The rows of one kind of limit, one for each tenant."""

    def __init__(self, rows: QuotaRows, limit_name: str, empty_row: S) -> None:
        self._rows = rows
        self._limit_name = limit_name
        self._empty_row = empty_row
        self._decoder = msgspec.json.Decoder(type(empty_row))
        self._encoder = msgspec.json.Encoder()

    def change(self, tenant: str, decide: Callable[[S], tuple[S, A]]) -> A:
        """Write what `decide` returns for the present row; an equal row is not written.

        A read costs a fifth of a write that loses its swap, so the row is read first.
        """
        row = self._rows.read(tenant, self._limit_name) or QuotaRow("", 0)
        for _ in range(MAX_ROW_SWAPS):
            state = self._decode_row(row.text)
            new_state, answer = decide(state)
            if new_state == state:
                return answer
            text = self._encoder.encode(new_state).decode()
            current_row = self._rows.swap(tenant, self._limit_name, row.version, text)
            if current_row is None:
                return answer
            row = current_row
        raise Contended("Too many calls use this limit at the same time: try again.")

    def _decode_row(self, text: str) -> S:
        """Return an empty row for an unreadable one: at most a minute's use is forgotten."""
        try:
            return self._decoder.decode(text) if text else self._empty_row
        except msgspec.MsgspecError:
            return self._empty_row


class RecentDemand:
    """The recent demand of an instance, as a mean that fades over some seconds."""

    def __init__(self, seconds: float = DEMAND_SECONDS) -> None:
        self._seconds = seconds
        self._weight = 0.0
        self._updated_at = 0

    def add(self, count: int, now: int) -> None:
        self._weight = self._weight_at(now) + count
        self._updated_at = now

    def per_second(self, now: int) -> float:
        return self._weight_at(now) / self._seconds

    def _weight_at(self, now: int) -> float:
        return self._weight * exp(
            -max(0, now - self._updated_at) / MICROSECONDS_PER_SECOND / self._seconds
        )
