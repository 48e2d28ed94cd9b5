"""Secrets by reference, from Secrets Manager or else from SSM. Memory keeps them for a minute.

Secrets Manager  punctual/<stage>/<tenant>/<name>
SSM              /punctual/<stage>/secrets/<tenant>/<name>, a SecureString
"""

import re
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, call_aws, error_code

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


class AwsSecrets:
    def __init__(
        self, manager: Client, parameters: Client, stage: str, steady: Callable[[], float]
    ) -> None:
        self._manager = manager
        self._parameters = parameters
        self._stage = stage
        self._steady = steady
        self._cache: dict[tuple[str, str], tuple[float, str]] = {}

    def get(self, tenant: str, name: str) -> str:
        """Return the secret. Raise `KeyError` if it is absent; absence is not cached."""
        read_steady, cached = self._cache.get((tenant, name), (0.0, None))
        steady = self._steady()
        if cached is not None and steady - read_steady < SECRET_CACHE_SECONDS:
            return cached
        secret = self._read(tenant, name)
        if len(self._cache) >= MAX_CACHED_SECRETS:
            self._cache.clear()
        self._cache[tenant, name] = (steady, secret)
        return secret

    def _read(self, tenant: str, name: str) -> str:
        if not _SAFE_TENANT.fullmatch(tenant):
            raise KeyError(name)
        response = _read_if_present(
            lambda: self._manager().get_secret_value(
                SecretId=f"punctual/{self._stage}/{tenant}/{name}"
            )
        )
        if response is not None and "SecretString" in response:
            return str(response["SecretString"])
        response = _read_if_present(
            lambda: self._parameters().get_parameter(
                Name=f"/punctual/{self._stage}/secrets/{tenant}/{name}", WithDecryption=True
            )
        )
        if response is None or response["Parameter"]["Type"] != "SecureString":
            raise KeyError(name)
        return str(response["Parameter"]["Value"])


def _read_if_present(read: Callable[[], Any]) -> Any:
    """Return the answer of the call, or None if the secret is absent."""

    def read_or_none() -> Any:
        try:
            return read()
        except ClientError as error:
            if error_code(error) in _ABSENT_SECRET_CODES:
                return None
            raise

    return call_aws("reading a secret", read_or_none)
