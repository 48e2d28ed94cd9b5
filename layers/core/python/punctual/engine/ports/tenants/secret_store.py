"""The port for the secrets that tasks name. No method returns a value."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class SecretInfo(NamedTuple):
    """What a list shows of a secret."""

    name: str
    created_at: datetime
    updated_at: datetime
    updated_by: str


class SecretStore(Protocol):
    """Stores the secrets of tenants. Runs read their values by another way."""

    def list(self, tenant: str) -> Sequence[SecretInfo]:
        """Return the secrets of a tenant, sorted by name."""

    def put(self, tenant: str, name: str, value: str, caller: str, now: datetime) -> None:
        """Store a value. Attempts that begin later than a minute after the return get it."""

    def delete(self, tenant: str, name: str) -> bool:
        """Delete a secret. Return False if it is missing."""
