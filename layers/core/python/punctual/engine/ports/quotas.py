"""The ports for limits: a tenant's limits, and the checks before anything is accepted."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from punctual.domain.tenants.limits import TenantLimits

LimitsOf = Callable[[str], TenantLimits]
Overrides = Callable[[str], Mapping[str, Any] | None]


class QuotaGrant(NamedTuple):
    """A grant of `number` uses. More may be free after `retry_after_seconds`; infinite is never."""

    number: int
    retry_after_seconds: float = 0.0


class EndedClaim(NamedTuple):
    """A claim that a detached runner or a container held. Its nonce names it."""

    tenant: str
    nonce: str
    is_script: bool


class Quotas(Protocol):
    """Checks before anything is accepted. For a tenant without limits they cost nothing."""

    def check_call(self, tenant: str, /) -> None:
        """Raise `LimitExceeded` if the tenant calls too often."""

    def available_jobs(self, tenant: str, requested: int, /) -> int:
        """Return for how many of `requested` new jobs there is room."""

    def take_run_requests(
        self, tenant: str, requested: int, all_or_none: bool = False, /
    ) -> QuotaGrant:
        """Return how many of `requested` runs may start now, or all or none."""
