"""Identifies the caller of the API by a token, the admin token, or a JWT of an issuer.

The answer always allows the call, with or without a caller. Only the API functions can refuse it
with the errors of the contract (docs/decisions/0021-tokens.md). Heavy imports are avoided, because
this function runs before each call.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from punctual.auth.authenticator import Identity, TokenSecrets, TokenVerifier, bearer_token
from punctual.domain.errors import Unavailable
from punctual.lambdas.ssm_secrets import (
    ADMIN_HASH_PARAMETER,
    SECRETS_CACHE_SECONDS,
    TOKEN_KEY_PARAMETER,
    decode_key,
)

MAX_STALE_SECRETS_SECONDS = 600.0  # seconds of use while SSM cannot be read
# Seconds in which AWS calls may start. The last call takes up to 4 s more, so the authorizer can
# still answer `UNSURE_CONTEXT` in time.
AUTHORIZER_TIME_LIMIT_SECONDS = 3.0

UNSURE_CONTEXT: Mapping[str, str] = {"unsure": "yes"}


class Authorizer:
    def __init__(self, authenticator: TokenVerifier, log_problem: Callable[[str], None]) -> None:
        self._authenticator = authenticator
        self._log_problem = log_problem

    def authorize(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {"isAuthorized": True, "context": dict(self._caller_context(event))}

    def _caller_context(self, event: Mapping[str, Any]) -> Mapping[str, str]:
        token = _find_token(event.get("headers") or {})
        if token is None:
            return {}
        try:
            identity = self._authenticator.identify(token)
        except Unavailable as error:
            self._log_problem(error.message)
            return UNSURE_CONTEXT
        return {} if identity is None else identity_context(identity)


class DeployedSecrets:
    """Reads the token key and the hash of the admin token from SSM.

    `make deploy` and `make token` store them.

    `wall_seconds` proceeds in a frozen environment. A clock that was set back causes a new read.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, str]],
        parameter_prefix: str,
        wall_seconds: Callable[[], float],
    ) -> None:
        self._read = read
        self._parameter_prefix = parameter_prefix
        self._wall_seconds = wall_seconds
        self._secrets = TokenSecrets(b"")
        self._read_seconds: float | None = None

    @staticmethod
    def parameter_names(parameter_prefix: str) -> list[str]:
        return [parameter_prefix + TOKEN_KEY_PARAMETER, parameter_prefix + ADMIN_HASH_PARAMETER]

    def __call__(self) -> TokenSecrets:
        now_seconds = self._wall_seconds()
        age_seconds = None if self._read_seconds is None else now_seconds - self._read_seconds
        if age_seconds is not None and 0 <= age_seconds < SECRETS_CACHE_SECONDS:
            return self._secrets
        try:
            values = self._read()
        except Unavailable:
            if age_seconds is None or not 0 <= age_seconds < MAX_STALE_SECRETS_SECONDS:
                raise
            return self._secrets
        key, stored_hash = (
            values.get(name, "") for name in self.parameter_names(self._parameter_prefix)
        )
        if not stored_hash:
            raise Unavailable(
                f"The parameter {self._parameter_prefix}{ADMIN_HASH_PARAMETER} does not exist."
            )
        self._secrets, self._read_seconds = (
            TokenSecrets(decode_key(key), stored_hash.strip()),
            now_seconds,
        )
        return self._secrets


def identity_context(identity: Identity) -> dict[str, str]:
    """Return the context of an authorizer response.

    It may hold only text, and omits empty values.
    """
    context = {
        "tenant": identity.tenant,
        "caller": identity.name,
        "role": identity.role.label,
        "token_id": identity.token_id,
        "expires_at": "" if identity.expires_at is None else identity.expires_at.isoformat(),
    }
    return {name: text for name, text in context.items() if text}


def build_clock(wall_seconds: Callable[[], float]) -> Callable[[], datetime]:
    return lambda: datetime.fromtimestamp(wall_seconds(), UTC)


def _find_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token. A test event of the console may have header names in upper case."""
    for name, value in headers.items():
        if name.lower() == "authorization":
            return bearer_token(value)
    return None
