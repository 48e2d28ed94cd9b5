"""The limits that a node's operator configures: defaults in a variable, and a file by tenant."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from punctual.domain.errors import PunctualError
from punctual.domain.tenants.limits import InvalidLimits, TenantLimits, limits_from, parse_limits

LIMITS_FILE = "limits.json"
LIMITS_VARIABLE = "PUNCTUAL_LIMITS"


class NodeLimitsError(PunctualError):
    """The configured limits are not valid."""


def defaults_from(env: Mapping[str, str]) -> TenantLimits:
    """Return the limits of `PUNCTUAL_LIMITS`.

    >>> defaults_from({"PUNCTUAL_LIMITS": "jobs=500 calls_per_second=20"}).jobs
    500
    """
    try:
        return limits_from(parse_limits(env.get(LIMITS_VARIABLE, "")))
    except InvalidLimits as error:
        raise NodeLimitsError(f"{LIMITS_VARIABLE}: {error}.") from error


class LimitsFile:
    """`limits.json` in the data folder.

    It maps a tenant to the limits that differ from the defaults.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, tenant: str) -> Mapping[str, Any] | None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidLimits(f"{self._path} cannot be read: {error}") from error
        try:
            limits_by_tenant = json.loads(text)
        except ValueError as error:
            raise InvalidLimits(f"{self._path} is not JSON: {error}") from error
        if not isinstance(limits_by_tenant, dict) or not all(
            isinstance(entry, dict) for entry in limits_by_tenant.values()
        ):
            raise InvalidLimits(f"{self._path} must be an object of objects, by tenant")
        tenant_limits: Mapping[str, Any] | None = limits_by_tenant.get(tenant)
        return tenant_limits

    def check(self) -> None:
        """Raise `NodeLimitsError` for the first wrong entry. A start calls this."""
        try:
            self("")
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else "{}"
            for tenant, tenant_limits in json.loads(text).items():
                try:
                    limits_from(tenant_limits)
                except InvalidLimits as error:
                    raise InvalidLimits(f"{self._path}: {tenant}: {error}") from error
        except InvalidLimits as error:
            raise NodeLimitsError(f"{error}.") from error
