"""Reads the webhook secret of a tenant for an admin and notes it in the audit."""

from collections.abc import Callable
from datetime import datetime

from punctual.engine.commands.audit import WEBHOOK_SECRET_READ
from punctual.engine.ports.audit_log import Actor, AuditLog, Note


class WebhookSecretReader:
    def __init__(self, secret_of: Callable[[str], str], audit: AuditLog) -> None:
        self._secret_of = secret_of
        self._audit = audit

    def read(self, tenant: str, actor: Actor, now: datetime) -> str:
        """Return the tenant's secret. The audit names the reader before the secret is shown."""
        secret = self._secret_of(tenant)
        self._audit.add_note(tenant, Note(actor, WEBHOOK_SECRET_READ, now))
        return secret
