"""POST /failures/{failure_id}/acknowledge: a person knows of a failure."""

from punctual.domain.failures import parse_failure_id
from punctual.web.http.json_body import parse_optional
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models.failure import parse_acknowledgement
from punctual.web.routing import RouteTable
from punctual.web.services import Services, installed, parse_id
from punctual.web.views.failure import failure_json


class FailureWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/failures/<failure_id>/acknowledge")(self.acknowledge)

    def acknowledge(self, request: Request, failure_id: str) -> Reply:
        job_id, kind = parse_failure_id(failure_id)
        failure_id = f"{parse_id(job_id, 'failure')}-{kind}"
        note = parse_acknowledgement(parse_optional(request.body))
        failures = installed(self._services.failures, "/failures")
        view = failures.acknowledge(
            request.caller.tenant, failure_id, note, actor_of(request), self._services.clock()
        )
        return json_reply(200, failure_json(view))
