"""Acknowledges failures. Each acknowledgement has its audit entry before it takes effect."""

from datetime import datetime

from punctual.domain.failures import Acknowledgement
from punctual.engine.commands.audit import FAILURE_ACKNOWLEDGE
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.failures import Failures
from punctual.engine.queries.overview.failures import FailureQueries, FailureView, no_such_failure


class FailureCommands:
    def __init__(self, failures: Failures, job_states: JobStates, audit: AuditLog) -> None:
        self._failures = failures
        self._audit = audit
        self.queries = FailureQueries(failures, job_states)

    def acknowledge(
        self, tenant: str, failure_id: str, note: str, actor: Actor, now: datetime
    ) -> FailureView:
        """Acknowledge an open failure. The same caller and note again change nothing."""
        failure = self.queries.find(tenant, failure_id)
        acknowledged = failure.acknowledged
        if acknowledged is None or (acknowledged.by, acknowledged.note) != (actor.caller, note):
            after = {"job_id": failure.job_id, "error": failure.error, "note": note or None}
            self._audit.add_note(tenant, Note(actor, FAILURE_ACKNOWLEDGE, now, after=after))
            changed = self._failures.acknowledge(
                tenant, failure_id, Acknowledgement(actor.caller, now, note)
            )
            if changed is None:
                raise no_such_failure()
            failure = changed
        return self.queries.views(tenant, [failure])[0]
