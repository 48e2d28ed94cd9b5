"""Secrets by reference, from Secrets Manager or else from SSM. Memory keeps them for a minute.

Secrets Manager  punctual/<stage>/<tenant>/<name>
SSM              /punctual/<stage>/secrets/<tenant>/<name>, a SecureString
"""

import re
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, answer

KEPT = 60.0  # seconds; a changed secret is used at most a minute later
MOST = 500  # secrets in memory

_ABSENT = frozenset(
    {
        "InvalidRequestException",  # the secret is scheduled for deletion
        "ParameterNotFound",
        "ResourceNotFoundException",
        "ValidationException",
        "ParameterVersionNotFound",
    }
)
# A tenant with a slash could read the secret of another tenant.
_TENANT = re.compile(r"[A-Za-z0-9_.=+-]{1,128}")


class AwsSecrets:
    def __init__(
        self, manager: Client, parameters: Client, stage: str, monotonic: Callable[[], float]
    ) -> None:
        self._manager = manager
        self._parameters = parameters
        self._stage = stage
        self._monotonic = monotonic
        self._kept: dict[tuple[str, str], tuple[float, str]] = {}

    def get(self, tenant: str, name: str) -> str:
        """Return the secret. Raise `KeyError` if it is absent; absence is not cached."""
        at, value = self._kept.get((tenant, name), (0.0, None))
        now = self._monotonic()
        if value is not None and now - at < KEPT:
            return value
        found = self._find(tenant, name)
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[tenant, name] = (now, found)
        return found

    def _find(self, tenant: str, name: str) -> str:
        if not _TENANT.fullmatch(tenant):
            raise KeyError(name)
        found = _ask(
            lambda: self._manager().get_secret_value(
                SecretId=f"punctual/{self._stage}/{tenant}/{name}"
            )
        )
        if found is not None and "SecretString" in found:
            return str(found["SecretString"])
        found = _ask(
            lambda: self._parameters().get_parameter(
                Name=f"/punctual/{self._stage}/secrets/{tenant}/{name}", WithDecryption=True
            )
        )
        if found is None or found["Parameter"]["Type"] != "SecureString":
            raise KeyError(name)
        return str(found["Parameter"]["Value"])


def _ask(call: Callable[[], Any]) -> Any:
    """Return the answer of the call, or None if the secret is absent."""

    def asked() -> Any:
        try:
            return call()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _ABSENT:
                return None
            raise

    return answer("reading a secret", asked)
