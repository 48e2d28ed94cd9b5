"""GET /artifacts: list artifacts with the jobs that use them, and show one."""

from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, installed, parse_id
from punctual.web.views.artifact import artifact_view_json


class ArtifactReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/artifacts")(self.list)
        table.get("/artifacts/<artifact_id>")(self.read)

    @takes_query
    def list(self, request: Request) -> Reply:
        query = Query(request.query, PAGING_PARAMETERS)
        paging = Paging.of(request, query, "artifacts")
        query.finish()
        page = self._queries().page(paging.tenant, paging.limit, paging.cursor(1))
        artifacts = [artifact_view_json(view) for view in page.items]
        next_token = paging.next_token(page.next_cursor)
        return json_reply(200, {"artifacts": artifacts, "next_token": next_token})

    def read(self, request: Request, artifact_id: str) -> Reply:
        artifact_id = parse_id(artifact_id, "artifact")
        view = self._queries().view(request.caller.tenant, artifact_id)
        return json_reply(200, artifact_view_json(view))

    def _queries(self) -> ArtifactQueries:
        return installed(self._services.artifact_queries, "/artifacts")
