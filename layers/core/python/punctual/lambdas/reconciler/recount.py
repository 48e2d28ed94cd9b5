"""Counts live jobs and live runs anew in the daily walk, and corrects the counts of `status`.

Jobs change while they are counted. So a difference is compared with the changes during the walk.

1. The walk reads a tenant's counts at its first job state, and counts all its job states.
2. A change is in both numbers, in neither, or in one. It is in one only if it was made in the walk
   or shortly before. `status` counts a change within minutes.
3. Rows of counted changes say how much these changes moved each count of runs. The counts of jobs
   say how many jobs moved in an hour. This is the slack. A difference up to the slack may be right.
   A larger one is corrected by the excess.

So a correction never makes a right count wrong, and the counts of a tenant at rest become exact.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

import msgspec

from punctual.aws.dynamodb.control.count_log import CountChange, change_id_of
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.keys import time_key
from punctual.aws.dynamodb.lists.job_counts import JobCounts, job_class
from punctual.domain.job_state import JobState, JobStatus
from punctual.lambdas.status import counters
from punctual.lambdas.status.changes import compare_states

COUNT_LAG = timedelta(minutes=15)  # `status` has counted a change by then, or an alarm has fired
WALK_TIME_MARGIN = timedelta(minutes=2)  # for the read of a page and clocks that differ
MAX_RECOUNT_TENANTS = 1_000  # in one walk, since their counts are stored in one row
MAX_WALK_TIME = timedelta(days=1)  # after a longer walk the rows of its changes may have expired

_JOB_CLASSES = {
    f"job_{status}": job_class(status, None) for status in (JobStatus.SCHEDULED, JobStatus.PAUSED)
}


class TenantRecount(
    msgspec.Struct,
    rename={
        "first_page_at": "since",
        "status_counts": "counted",
        "walk_counts": "seen",
        "is_readable": "readable",
    },
):
    first_page_at: datetime  # when the walk read the first job state
    status_counts: dict[str, int]  # by `status` at that time
    walk_counts: dict[str, int]  # by the walk
    is_readable: bool = True  # false if a job state is unreadable


class WalkCounts(
    msgspec.Struct, rename={"last_page_at": "until", "has_left_out_tenants": "some_left_out"}
):
    """The counts of a walk so far."""

    tenants: dict[str, TenantRecount] = msgspec.field(default_factory=dict)
    last_page_at: datetime | None = None  # when the walk read its last page
    has_left_out_tenants: bool = False


class Recount:
    """The counts of one walk. `packed` lets another invocation continue them."""

    def __init__(
        self,
        tenant_counters: Counters,
        job_counts: JobCounts,
        started_at: datetime,
        packed: bytes,
    ) -> None:
        self._counters = tenant_counters
        self._job_counts = job_counts
        self._started_at = started_at
        self._walk = (
            msgspec.json.decode(zlib.decompress(packed), type=WalkCounts)
            if packed
            else WalkCounts()
        )

    @property
    def packed(self) -> bytes:
        return zlib.compress(msgspec.json.encode(self._walk))

    @property
    def has_left_out_tenants(self) -> bool:
        return self._walk.has_left_out_tenants

    @property
    def tenants(self) -> Sequence[str]:
        """Return the tenants left to correct, after the walk has read all job states."""
        return list(self._walk.tenants)

    def add(self, states: Sequence[JobState], unreadable: Sequence[str], now: datetime) -> None:
        """Count the job states of one page.

        `unreadable` lists tenants with unreadable job states.
        """
        self._walk.last_page_at = now
        for tenant in unreadable:
            recount = self._find_or_add_tenant(tenant, now)
            if recount is not None:
                recount.is_readable = False
        counts: dict[str, Counter[str]] = {}
        for state in states:
            state_counts = live_counts_of(state)
            counts.setdefault(state.tenant, Counter()).update(state_counts)
        for tenant, page_counts in counts.items():
            recount = self._find_or_add_tenant(tenant, now)
            if recount is not None:
                recount.walk_counts = dict(Counter(recount.walk_counts) + page_counts)

    def keep_differing(self) -> None:
        """Remove tenants that need no correction or cannot get one."""
        self._walk.tenants = {
            name: tenant
            for name, tenant in self._walk.tenants.items()
            if tenant.is_readable and any(_differences(tenant).values())
        }

    def is_due(self, now: datetime) -> bool:
        """Return whether `status` has counted all changes made during the walk."""
        return self._walk.last_page_at is None or now >= self._walk.last_page_at + COUNT_LAG

    def correct(self, name: str) -> bool:
        """Correct the counts of one tenant. Return whether they were wrong.

        The correction is counted like a change, so a repeated correction adds nothing.
        """
        tenant = self._walk.tenants.pop(name)
        correction = self._excess_differences(name, tenant)
        if not any(correction.values()):
            return False
        started_at = time_key(self._started_at)
        jobs = {
            job_class: count
            for count_name, job_class in _JOB_CLASSES.items()
            if (count := correction.pop(count_name, 0))
        }
        if jobs:
            self._job_counts.correct(name, started_at, jobs)
        change_id = change_id_of(f"recount {started_at}", name)
        self._counters.count(name, [CountChange(change_id, self._started_at, correction)])
        return True

    def _excess_differences(self, name: str, tenant: TenantRecount) -> dict[str, int]:
        """Return by how much each difference exceeds the changes around the walk."""
        assert self._walk.last_page_at is not None, "a page had the tenant's first job state"
        differences = _differences(tenant)
        moved_jobs = self._job_counts.read(name).moved(
            tenant.first_page_at, self._walk.last_page_at + COUNT_LAG
        )
        slack: Counter[str] = Counter(dict.fromkeys(_JOB_CLASSES, moved_jobs))
        rows = self._counters.moved_counts(
            name, tenant.first_page_at - COUNT_LAG, self._walk.last_page_at + WALK_TIME_MARGIN
        )
        for moved in rows:
            slack.update(moved)
            if all(
                abs(difference) <= slack[count_name]
                for count_name, difference in differences.items()
            ):
                return {}
        return {
            count_name: _excess(difference, slack[count_name])
            for count_name, difference in differences.items()
        }

    def _find_or_add_tenant(self, name: str, now: datetime) -> TenantRecount | None:
        """Return the tenant's counts, or None if this walk leaves the tenant out.

        With too many tenants the walk takes those of the lowest rank. Each day draws new ranks. The
        limit rank only falls, so each tenant taken was counted from its first job state.
        """
        tenants = self._walk.tenants
        if name in tenants:
            return tenants[name]
        if len(tenants) == MAX_RECOUNT_TENANTS:
            self._walk.has_left_out_tenants = True
            highest = max(tenants, key=lambda tenant: _rank(self._started_at, tenant))
            if _rank(self._started_at, highest) < _rank(self._started_at, name):
                return None
            del tenants[highest]
        self._counters.fold(name)  # also the counts of a tenant that is idle since
        jobs = self._job_counts.read(name)
        status_counts = {
            **counters.live_counts(self._counters.totals(name)),
            **{
                count_name: count
                for count_name, job_class in _JOB_CLASSES.items()
                if (count := jobs.by_class.get(job_class, 0))
            },
        }
        tenants[name] = TenantRecount(now, status_counts, {})
        return tenants[name]


def live_counts_of(state: JobState) -> Counter[str]:
    """Return what a job state adds to the counts of live jobs and live runs."""
    counts = Counter(
        counters.live_counts(counters.status_count_changes(compare_states(None, state)))
    )
    if not state.is_blank and (name := f"job_{state.status}") in _JOB_CLASSES:
        counts[name] += 1
    return counts


def _differences(tenant: TenantRecount) -> dict[str, int]:
    names = sorted(tenant.status_counts.keys() | tenant.walk_counts.keys())
    return {
        name: tenant.walk_counts.get(name, 0) - tenant.status_counts.get(name, 0) for name in names
    }


def _excess(difference: int, slack: int) -> int:
    """Return the signed excess of a difference over the slack.

    >>> _excess(5, 3), _excess(-5, 3), _excess(2, 3)
    (2, -2, 0)
    """
    size = max(0, abs(difference) - slack)
    return size if difference > 0 else -size


@lru_cache(maxsize=4 * MAX_RECOUNT_TENANTS)
def _rank(started_at: datetime, tenant: str) -> bytes:
    return blake2b(f"{time_key(started_at)}\0{tenant}".encode(), digest_size=8).digest()
