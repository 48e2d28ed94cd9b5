"""Where outputs go: the cheapest place that keeps each of them whatever dies.

A line of text of a few bytes stands in the run itself, small ones in their history rows, more
in one object together, a large one in an object of its own: docs/decisions/0010-outputs.md has the
prices.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.engine.execution.executor import Assignment
from punctual.engine.execution.output_packs import Packed, claim_of, pack_name, sealed
from punctual.engine.ports.rows import Detail
from punctual.engine.queries.jobs import log_name, output_name
from punctual.tasks.assignment import detail_of
from punctual.tasks.contract import Outcome

SMALL = 131_072  # bytes that are packed, and that the API answers inline
IN_ROW = 1_300  # bytes of a detail: of more, a month in a table costs what the object would
ROW = 650  # bytes of a history row beside its detail and the tenant's name, which it has twice
NAMES = 128  # bytes beside each detail in the row that holds all of them before their runs end
KILOBYTE = 1_024
PUT = 5.0  # dollars a million objects stored
UNIT = 0.625  # dollars a million kilobytes of rows written
LOG_TYPE = "text/plain; charset=utf-8"
PACK_TYPE = "application/octet-stream"


class Left(NamedTuple):
    """What one attempt left behind."""

    assignment: Assignment
    outcome: Outcome
    log: bytes


class _Placed(msgspec.Struct):
    """The parts of one attempt that are still to be packed."""

    left: Left
    detail: Detail
    output: bytes = b""
    log: bytes = b""


class Store(Protocol):
    def put(self, name: str, data: bytes, content_type: str) -> None: ...


class NoStore:
    """The store of blobs does not answer: what finds a place without it is kept."""

    def put(self, name: str, data: bytes, content_type: str) -> None:
        raise Unavailable(f"{name} ({len(data)} bytes, {content_type}) was not stored.")


class Packer:
    """Of one invocation: its packs are numbered, so that a look finds them again."""

    def __init__(self, blobs: Store) -> None:
        self._blobs = blobs
        self._numbers: dict[tuple[str, str], int] = {}

    def keep(self, left: Sequence[Left]) -> list[Detail]:
        """Store what is to be stored before the runs end; what the history will say of each."""
        placed = [self._place(one) for one in left]
        small = [one for one in placed if one.output or one.log]
        for _, some in groupby(sorted(small, key=_claim), key=_claim):
            self._keep_small(list(some))
        return [one.detail for one in placed]

    def _place(self, left: Left) -> _Placed:
        """Large parts go to objects of their own at once."""
        key, run = left.assignment.key, left.assignment.run
        output, log = left.outcome.output, left.log
        placed = _Placed(left, detail_of(left.outcome), output, log)
        if len(output) > SMALL:
            name = output_name(key, run.run_id, run.token)
            self._blobs.put(name, output, left.outcome.output_type)
            placed.detail = replace(placed.detail, output_blob=name, output_size=len(output))
            placed.output = b""
        if len(log) > SMALL:
            name = log_name(key, run.run_id, run.token)
            self._blobs.put(name, log, LOG_TYPE)
            placed.detail = replace(placed.detail, log_blob=name, log_size=len(log))
            placed.log = b""
        if placed.output and not log:
            noted = replace(placed.detail, output=placed.output)
            if noted.note:
                placed.detail, placed.output = noted, b""
        return placed

    def _keep_small(self, placed: Sequence[_Placed]) -> None:
        """In the runs' own rows, after one that holds them all; or in one object for all."""
        rows = [replace(one.detail, output=one.output) for one in placed]
        sizes = [len(msgspec.json.encode(row)) for row in rows]
        fit = not any(one.log for one in placed) and max(sizes) <= IN_ROW
        if fit and price_in_rows(sizes, _claim(placed[0])[0]) < PUT:
            for one, row in zip(placed, rows, strict=True):
                one.detail = row
        else:
            self._pack(placed)

    def _pack(self, placed: Sequence[_Placed]) -> None:
        claim = _claim(placed[0])
        number = self._numbers.get(claim, 0)
        name = pack_name(*claim, number)
        data = bytearray()
        index = []
        for one in placed:
            detail = one.detail
            if one.output:
                at, size = len(data), len(one.output)
                detail = replace(detail, output_blob=name, output_at=at, output_size=size)
                data += one.output
            if one.log:
                at, size = len(data), len(one.log)
                detail = replace(detail, log_blob=name, log_at=at, log_size=size)
                data += one.log
            one.detail = detail
            key, run = one.left.assignment.key, one.left.assignment.run
            index.append(Packed(key.job_id, run.run_id, run.token, detail))
        self._blobs.put(name, sealed(bytes(data), index), PACK_TYPE)
        self._numbers[claim] = number + 1


def price_in_rows(sizes: Sequence[int], tenant: str) -> float:
    """Dollars a million: the row that holds all, and kilobytes that history rows grow by.

    >>> [price_in_rows(sizes, "acme") for sizes in ([90] * 10, [450], [450] * 5)]
    [1.875, 1.25, 5.0]
    """
    beside = ROW + 2 * len(tenant.encode())
    units = _units(sum(sizes) + NAMES * len(sizes))
    return UNIT * (units + sum(_units(beside + size) - 1 for size in sizes))


def _units(size: int) -> int:
    return -(-size // KILOBYTE)


def _claim(placed: _Placed) -> tuple[str, str]:
    """Whose it is, and with which others it was claimed."""
    assignment = placed.left.assignment
    return assignment.key.tenant, claim_of(assignment.run.nonce)
