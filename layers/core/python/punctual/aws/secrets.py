"""Secrets by reference, from SSM or else from Secrets Manager. Memory keeps them for a minute.

SSM              /punctual/<stage>/secrets/<tenant>/<name>, a SecureString
Secrets Manager  punctual/<stage>/<tenant>/<name>
"""

import re
from collections.abc import Callable
from threading import Lock
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.retries import THROTTLING_CODES, Client, call_aws, error_code
from punctual.tasks.contract import Throttled

SECRET_CACHE_SECONDS = 60.0  # a changed secret is used at most a minute later
MAX_CACHED_SECRETS = 500  # secrets in memory

_ABSENT_SECRET_CODES = frozenset(
    {
        "InvalidRequestException",  # the secret is scheduled for deletion
        "ParameterNotFound",
        "ResourceNotFoundException",
        "ValidationException",
        "ParameterVersionNotFound",
    }
)
# A tenant with a slash could read the secret of another tenant.
_SAFE_TENANT = re.compile(r"[A-Za-z0-9_.=+-]{1,128}")


def parameter_name(stage: str, tenant: str, name: str) -> str:
    """Return the name of the SSM parameter of a secret.

    >>> parameter_name("dev", "acme", "bank")
    '/punctual/dev/secrets/acme/bank'
    """
    return f"/punctual/{stage}/secrets/{tenant}/{name}"


class AwsSecrets:
    """Reads secrets. Without a `manager` only those of SSM, which ECS can read by reference."""

    def __init__(
        self, manager: Client | None, parameters: Client, stage: str, steady: Callable[[], float]
    ) -> None:
        self._manager = manager
        self._parameters = parameters
        self._stage = stage
        self._steady = steady
        self._cache: dict[tuple[str, str], tuple[float, str]] = {}
        self._read_locks: dict[tuple[str, str], Lock] = {}

    def get(self, tenant: str, name: str) -> str:
        """Return the secret. Raise `KeyError` if it is absent; absence is not cached.

        Attempts of one batch begin together. They share one read, because SSM allows 40 a second.
        """
        cached = self._cached(tenant, name)
        if cached is not None:
            return cached
        if len(self._read_locks) >= MAX_CACHED_SECRETS:
            self._read_locks.clear()
        with self._read_locks.setdefault((tenant, name), Lock()):
            cached = self._cached(tenant, name)
            if cached is not None:
                return cached
            secret = self._read(tenant, name)
            if len(self._cache) >= MAX_CACHED_SECRETS:
                self._cache.clear()
            self._cache[tenant, name] = (self._steady(), secret)
            return secret

    def _cached(self, tenant: str, name: str) -> str | None:
        read_steady, cached = self._cache.get((tenant, name), (0.0, None))
        is_fresh = self._steady() - read_steady < SECRET_CACHE_SECONDS
        return cached if is_fresh else None

    def _read(self, tenant: str, name: str) -> str:
        if not _SAFE_TENANT.fullmatch(tenant):
            raise KeyError(name)
        response = _read_if_present(
            name,
            lambda: self._parameters().get_parameter(
                Name=parameter_name(self._stage, tenant, name), WithDecryption=True
            ),
        )
        if response is not None and response["Parameter"]["Type"] == "SecureString":
            return str(response["Parameter"]["Value"])
        manager = self._manager
        if manager is None:
            raise KeyError(name)
        response = _read_if_present(
            name,
            lambda: manager().get_secret_value(SecretId=f"punctual/{self._stage}/{tenant}/{name}"),
        )
        if response is None or "SecretString" not in response:
            raise KeyError(name)
        return str(response["SecretString"])


def _read_if_present(name: str, read: Callable[[], Any]) -> Any:
    """Return the answer of the call, or None if the secret is absent."""

    def read_or_none() -> Any:
        try:
            return read()
        except ClientError as error:
            if error_code(error) in _ABSENT_SECRET_CODES:
                return None
            if error_code(error) in THROTTLING_CODES:
                text = f"AWS allows no more reads of secrets for now; {name!r} was not read"
                raise Throttled(text) from error
            raise

    return call_aws("reading a secret", read_or_none)
