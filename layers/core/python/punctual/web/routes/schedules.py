"""What comes and why, and how the installation does."""

from datetime import timedelta

from punctual.domain.errors import FieldError, Invalid, Unavailable
from punctual.domain.schedules.schedule import Preview, describe, preview
from punctual.engine.commands.definition import compile_definition
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Health
from punctual.web.http.json_body import parse_object
from punctual.web.http.query import PAGING_PARAMETERS, Query, filter_parameters, page_request
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.system import (
    explanation_json,
    health_json,
    preview_json,
    stats_json,
    upcoming_json,
)

MAX_UPCOMING_RANGE = timedelta(days=31)
DEFAULT_UPCOMING_RANGE = timedelta(days=7)
_STORE_DOWN = Health("down", None, None, None, ())


class ScheduleRoutes:
    def __init__(self, api: ReadServices | Services) -> None:
        self._api = api

    def declare(self, table: RouteTable) -> None:
        table.post("/schedules/preview")(self.preview)
        table.get("/schedules/upcoming")(self.upcoming)
        table.get("/jobs/<job_id>/explain")(self.explain)
        table.get("/stats")(self.stats)
        table.get("/health")(self.health)
        table.get("/health/live")(self.live)
        table.get("/health/ready")(self.ready)

    def preview(self, request: Request) -> Reply:
        from punctual.web.models import (
            bodies,  # it checks by pydantic, which no other read waits for
        )

        wanted = bodies.parse_preview(parse_object(request.body), self._api.clock())
        schedule = compile_definition(wanted.fields, "", "", wanted.start).schedule
        if wanted.fields["schedule_type"] == "IMMEDIATE":
            once = ((wanted.start, wanted.start),)
            return json_reply(200, preview_json(Preview(once, describe(schedule), ())))
        count = min(wanted.most, wanted.fields.get("max_runs", wanted.most))
        return json_reply(200, preview_json(preview(schedule, wanted.start, count)))

    @takes_query
    def upcoming(self, request: Request) -> Sliced[Reply]:
        query = Query(request.query, ("from", "to", *PAGING_PARAMETERS))
        start = query.moment("from") or self._api.clock()
        end = query.moment("to") or start + DEFAULT_UPCOMING_RANGE
        limit, token = page_request(query)
        query.finish()
        if end <= start:
            raise Invalid.of(FieldError("to", "must be after from"))
        if end - start > MAX_UPCOMING_RANGE:
            raise Invalid.of(
                FieldError("to", f"must be at most {MAX_UPCOMING_RANGE.days} days after from")
            )
        tenant, bound = request.caller.tenant, filter_parameters(request.query)
        after = self._api.pager.after(tenant, "upcoming", bound, token, 2, 6)
        page = yield from self._api.search.upcoming(tenant, start, end, limit, after)
        value = {
            "times": [upcoming_json(one) for one in page.items],
            "next_token": self._api.pager.token(tenant, "upcoming", bound, page.after),
        }
        return json_reply(200, value)

    @takes_query
    def explain(self, request: Request, job_id: str) -> Sliced[Reply]:
        job_id = parse_id(job_id)
        query = Query(request.query, ("at",))
        at = query.time_or_local("at")
        query.finish()
        found = yield from self._api.search.explain(request.caller.tenant, job_id, at)
        return json_reply(200, explanation_json(job_id, found))

    def stats(self, request: Request) -> Reply:
        return json_reply(200, stats_json(self._api.search.stats(request.caller.tenant)))

    def health(self, _request: Request) -> Reply:
        try:
            health = self._api.search.health()
        except Unavailable:
            return self.no_answer()
        status = 200 if health.status == "ok" else 503
        return json_reply(status, health_json(health, self._api.about))

    def live(self, _request: Request) -> Reply:
        """It asks nothing: that there is an answer is what it says."""
        return json_reply(200, {"status": "ok"})

    def ready(self, _request: Request) -> Reply:
        """Whether requests are taken and jobs are fired. Lateness is no reason to send none."""
        try:
            down = self._api.search.health().status == "down"
        except Unavailable:
            return self.not_ready()
        return self.not_ready() if down else json_reply(200, {"status": "ok"})

    def not_ready(self) -> Reply:
        return json_reply(503, {"status": "down"})

    def no_answer(self) -> Reply:
        """The health of an installation whose store does not answer."""
        return json_reply(503, health_json(_STORE_DOWN, self._api.about))
