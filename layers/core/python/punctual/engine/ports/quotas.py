"""The ports for limits: a tenant's limits, and the checks before anything is accepted."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from punctual.domain.tenants.limits import Limits

LimitsOf = Callable[[str], Limits]
Overrides = Callable[[str], Mapping[str, Any] | None]


class Granted(NamedTuple):
    """After `again_after` seconds there may be room for the rest; infinite means never."""

    number: int
    again_after: float = 0.0


class Quotas(Protocol):
    """Checks before anything is accepted. For a tenant without limits they cost nothing."""

    def call(self, tenant: str, /) -> None:
        """Raise `LimitExceeded` if the tenant calls too often."""

    def jobs(self, tenant: str, asked: int, /) -> int:
        """Return for how many of `asked` new jobs there is room."""

    def orders(self, tenant: str, asked: int, whole: bool = False, /) -> Granted:
        """Return how many of `asked` runs may be ordered now; all or none if `whole`."""
