"""The signing keys of webhooks, as `make deploy` and `make webhook-key` store them."""

from collections.abc import Sequence

from punctual.aws.parameters import Parameter
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.webhooks import keys_of, shown_secret, tenant_secret
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.ssm_secrets import WEBHOOK_KEY

FRESH = 45.0  # seconds for which read keys count as current


class WebhookKeys:
    """Reads signing keys. `secrets` uses a cache, `shown` reads anew after a possible rotation."""

    def __init__(self, runtime: Runtime) -> None:
        self._name = runtime.settings.knobs + WEBHOOK_KEY
        self._parameter = Parameter(lambda: runtime.clients.ssm, self._name)
        self._steady = runtime.steady
        self._known: tuple[tuple[bytes, ...], float] | None = None

    def secrets(self, tenant: str) -> Sequence[bytes]:
        known = self._known
        if known is None or self._steady() - known[1] >= FRESH:
            known = self._known = self._read(), self._steady()
        return [tenant_secret(key, tenant) for key in known[0]]

    def shown(self, tenant: str) -> str:
        return shown_secret(tenant_secret(self._read()[0], tenant))

    def _read(self) -> tuple[bytes, ...]:
        keys = keys_of(self._parameter.read())
        if not keys:
            raise Unavailable(f"The parameter {self._name} holds no key: run `make deploy`.")
        return keys
