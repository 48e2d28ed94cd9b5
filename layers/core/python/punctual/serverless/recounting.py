"""The daily walk counts jobs anew, and corrects what `status` counted of tenants at rest."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.aws.tallies import Counts, Tallies
from punctual.domain.head import Head
from punctual.serverless.counting import JOB

AT_REST = timedelta(hours=1)  # `status` has counted what changed before, or an alarm rang long ago


class Recount:
    """Jobs by tenant and status, of one walk over all heads.

    A count can be compared only where nothing changes meanwhile: a tenant whose jobs changed
    within the hour before the walk, or during it, is left to the next day.
    """

    def __init__(self, tallies: Tallies, began_at: datetime) -> None:
        self._tallies = tallies
        self._since = began_at - AT_REST
        self._seen: dict[str, Counter[str]] = {}
        self._before: dict[str, Counts] = {}
        self._changing: set[str] = set()

    def add(self, heads: Sequence[Head], unread: Sequence[str]) -> None:
        """Take the heads of one page; `unread` are tenants of heads that cannot be read."""
        self._changing.update(unread)
        for head in heads:
            tenant = head.tenant
            if tenant not in self._seen:
                self._seen[tenant] = Counter()
                self._before[tenant] = _jobs(self._tallies.totals(tenant))
            if not head.blank:
                self._seen[tenant][JOB + head.state] += 1
            if (
                max(head.created_at, head.updated_at, head.ended_at or head.created_at)
                > self._since
            ):
                self._changing.add(tenant)

    def correct(self) -> list[str]:
        """Return the tenants whose counts were wrong; they are right now."""
        corrected = []
        for tenant, seen in self._seen.items():
            before = self._before[tenant]
            if tenant in self._changing or before == seen:
                continue
            if _jobs(self._tallies.totals(tenant)) != before:
                continue
            names = sorted(before.keys() | seen.keys())
            missing = {name: seen[name] - before.get(name, 0) for name in names}
            if self._tallies.correct(tenant, missing):
                corrected.append(tenant)
        return corrected


def _jobs(totals: Counts) -> dict[str, int]:
    return {name: count for name, count in totals.items() if name.startswith(JOB)}
