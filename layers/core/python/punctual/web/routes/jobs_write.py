"""Submit, change, cancel, pause and resume jobs."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from punctual.domain.errors import FieldError, Invalid, PunctualError, TooMuchWork
from punctual.engine.commands.definitions_store import is_large
from punctual.engine.commands.jobs import Submission
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import JobView
from punctual.web.http.actor import actor
from punctual.web.http.conditions import etag, idempotency_key
from punctual.web.http.json_body import JsonBody, fingerprint, parse_object, parse_optional
from punctual.web.http.problems import problem_body
from punctual.web.http.request import Reply, Request, json_reply
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
            submission = self._submission(request, body, key)
        except Invalid:
            repeated = self._repeated(request, body, key)
            if repeated is None:
                raise
            return self._accepted(repeated, request)
        (result,) = self._submit(request, [submission])
        if isinstance(result, PunctualError):
            raise result
        return self._accepted(result, request)

    def _accepted(self, view: JobView, request: Request) -> Reply:
        if has_ended_run(view.head):  # a repeated request with the same key
            view = view._replace(latest=self._services.search.latest(view.head))
        location = job_url(request.root, view.head.job_id)
        headers = ("location", location), ("etag", etag(view.head.edition))
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
                final_results[index] = _result(error, request)
                continue
            job_body = body._replace(value=item)
            job_key = None if key is None else f"{key}/{index}"
            try:
                submissions.append(self._submission(request, job_body, job_key))
            except Invalid as error:
                repeated = self._repeated(request, job_body, job_key)
                final_results[index] = _result(repeated or error, request)
        submitted = iter((yield from self._submit_parts(request, submissions)))
        results = [
            final_results.get(index) or _result(next(submitted), request)
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
        for part in _parts(submissions, self._services.max_jobs_per_write):
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
        features = self._services.features.of(request.caller.tenant)
        revise = partial(_revised, body=body, now=now, features=features)
        edition = self._services.edition(request, job_id)
        tenant, by = request.caller.tenant, actor(request)
        view = self._services.jobs.change(tenant, job_id, revise, edition, by)
        return self._job(view, request)

    def cancel(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        edition = self._services.edition(request, job_id)
        view = self._services.jobs.cancel(request.caller.tenant, job_id, edition, actor(request))
        return self._job(view, request)

    def pause(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        bodies.parse_no_fields(parse_optional(request.body))
        edition = self._services.edition(request, job_id)
        view = self._services.jobs.pause(request.caller.tenant, job_id, edition, actor(request))
        return self._job(view, request)

    def resume(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        missed = bodies.parse_resume(parse_optional(request.body))
        edition = self._services.edition(request, job_id)
        tenant, by = request.caller.tenant, actor(request)
        view = self._services.jobs.resume(tenant, job_id, missed, edition, by)
        return self._job(view, request)

    def _repeated(self, request: Request, body: JsonBody, key: str | None) -> JobView | None:
        """Return the job that an earlier request with this key made, or None.

        A request can be valid once and invalid later, when its time has passed.
        """
        if key is None:
            return None
        mark = fingerprint(SUBMIT_OPERATION, body.value)
        return self._services.jobs.repeated(request.caller.tenant, key, mark)

    def _submission(self, request: Request, body: JsonBody, key: str | None) -> Submission:
        features = self._services.features.of(request.caller.tenant)
        document = new_job(body, self._services.clock(), features)
        mark = "" if key is None else fingerprint(SUBMIT_OPERATION, body.value)
        return Submission(document, key, mark)

    def _submit(
        self, request: Request, submissions: Sequence[Submission]
    ) -> Sequence[JobView | PunctualError]:
        caller = request.caller
        return self._services.jobs.submit(caller.tenant, caller.name, submissions, actor(request))

    def _job(self, view: JobView, request: Request) -> Reply:
        tag = ("etag", etag(view.head.edition))
        return json_reply(200, self._job_json(view, request), tag)

    def _job_json(self, view: JobView, request: Request) -> dict[str, Any]:
        return job_json(view, request.root, self._services.clock())


def _revised(old: dict[str, Any], *, body: JsonBody, now: Any, features: Any) -> dict[str, Any]:
    return changed_job(old, body, now, features)


def _parts(
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
        weight += LARGE_PAYLOAD_WEIGHT if is_large(submission.document) else 1
        if weight >= max_jobs:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _result(result: JobView | PunctualError, request: Request) -> dict[str, Any]:
    if isinstance(result, PunctualError):
        body = problem_body(result, request.request_id)
        return {"status": body["status"], "problem": body}
    job_id = result.head.job_id
    return {"status": 202, "job_id": job_id, "location": job_url(request.root, job_id)}
