"""The signing keys of webhooks, as `make deploy` and `make webhook-key` store them."""

from collections.abc import Sequence

from punctual.aws.parameters import Parameter
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.webhooks import format_secret, parse_keys, tenant_secret
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.ssm_secrets import SECRETS_CACHE_SECONDS, WEBHOOK_KEY_PARAMETER


class WebhookKeys:
    """Reads signing keys.

    `secrets` uses a cache. `read_secret` reads anew, because the key may have been rotated.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._name = runtime.settings.knobs + WEBHOOK_KEY_PARAMETER
        self._parameter = Parameter(lambda: runtime.clients.ssm, self._name)
        self._steady = runtime.steady
        self._cached: tuple[tuple[bytes, ...], float] | None = None

    def secrets(self, tenant: str) -> Sequence[bytes]:
        cached = self._cached
        if cached is None or self._steady() - cached[1] >= SECRETS_CACHE_SECONDS:
            cached = self._cached = self._read(), self._steady()
        return [tenant_secret(key, tenant) for key in cached[0]]

    def read_secret(self, tenant: str) -> str:
        return format_secret(tenant_secret(self._read()[0], tenant))

    def _read(self) -> tuple[bytes, ...]:
        keys = parse_keys(self._parameter.read())
        if not keys:
            raise Unavailable(f"The parameter {self._name} has no key. Run `make deploy`.")
        return keys
