"""Run a job now, backfill it, cancel and retry runs."""

from punctual.domain.timestamps import format_time
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView
from punctual.web.http.guards import idempotency_key
from punctual.web.http.json_body import fingerprint, parse_optional
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.routing import RouteTable
from punctual.web.services import Services, parse_id
from punctual.web.views.run import run_json, run_url


class RunWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/jobs/<job_id>/runNow", status_code=202)(self.run_now)
        table.post("/jobs/<job_id>/backfill", status_code=202)(self.backfill)
        table.post("/jobs/<job_id>/runs/<run_id>/cancel", status_code=202)(self.cancel)
        table.post("/jobs/<job_id>/runs/<run_id>/retry", status_code=202)(self.retry)

    def run_now(self, request: Request, job_id: str) -> Reply:
        job_id, key = parse_id(job_id), idempotency_key(request)
        body = parse_optional(request.body, self._services.max_payload_bytes(request))
        payload = bodies.parse_run_now(body)
        operation = f"POST /jobs/{job_id}/runNow"
        request_fingerprint = "" if key is None else fingerprint(operation, body.value)
        tenant, actor = request.caller.tenant, actor_of(request)
        view = self._services.jobs.run_now(tenant, job_id, payload, key, request_fingerprint, actor)
        return _accepted_run(view, request)

    def backfill(self, request: Request, job_id: str) -> Sliced[Reply]:
        job_id = parse_id(job_id)
        fields = bodies.parse_backfill(parse_optional(request.body))
        times = yield from self._services.jobs.backfill(
            request.caller.tenant,
            job_id,
            fields.start,
            fields.end,
            fields.dry_run,
            actor_of(request),
        )
        if fields.dry_run:
            value = {"runs": len(times), "times": [format_time(at) for at in times]}
            return json_reply(200, value)
        return json_reply(202, {"runs": len(times)})

    def cancel(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        bodies.parse_no_fields(parse_optional(request.body))
        view = self._services.jobs.cancel_run(request.caller.tenant, *ids, actor_of(request))
        return json_reply(202, run_json(view, request.root))

    def retry(self, request: Request, job_id: str, run_id: str) -> Sliced[Reply]:
        ids = parse_id(job_id), parse_id(run_id, "run")
        key = idempotency_key(request)
        body = parse_optional(request.body, self._services.max_payload_bytes(request))
        payload = bodies.parse_retry(body)
        operation = f"POST /jobs/{ids[0]}/runs/{ids[1]}/retry"
        request_fingerprint = "" if key is None else fingerprint(operation, body.value)
        tenant, actor = request.caller.tenant, actor_of(request)
        view = yield from self._services.jobs.retry(
            tenant, *ids, payload, key, request_fingerprint, actor
        )
        return _accepted_run(view, request)


def _accepted_run(view: RunView, request: Request) -> Reply:
    location = run_url(request.root, view.job_id, view.run.run_id)
    return json_reply(202, run_json(view, request.root), ("location", location))
