"""Preview and explain schedules, and report statistics and health."""

from datetime import timedelta

from punctual.domain.errors import FieldError, Invalid, Unavailable
from punctual.domain.schedules.schedule import Preview, describe, preview
from punctual.engine.commands.definition import compile_definition
from punctual.engine.ports.monitor import Health
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.schedules.forecast import MAX_FORECAST_HOURS, MAX_HOURS_BY_MINUTE
from punctual.engine.queries.schedules.schedule_diff import (
    PlannedTimes,
    diff_schedules,
    planned_after_change,
    planned_by_job,
)
from punctual.engine.queries.slices import Sliced
from punctual.web.http.json_body import parse_object
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.schedule import forecast_json, schedule_diff_json
from punctual.web.views.system import (
    explanation_json,
    health_json,
    preview_json,
    stats_json,
    upcoming_json,
)

MAX_UPCOMING_RANGE = timedelta(days=31)
DEFAULT_UPCOMING_RANGE = timedelta(days=7)
_UNAVAILABLE_HEALTH = Health("down", None, None, None, ())


class ScheduleRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/schedules/preview")(self.preview)
        table.post("/schedules/diff")(self.diff)
        table.get("/schedules/upcoming")(self.upcoming)
        table.get("/forecast")(self.forecast)
        table.get("/jobs/<job_id>/explain")(self.explain)
        table.get("/stats")(self.stats)
        table.get("/health")(self.health)
        table.get("/health/live")(self.live)
        table.get("/health/ready")(self.ready)

    def preview(self, request: Request) -> Reply:
        # The models import pydantic, which no other reading route needs.
        from punctual.web.models import bodies

        preview_request = bodies.parse_preview(parse_object(request.body), self._services.clock())
        schedule = compile_definition(
            preview_request.fields, "", "", preview_request.start
        ).schedule
        if preview_request.fields["schedule_type"] == "IMMEDIATE":
            times = ((preview_request.start, preview_request.start),)
            return json_reply(200, preview_json(Preview(times, describe(schedule), ())))
        count = min(
            preview_request.max_times,
            preview_request.fields.get("max_runs", preview_request.max_times),
        )
        return json_reply(200, preview_json(preview(schedule, preview_request.start, count)))

    def diff(self, request: Request) -> Sliced[Reply]:
        # The models import pydantic, which no other reading route needs.
        from punctual.web.models.schedule_diff import parse_schedule_diff

        fields = parse_schedule_diff(parse_object(request.body), self._services.clock())
        start, max_runs = fields.start, fields.after.get("max_runs")
        new_schedule = compile_definition(fields.after, "", "", start).schedule
        if fields.job_id is None:
            old_schedule = compile_definition(fields.before, "", "", start).schedule
            before = PlannedTimes(old_schedule, fields.before.get("max_runs"))
            after = PlannedTimes(new_schedule, max_runs)
        else:
            key = JobKey(request.caller.tenant, fields.job_id)
            state = self._services.queries.load(key)[0].state
            before = planned_by_job(state, start)
            after = planned_after_change(state, new_schedule, max_runs, start)
        diff = yield from diff_schedules(before, after, start, fields.days)
        shown = schedule_diff_json(diff, start, before.zone_name, after.zone_name)
        return json_reply(200, shown)

    @takes_query
    def upcoming(self, request: Request) -> Sliced[Reply]:
        query = Query(request.query, ("job_id", "from", "to", *PAGING_PARAMETERS))
        job_id = query.filter_text("job_id")
        start = query.time("from") or self._services.clock()
        end = query.time("to") or start + DEFAULT_UPCOMING_RANGE
        paging = Paging.of(request, query, "upcoming")
        query.finish()
        if end <= start:
            raise Invalid.of(FieldError("to", "must be after from"))
        if end - start > MAX_UPCOMING_RANGE:
            text = f"must be at most {MAX_UPCOMING_RANGE.days} days after from"
            raise Invalid.of(FieldError("to", text))
        page = yield from self._services.queries.upcoming(
            paging.tenant,
            start,
            end,
            paging.limit,
            paging.cursor(2) if job_id else paging.cursor(2, 6),
            parse_id(job_id) if job_id else None,
        )
        times = [upcoming_json(occurrence) for occurrence in page.items]
        return json_reply(200, {"times": times, "next_token": paging.next_token(page.next_cursor)})

    @takes_query
    def forecast(self, request: Request) -> Sliced[Reply]:
        query = Query(request.query, ("hours",))
        hours = query.number("hours", MAX_HOURS_BY_MINUTE, 1, MAX_FORECAST_HOURS)
        query.finish()
        forecast = yield from self._services.queries.forecast(request.caller.tenant, hours)
        return json_reply(200, forecast_json(forecast))

    @takes_query
    def explain(self, request: Request, job_id: str) -> Sliced[Reply]:
        job_id = parse_id(job_id)
        query = Query(request.query, ("at",))
        at = query.time_or_local("at")
        query.finish()
        tenant = request.caller.tenant
        explanation = yield from self._services.queries.explain(tenant, job_id, at)
        return json_reply(200, explanation_json(job_id, explanation))

    def stats(self, request: Request) -> Reply:
        return json_reply(200, stats_json(self._services.queries.stats(request.caller.tenant)))

    def health(self, _request: Request) -> Reply:
        try:
            health = self._services.queries.health()
        except Unavailable:
            return self.store_down_reply()
        status = 200 if health.status == "ok" else 503
        return json_reply(status, health_json(health, self._services.installation))

    def live(self, _request: Request) -> Reply:
        """Answer without the store. The answer itself shows that the process is alive."""
        return json_reply(200, {"status": "ok"})

    def ready(self, _request: Request) -> Reply:
        """Return 200 if the installation takes requests and fires jobs, late or not."""
        try:
            is_down = self._services.queries.health().status == "down"
        except Unavailable:
            return self.not_ready_reply()
        return self.not_ready_reply() if is_down else json_reply(200, {"status": "ok"})

    def not_ready_reply(self) -> Reply:
        return json_reply(503, {"status": "down"})

    def store_down_reply(self) -> Reply:
        """Return the health reply for a store that does not answer."""
        return json_reply(503, health_json(_UNAVAILABLE_HEALTH, self._services.installation))
