"""Frees the places of claims that were handed over, after their ends.

A claim of a detached runner or a container has a place in the row of its tenant. A script also has
one in the row of its function (`RunPermits.hand_over`). The function that follows the stream sees
each end of a claim, however it came about. It may see an end twice, because a second time frees
nothing. A place that is never freed ends by itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from punctual.domain.tenants.quota_ledger import (
    Places,
    claim_mark,
    count_places,
    drop_expired_places,
    free_claims,
)
from punctual.domain.utc import EPOCH
from punctual.engine.ports.quotas import EndedClaim
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_row import LeasedRow
from punctual.engine.quotas.run_permits import PLACES_LIMIT

SCRIPT_PLACES_LIMIT = "script-places"


class ClaimPlaces:
    """The rows of places: those of tenants, and those of script functions with a reservation.

    `script_places` is the number of places by function. Without `has_limits` tenants have no rows.
    """

    def __init__(
        self,
        rows: QuotaRows,
        clock: Callable[[], datetime],
        script_places: Mapping[str, int],
        has_limits: bool,
    ) -> None:
        self._tenant_rows = LeasedRow(rows, PLACES_LIMIT, Places())
        self._function_rows = LeasedRow(rows, SCRIPT_PLACES_LIMIT, Places())
        self._clock = clock
        self._script_places = script_places
        self._has_limits = has_limits

    def free(self, ended: Iterable[EndedClaim]) -> None:
        """Free the places of these claims. A row without one of them is read and not written."""
        marks_by_tenant: dict[str, list[str]] = defaultdict(list)
        script_marks: list[str] = []
        for claim in ended:
            mark = claim_mark(claim.nonce)
            marks_by_tenant[claim.tenant].append(mark)
            if claim.is_script:
                script_marks.append(mark)
        if self._has_limits:
            for tenant, marks in marks_by_tenant.items():
                self._free(self._tenant_rows, tenant, marks)
        if script_marks:
            for function in self._script_places:
                self._free(self._function_rows, function, script_marks)

    def used_places(self, function: str) -> int:
        """Return how many places of a script function are in use."""

        def decide(row: Places) -> tuple[Places, int]:
            return row, count_places(drop_expired_places(row, self._second()))

        return self._function_rows.change(function, decide)

    def _free(self, rows: LeasedRow[Places], name: str, marks: list[str]) -> None:
        def decide(row: Places) -> tuple[Places, None]:
            freed = free_claims(row, marks)
            return (row if freed == row else drop_expired_places(freed, self._second())), None

        rows.change(name, decide)

    def _second(self) -> int:
        return (self._clock() - EPOCH) // timedelta(seconds=1)
