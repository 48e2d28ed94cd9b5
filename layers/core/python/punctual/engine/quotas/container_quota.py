"""What all containers of a stage share: starts a second, and processors.

A start reserves a place in a second, perhaps a later one: this is the queue before ECS. It also
holds its processors, until the sweep counts it among the running containers.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from punctual.domain.tenants.quota_ledger import (
    Places,
    count_places,
    drop_expired_places,
    set_places,
)
from punctual.domain.utc import EPOCH
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_row import Contended, LeasedRow

STAGE = ""  # in place of a tenant: all tenants share these rows
STARTS_ROW, PROCESSORS_ROW = "container-starts", "container-cpu"
MAX_CONTAINER_STARTS_PER_SECOND = (
    15  # Fargate allows 20 of an account, and other programs use it too
)
RUNNING_HOLDER = "-"  # the containers that the last sweep counted
HOLD_SECONDS = 110  # longer than the time between two sweeps
CONTENDED_SECONDS = 1.0
NO_PROCESSOR_SECONDS = 5.0
MAX_QUEUE_SECONDS = 20  # a start is reserved at most this far ahead
MAX_CLOCK_SKEW_SECONDS = 60  # a row further ahead comes from a wrong clock


class StartPermit(NamedTuple):
    """A granted start begins after `wait_seconds`. A refused one is asked for again then.

    With `is_full` all processors are in use, or too many starts wait.
    """

    is_granted: bool
    wait_seconds: float
    is_full: bool = False


NO_ROOM_FOR_START = StartPermit(False, NO_PROCESSOR_SECONDS, is_full=True)


class ReservedStarts(Struct, frozen=True, array_like=True, gc=False):
    """The last second with reserved starts, and their number. All earlier seconds are full."""

    second: int = 0
    count: int = 0


def reserve_start(row: ReservedStarts, now: int) -> ReservedStarts:
    """Return the row with one more start, in the first second that has room.

    >>> reserve_start(ReservedStarts(100, 14), 100), reserve_start(ReservedStarts(100, 15), 100)
    (ReservedStarts(second=100, count=15), ReservedStarts(second=101, count=1))
    >>> reserve_start(ReservedStarts(100, 15), 105)
    ReservedStarts(second=105, count=1)
    """
    if not now <= row.second <= now + MAX_CLOCK_SKEW_SECONDS:
        return ReservedStarts(now, 1)
    if row.count < MAX_CONTAINER_STARTS_PER_SECOND:
        return ReservedStarts(row.second, row.count + 1)
    return ReservedStarts(row.second + 1, 1)


class ContainerQuota:
    """The quota of one stage.

    `count_running` returns the CPU units of all containers. It is called only if sweeps failed.
    """

    def __init__(
        self,
        rows: QuotaRows,
        clock: Callable[[], datetime],
        max_cpu_units: int,
        count_running: Callable[[], int],
    ) -> None:
        self._starts = LeasedRow(rows, STARTS_ROW, ReservedStarts())
        self._rows = rows
        self._processors = LeasedRow(rows, PROCESSORS_ROW, Places())
        self._clock = clock
        self._max_cpu_units = max_cpu_units
        self._count_running = count_running

    def take(self, start_id: str, cpu_units: int) -> StartPermit:
        """Hold processors and reserve a start."""
        second = self._second()
        try:
            if not self._hold(start_id, cpu_units, second):
                return NO_ROOM_FOR_START
            reserved_second = self._starts.change(STAGE, lambda row: _reserve(row, second))
        except Contended:
            return StartPermit(False, CONTENDED_SECONDS)
        if reserved_second is None:
            return NO_ROOM_FOR_START
        return StartPermit(True, float(reserved_second - second))

    def release(self, start_id: str) -> None:
        """Give back the processors of a start that started nothing."""

        def decide(row: Places) -> tuple[Places, None]:
            return set_places(row, start_id, 0, 0), None

        self._processors.change(STAGE, decide)

    def count(self, running_cpu_units: int, start_ids: Collection[str]) -> None:
        """Write the present use. The starts with these ids are part of it."""
        second = self._second()

        def decide(row: Places) -> tuple[Places, None]:
            row = drop_expired_places(row, second)
            for start_id in start_ids:
                row = set_places(row, start_id, 0, 0)
            return set_places(row, RUNNING_HOLDER, running_cpu_units, second + HOLD_SECONDS), None

        self._processors.change(STAGE, decide)

    def used_cpu_units(self) -> int:
        return used_cpu_units(self._rows, self._clock())

    def _hold(self, start_id: str, cpu_units: int, second: int) -> bool:
        counted: list[int] = []

        def decide(row: Places) -> tuple[Places, bool]:
            current_row = drop_expired_places(row, second)
            if RUNNING_HOLDER not in current_row.places_by_holder:
                if not counted:
                    counted.append(self._count_running())
                current_row = set_places(
                    current_row, RUNNING_HOLDER, counted[0], second + HOLD_SECONDS
                )
            used = count_places(current_row, except_name=start_id)
            if used + cpu_units > self._max_cpu_units:
                return row, False
            return set_places(current_row, start_id, cpu_units, second + HOLD_SECONDS), True

        return self._processors.change(STAGE, decide)

    def _second(self) -> int:
        return (self._clock() - EPOCH) // timedelta(seconds=1)


def used_cpu_units(rows: QuotaRows, now: datetime) -> int:
    """Return the CPU units in use, by the last sweep and the starts since."""
    second = (now - EPOCH) // timedelta(seconds=1)

    def decide(row: Places) -> tuple[Places, int]:
        return row, count_places(drop_expired_places(row, second))

    return LeasedRow(rows, PROCESSORS_ROW, Places()).change(STAGE, decide)


def _reserve(row: ReservedStarts, second: int) -> tuple[ReservedStarts, int | None]:
    reserved = reserve_start(row, second)
    if reserved.second > second + MAX_QUEUE_SECONDS:
        return row, None
    return reserved, reserved.second
