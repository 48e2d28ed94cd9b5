"""Commands on the secrets of a tenant: set, list and delete. None returns or audits a value."""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain.errors import LimitExceeded, NotFound
from punctual.engine.commands.audit import SECRET_DELETE, SECRET_SET
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.tenants.secret_store import SecretInfo, SecretStore

MAX_TENANT_SECRETS = 200  # few enough for a list of one page
# Seconds until a retry, since only a deletion makes room.
SECRET_LIMIT_RETRY_SECONDS = 60.0


class Secrets:
    """Sets, lists and deletes secrets. Each change has its audit entry before it takes effect."""

    def __init__(self, store: SecretStore, audit: AuditLog) -> None:
        self._store = store
        self._audit = audit

    def list(self, tenant: str) -> Sequence[SecretInfo]:
        return self._store.list(tenant)

    def set(self, tenant: str, name: str, value: str, actor: Actor, now: datetime) -> None:
        """Store the value of a new or an existing secret.

        Concurrent calls may exceed the limit of a tenant by a few secrets.
        """
        names = {secret.name for secret in self._store.list(tenant)}
        if name not in names and len(names) >= MAX_TENANT_SECRETS:
            raise LimitExceeded(
                f"A tenant has at most {MAX_TENANT_SECRETS} secrets: delete some first "
                "(DELETE /secrets/{name}).",
                SECRET_LIMIT_RETRY_SECONDS,
            )
        self._audit.add_note(tenant, Note(actor, SECRET_SET, now, after={"secret": name}))
        self._store.put(tenant, name, value, actor.caller, now)

    def delete(self, tenant: str, name: str, actor: Actor, now: datetime) -> None:
        if all(secret.name != name for secret in self._store.list(tenant)):
            raise _missing()
        self._audit.add_note(tenant, Note(actor, SECRET_DELETE, now, before={"secret": name}))
        if not self._store.delete(tenant, name):
            raise _missing()


def _missing() -> NotFound:
    return NotFound("There is no such secret.")
