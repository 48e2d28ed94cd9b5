"""Submit, change, cancel, pause and resume jobs."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from punctual.domain.errors import FieldError, Invalid, PunctualError, TooMuchWork
from punctual.engine.commands.definitions_store import has_large_payload
from punctual.engine.commands.jobs import Submission
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import JobView
from punctual.web.http.guards import etag, idempotency_key
from punctual.web.http.json_body import JsonBody, fingerprint, parse_object, parse_optional
from punctual.web.http.problems import problem_body
from punctual.web.http.request import Reply, Request, actor_of, json_reply
from punctual.web.models import bodies
from punctual.web.models.job_rules import changed_job, new_job
from punctual.web.routing import RouteTable
from punctual.web.services import Services, parse_id
from punctual.web.views.job import has_ended_run, job_json, job_url

SUBMIT_OPERATION = "POST /jobs"
LARGE_PAYLOAD_WEIGHT = 20  # a job with a large payload counts as this many jobs of a batch part


class JobWriteRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.post("/jobs", status_code=202)(self.submit)
        table.post("/jobs/batch", status_code=207)(self.submit_many)
        table.put("/jobs/<job_id>")(self.change)
        table.patch("/jobs/<job_id>")(self.change)
        table.delete("/jobs/<job_id>")(self.cancel)
        table.post("/jobs/<job_id>/pause")(self.pause)
        table.post("/jobs/<job_id>/resume")(self.resume)

    def submit(self, request: Request) -> Reply:
        key = idempotency_key(request)
        body = parse_object(request.body, self._services.max_payload_bytes(request))
        try:
            submission = self._parse_submission(request, body, key)
        except Invalid:
            repeated = self._find_repeated(request, body, key)
            if repeated is None:
                raise
            return self._accepted_reply(repeated, request)
        (result,) = self._submit(request, [submission])
        if isinstance(result, PunctualError):
            raise result
        return self._accepted_reply(result, request)

    def _accepted_reply(self, view: JobView, request: Request) -> Reply:
        if has_ended_run(view.state):  # a repeated request with the same key
            view = view._replace(latest_run=self._services.queries.latest_run(view.state))
        location = job_url(request.root, view.state.job_id)
        headers = ("location", location), ("etag", etag(view.state.edition))
        return json_reply(202, self._job_json(view, request), *headers)

    def submit_many(self, request: Request) -> Sliced[Reply]:
        key = idempotency_key(request)
        body = parse_object(request.body, self._services.max_payload_bytes(request))
        submissions: list[Submission] = []
        final_results: dict[int, Any] = {}  # of invalid and repeated jobs, by index
        items = bodies.parse_batch(body)
        for index, item in enumerate(items):
            yield
            if not isinstance(item, dict):
                error = Invalid.of(FieldError(f"jobs.{index}", "must be an object"))
                final_results[index] = _batch_result(error, request)
                continue
            job_body = body._replace(value=item)
            job_key = None if key is None else f"{key}/{index}"
            try:
                submissions.append(self._parse_submission(request, job_body, job_key))
            except Invalid as error:
                repeated = self._find_repeated(request, job_body, job_key)
                final_results[index] = _batch_result(repeated or error, request)
        submitted = iter((yield from self._submit_parts(request, submissions)))
        results = [
            final_results.get(index) or _batch_result(next(submitted), request)
            for index in range(len(items))
        ]
        return json_reply(207, {"results": results})

    def _submit_parts(
        self, request: Request, submissions: Sequence[Submission]
    ) -> Sliced[Sequence[JobView | PunctualError]]:
        """Submit the jobs in parts, and let other work run between the parts.

        If the time runs out, the remaining jobs get the error. Stored parts stay stored.
        """
        results: list[JobView | PunctualError] = []
        for part in _split_batch(submissions, self._services.max_jobs_per_write):
            try:
                yield
            except TooMuchWork as error:
                return [*results, *[error] * (len(submissions) - len(results))]
            results += self._submit(request, part)
        return results

    def change(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        body = parse_object(request.body, self._services.max_payload_bytes(request))
        now = self._services.clock()
        features = self._services.features.for_tenant(request.caller.tenant)
        revise = partial(_revise_job, body=body, now=now, features=features)
        edition = self._services.required_edition(request, job_id)
        tenant, actor = request.caller.tenant, actor_of(request)
        view = self._services.jobs.change(tenant, job_id, revise, edition, actor)
        return self._job_reply(view, request)

    def cancel(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        edition = self._services.required_edition(request, job_id)
        view = self._services.jobs.cancel(request.caller.tenant, job_id, edition, actor_of(request))
        return self._job_reply(view, request)

    def pause(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        until, note = bodies.parse_pause(parse_optional(request.body), self._services.clock())
        edition = self._services.required_edition(request, job_id)
        tenant, actor = request.caller.tenant, actor_of(request)
        view = self._services.jobs.pause(tenant, job_id, edition, actor, until, note)
        return self._job_reply(view, request)

    def resume(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        missed = bodies.parse_resume(parse_optional(request.body))
        edition = self._services.required_edition(request, job_id)
        tenant, actor = request.caller.tenant, actor_of(request)
        view = self._services.jobs.resume(tenant, job_id, missed, edition, actor)
        return self._job_reply(view, request)

    def _find_repeated(self, request: Request, body: JsonBody, key: str | None) -> JobView | None:
        """Return the job that an earlier request with this key created, or None.

        A request can be valid once and invalid later, when its time has passed.
        """
        if key is None:
            return None
        request_fingerprint = fingerprint(SUBMIT_OPERATION, body.value)
        return self._services.jobs.find_repeated(request.caller.tenant, key, request_fingerprint)

    def _parse_submission(self, request: Request, body: JsonBody, key: str | None) -> Submission:
        features = self._services.features.for_tenant(request.caller.tenant)
        document = new_job(body, self._services.clock(), features)
        request_fingerprint = "" if key is None else fingerprint(SUBMIT_OPERATION, body.value)
        return Submission(document, key, request_fingerprint)

    def _submit(
        self, request: Request, submissions: Sequence[Submission]
    ) -> Sequence[JobView | PunctualError]:
        caller = request.caller
        return self._services.jobs.submit(
            caller.tenant, caller.name, submissions, actor_of(request)
        )

    def _job_reply(self, view: JobView, request: Request) -> Reply:
        etag_header = ("etag", etag(view.state.edition))
        return json_reply(200, self._job_json(view, request), etag_header)

    def _job_json(self, view: JobView, request: Request) -> dict[str, Any]:
        return job_json(view, request.root, self._services.clock())


def _revise_job(old: dict[str, Any], *, body: JsonBody, now: Any, features: Any) -> dict[str, Any]:
    return changed_job(old, body, now, features)


def _split_batch(
    submissions: Sequence[Submission], max_jobs: int | None
) -> Iterator[Sequence[Submission]]:
    """Yield parts of at most `max_jobs` jobs. A large payload counts as several jobs."""
    if max_jobs is None:
        yield submissions
        return
    part: list[Submission] = []
    weight = 0
    for submission in submissions:
        part.append(submission)
        weight += LARGE_PAYLOAD_WEIGHT if has_large_payload(submission.document) else 1
        if weight >= max_jobs:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _batch_result(result: JobView | PunctualError, request: Request) -> dict[str, Any]:
    if isinstance(result, PunctualError):
        body = problem_body(result, request.request_id)
        return {"status": body["status"], "problem": body}
    job_id = result.state.job_id
    return {"status": 202, "job_id": job_id, "location": job_url(request.root, job_id)}
