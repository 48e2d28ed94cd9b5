"""Counts jobs and live runs anew in the daily walk, and corrects the counts of `status`.

Jobs change while they are counted. So a difference is compared with the changes during the walk.

1. The walk reads a tenant's counts at its first job state, and counts all its job states.
2. A change is in both numbers, in none, or in one. It is in one only if it was made during the walk
   or shortly before. `status` counts a change within minutes.
3. Rows of counted changes say how much these changes moved each count. This is the slack. A
   difference up to the slack may be right. A larger one is corrected by the excess.

So a correction never makes a right count wrong, and the counts of a tenant at rest become exact.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

import msgspec

from punctual.aws.dynamodb.control.counters import Change, Counters, mark_of
from punctual.aws.dynamodb.sort_keys import moment
from punctual.domain.job_state import JobState
from punctual.lambdas.status import counters
from punctual.lambdas.status.changes import between

LAG = timedelta(minutes=15)  # `status` has counted a change by then, or an alarm has fired
MARGIN = timedelta(minutes=2)  # for the read of a page and clocks that differ
MOST_TENANTS = 1_000  # in one walk, since their counts are stored in one row
LONGEST = timedelta(days=1)  # after a longer walk the rows of its changes may have expired


class Tenant(msgspec.Struct):
    since: datetime  # when the walk read the first job state
    counted: dict[str, int]  # by `status` at that time
    seen: dict[str, int]  # by the walk
    readable: bool = True  # false if a job state is unreadable


class Seen(msgspec.Struct):
    """The counts of a walk so far."""

    tenants: dict[str, Tenant] = msgspec.field(default_factory=dict)
    until: datetime | None = None  # when the walk read its last page
    some_left_out: bool = False


class Recount:
    """The counts of one walk. `packed` lets another invocation continue them."""

    def __init__(self, tallies: Counters, started_at: datetime, packed: bytes) -> None:
        self._tallies = tallies
        self._started_at = started_at
        self._seen = msgspec.json.decode(zlib.decompress(packed), type=Seen) if packed else Seen()

    @property
    def packed(self) -> bytes:
        return zlib.compress(msgspec.json.encode(self._seen))

    @property
    def some_left_out(self) -> bool:
        return self._seen.some_left_out

    @property
    def tenants(self) -> Sequence[str]:
        """Return the tenants left to correct, after the walk has read all job states."""
        return list(self._seen.tenants)

    def add(self, heads: Sequence[JobState], unread: Sequence[str], now: datetime) -> None:
        """Count the job states of one page. `unread` lists tenants with unreadable job states."""
        self._seen.until = now
        for tenant in unread:
            found = self._tenant(tenant, now)
            if found is not None:
                found.readable = False
        counts: dict[str, Counter[str]] = {}
        for head in heads:
            of_head = counters.standing(counters.totals(between(None, head)))
            counts.setdefault(head.tenant, Counter()).update(of_head)
        for tenant, of_page in counts.items():
            found = self._tenant(tenant, now)
            if found is not None:
                found.seen = dict(Counter(found.seen) + of_page)

    def keep_differing(self) -> None:
        """Remove tenants that need no correction or cannot get one."""
        self._seen.tenants = {
            name: tenant
            for name, tenant in self._seen.tenants.items()
            if tenant.readable and any(_differences(tenant).values())
        }

    def is_due(self, now: datetime) -> bool:
        """Return whether `status` has counted all changes made during the walk."""
        return self._seen.until is None or now >= self._seen.until + LAG

    def correct(self, name: str) -> bool:
        """Correct the counts of one tenant. Return whether they were wrong.

        The correction is counted like a change, so a repeated correction adds nothing.
        """
        tenant = self._seen.tenants.pop(name)
        missing = self._beyond_slack(name, tenant)
        if not any(missing.values()):
            return False
        mark = mark_of(f"recount {moment(self._started_at)}", name)
        self._tallies.count(name, [Change(mark, self._started_at, missing)])
        return True

    def _beyond_slack(self, name: str, tenant: Tenant) -> dict[str, int]:
        """Return by how much each difference exceeds the changes around the walk."""
        assert self._seen.until is not None, "a page had the tenant's first head"
        differences = _differences(tenant)
        slack: Counter[str] = Counter()
        rows = self._tallies.moved(name, tenant.since - LAG, self._seen.until + MARGIN)
        for moved in rows:
            slack.update(moved)
            if all(abs(difference) <= slack[of] for of, difference in differences.items()):
                return {}
        return {of: _beyond(difference, slack[of]) for of, difference in differences.items()}

    def _tenant(self, name: str, now: datetime) -> Tenant | None:
        """Return the tenant's counts, or None if this walk leaves the tenant out.

        With too many tenants the walk takes those of the lowest rank. Each day draws new ranks. The
        limit rank only falls, so each tenant taken was counted from its first job state.
        """
        tenants = self._seen.tenants
        if name in tenants:
            return tenants[name]
        if len(tenants) == MOST_TENANTS:
            self._seen.some_left_out = True
            last = max(tenants, key=lambda tenant: _rank(self._started_at, tenant))
            if _rank(self._started_at, last) < _rank(self._started_at, name):
                return None
            del tenants[last]
        tenants[name] = Tenant(now, counters.standing(self._tallies.totals(name)), {})
        return tenants[name]


def _differences(tenant: Tenant) -> dict[str, int]:
    names = sorted(tenant.counted.keys() | tenant.seen.keys())
    return {name: tenant.seen.get(name, 0) - tenant.counted.get(name, 0) for name in names}


def _beyond(difference: int, slack: int) -> int:
    """Return the signed excess of a difference over the slack.

    >>> _beyond(5, 3), _beyond(-5, 3), _beyond(2, 3)
    (2, -2, 0)
    """
    size = max(0, abs(difference) - slack)
    return size if difference > 0 else -size


@lru_cache(maxsize=4 * MOST_TENANTS)
def _rank(started_at: datetime, tenant: str) -> bytes:
    return blake2b(f"{moment(started_at)}\0{tenant}".encode(), digest_size=8).digest()
