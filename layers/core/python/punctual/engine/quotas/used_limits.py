"""How much of its limits a tenant uses, for `GET /stats`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.artifacts import MEGABYTE_BYTES
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.limits import LIMIT_FIELDS, TenantLimits, effective_limits
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.ports.tenants.artifact_rows import ArtifactRows

ReadUses = Callable[[str, TenantLimits, datetime], Mapping[str, float]]
"""Returns the uses of a tenant by limit. Limits that are not set may be missing."""

COUNTED_ARTIFACTS_PAGE_SIZE = 200
MAX_COUNTED_ARTIFACTS = 2_000
ARTIFACT_COUNT_DURATION = timedelta(minutes=1)
MAX_COUNTED_TENANTS = 1_000  # with a count in memory


class UsedLimits:
    """Reads the limits of a tenant that are set, each with what is allowed and used.

    Several readers may know a part of one use. The largest counts.
    """

    def __init__(self, limits_of: LimitsOf, readers: Sequence[ReadUses]) -> None:
        self._limits_of = limits_of
        self._readers = readers

    def __call__(self, tenant: str, now: datetime) -> list[dict[str, Any]]:
        limits = self._limits_of(tenant)
        uses: dict[str, float] = {}
        for read_uses in self._readers:
            try:
                read = read_uses(tenant, limits, now)
            except Unavailable:
                continue  # the other statistics are shown without this use
            for name, used in read.items():
                uses[name] = max(used, uses.get(name, 0))
        allowed = effective_limits(limits)
        return [
            {"limit": name, "allowed": allowed[name], "used": uses[name]}
            for name in LIMIT_FIELDS
            if name in uses and allowed[name] is not None
        ]


class ArtifactUses:
    """Counts the artifacts of a tenant, at most once a minute.

    A tenant with more than `MAX_COUNTED_ARTIFACTS` has no count.
    """

    def __init__(self, rows: ArtifactRows) -> None:
        self._rows = rows
        self._counts: dict[str, tuple[datetime, Mapping[str, float]]] = {}

    def __call__(self, tenant: str, _limits: TenantLimits, now: datetime) -> Mapping[str, float]:
        counted_at, uses = self._counts.get(tenant, (None, {}))
        if counted_at is not None and timedelta(0) <= now - counted_at < ARTIFACT_COUNT_DURATION:
            return uses
        uses = self._count(tenant)
        if len(self._counts) >= MAX_COUNTED_TENANTS:
            self._counts.clear()
        self._counts[tenant] = now, uses
        return uses

    def _count(self, tenant: str) -> Mapping[str, float]:
        number, total_bytes, after = 0, 0, None
        for _ in range(MAX_COUNTED_ARTIFACTS // COUNTED_ARTIFACTS_PAGE_SIZE):
            artifacts = self._rows.page(tenant, after, COUNTED_ARTIFACTS_PAGE_SIZE)
            number += sum(artifact.counts for artifact in artifacts)
            total_bytes += sum(artifact.size for artifact in artifacts if artifact.counts)
            if len(artifacts) < COUNTED_ARTIFACTS_PAGE_SIZE:
                return {
                    "artifacts": number,
                    "artifact_mb": round(total_bytes / MEGABYTE_BYTES, 1),
                }
            after = artifacts[-1].artifact_id
        return {}
