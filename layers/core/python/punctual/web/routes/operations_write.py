"""POST /jobs/bulk: act on many jobs at once. Cancel an operation."""

from punctual.engine.operations.commands import OperationCommands
from punctual.engine.queries.slices import Sliced
from punctual.web.http.guards import idempotency_key
from punctual.web.http.json_body import fingerprint, parse_object, parse_optional
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.models.bulk import parse_bulk
from punctual.web.routing import RouteTable
from punctual.web.services import Services, installed, parse_id
from punctual.web.views.operation import item_json, operation_json, operation_url, preview_json

BULK_OPERATION = "POST /jobs/bulk"
MAX_PREVIEWED_ITEMS = 20


class OperationWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/jobs/bulk", status_code=202)(self.begin)
        table.post("/operations/<operation_id>/cancel")(self.cancel)

    def begin(self, request: Request) -> Sliced[Reply]:
        key = idempotency_key(request)
        body = parse_object(request.body, self._services.max_payload_bytes(request))
        commands, caller = self._commands(), request.caller
        fields = parse_bulk(body, self._services.clock())
        if fields.dry_run:
            items = yield from commands.preview(caller.tenant, fields.request)
            first = items[:MAX_PREVIEWED_ITEMS]
            names = commands.job_names(caller.tenant, first)
            shown = [item_json(item, names.get(item.job_id)) for item in first]
            return json_reply(200, preview_json(len(items), shown))
        digest = "" if key is None else fingerprint(BULK_OPERATION, body.value)
        operation = yield from commands.begin(
            caller.tenant, caller.name, fields.request, actor_of(request), key, digest
        )
        location = ("location", operation_url(request.root, operation.operation_id))
        return json_reply(202, operation_json(operation), location)

    def cancel(self, request: Request, operation_id: str) -> Reply:
        operation_id = parse_id(operation_id, "operation")
        bodies.parse_no_fields(parse_optional(request.body))
        operation = self._commands().cancel(request.caller.tenant, operation_id, actor_of(request))
        return json_reply(200, operation_json(operation))

    def _commands(self) -> OperationCommands:
        return installed(self._services.operations, "/operations")
