"""GET /overview: is everything all right?"""

from punctual.engine.queries.overview.overview import OverviewQueries
from punctual.engine.queries.slices import Sliced
from punctual.web.http.query import Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, installed
from punctual.web.views.overview import overview_json


class OverviewRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/overview")(self.overview)

    @takes_query
    def overview(self, request: Request) -> Sliced[Reply]:
        Query(request.query, ()).finish()
        failures = installed(self._services.failure_queries, "/overview")
        queries = OverviewQueries(self._services.queries, failures)
        overview = yield from queries.read(request.caller.tenant)
        return json_reply(200, overview_json(overview))
