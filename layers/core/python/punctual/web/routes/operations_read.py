"""GET /operations: list and read operations."""

from punctual.engine.queries.operations import OperationQueries
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, installed, parse_id
from punctual.web.views.operation import operation_json


class OperationReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/operations")(self.list_operations)
        table.get("/operations/<operation_id>")(self.read)

    @takes_query
    def list_operations(self, request: Request) -> Reply:
        query = Query(request.query, PAGING_PARAMETERS)
        paging = Paging.of(request, query, "operations")
        query.finish()
        operations, cursor = self._queries().page(paging.tenant, paging.limit, paging.cursor(1))
        shown = [operation_json(operation) for operation in operations]
        return json_reply(200, {"operations": shown, "next_token": paging.next_token(cursor)})

    def read(self, request: Request, operation_id: str) -> Reply:
        operation_id = parse_id(operation_id, "operation")
        operation = self._queries().load(request.caller.tenant, operation_id)
        return json_reply(200, operation_json(operation))

    def _queries(self) -> OperationQueries:
        return installed(self._services.operation_queries, "/operations")
