"""/jobs: submit, change, cancel, pause, resume."""

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
LARGE_PAYLOAD_WEIGHT = 20  # jobs that a large payload counts as, where a batch is stored in parts


class JobWriteRoutes:
    def __init__(self, api: Services) -> None:
        self._api = api

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
        parsed = parse_object(request.body, self._api.max_payload_bytes(request))
        try:
            wanted = self._submission(request, parsed, key)
        except Invalid:
            repeated = self._repeated(request, parsed, key)
            if repeated is None:
                raise
            return self._accepted(repeated, request)
        (answer,) = self._submit(request, [wanted])
        if isinstance(answer, PunctualError):
            raise answer
        return self._accepted(answer, request)

    def _accepted(self, answer: JobView, request: Request) -> Reply:
        if has_ended_run(answer.head):  # asked again, with the same key
            answer = self._api.search.job(request.caller.tenant, answer.head.job_id)
        location = job_url(request.root, answer.head.job_id)
        headers = ("location", location), ("etag", etag(answer.head.edition))
        return json_reply(202, self._shown(answer, request), *headers)

    def submit_many(self, request: Request) -> Sliced[Reply]:
        key = idempotency_key(request)
        parsed = parse_object(request.body, self._api.max_payload_bytes(request))
        wanted: list[Submission] = []
        apart: dict[int, Any] = {}  # the results of those that are not to be submitted
        items = bodies.parse_batch(parsed)
        about = parsed[1:]  # of the whole batch: what one of its jobs may at most be
        for index, item in enumerate(items):
            yield
            if not isinstance(item, dict):
                error = Invalid.of(FieldError(f"jobs.{index}", "must be an object"))
                apart[index] = _result(error, request)
                continue
            one, own_key = JsonBody(item, *about), None if key is None else f"{key}/{index}"
            try:
                wanted.append(self._submission(request, one, own_key))
            except Invalid as error:
                apart[index] = _result(self._repeated(request, one, own_key) or error, request)
        accepted = iter((yield from self._submit_parts(request, wanted)))
        results = [
            apart.get(index) or _result(next(accepted), request) for index in range(len(items))
        ]
        return json_reply(207, {"results": results})

    def _submit_parts(
        self, request: Request, wanted: Sequence[Submission]
    ) -> Sliced[Sequence[JobView | PunctualError]]:
        """Submit some jobs at a time; other work may go on after each part.

        Each job is accepted or refused on its own. Where the time runs out, the rest is refused:
        what an earlier part stored cannot be taken back.
        """
        answers: list[JobView | PunctualError] = []
        for part in _parts(wanted, self._api.together):
            try:
                yield
            except TooMuchWork as error:
                return [*answers, *[error] * (len(wanted) - len(answers))]
            answers += self._submit(request, part)
        return answers

    def change(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        parsed = parse_object(request.body, self._api.max_payload_bytes(request))
        now = self._api.clock()
        features = self._api.features.of(request.caller.tenant)
        revise = partial(_revised, parsed=parsed, now=now, features=features)
        edition = self._api.edition(request, job_id)
        tenant, by = request.caller.tenant, actor(request)
        view = self._api.jobs.change(tenant, job_id, revise, edition, by)
        return self._job(view, request)

    def cancel(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        edition = self._api.edition(request, job_id)
        view = self._api.jobs.cancel(request.caller.tenant, job_id, edition, actor(request))
        return self._job(view, request)

    def pause(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        bodies.parse_no_fields(parse_optional(request.body))
        edition = self._api.edition(request, job_id)
        view = self._api.jobs.pause(request.caller.tenant, job_id, edition, actor(request))
        return self._job(view, request)

    def resume(self, request: Request, job_id: str) -> Reply:
        job_id = parse_id(job_id)
        missed = bodies.parse_resume(parse_optional(request.body))
        edition = self._api.edition(request, job_id)
        tenant, by = request.caller.tenant, actor(request)
        view = self._api.jobs.resume(tenant, job_id, missed, edition, by)
        return self._job(view, request)

    def _repeated(self, request: Request, parsed: JsonBody, key: str | None) -> JobView | None:
        """What is refused now may have been accepted before its time was over."""
        if key is None:
            return None
        mark = fingerprint(SUBMIT_OPERATION, parsed.value)
        return self._api.jobs.repeated(request.caller.tenant, key, mark)

    def _submission(self, request: Request, parsed: JsonBody, key: str | None) -> Submission:
        features = self._api.features.of(request.caller.tenant)
        document = new_job(parsed, self._api.clock(), features)
        mark = "" if key is None else fingerprint(SUBMIT_OPERATION, parsed.value)
        return Submission(document, key, mark)

    def _submit(
        self, request: Request, wanted: Sequence[Submission]
    ) -> Sequence[JobView | PunctualError]:
        caller = request.caller
        return self._api.jobs.submit(caller.tenant, caller.name, wanted, actor(request))

    def _job(self, view: JobView, request: Request) -> Reply:
        tag = ("etag", etag(view.head.edition))
        return json_reply(200, self._shown(view, request), tag)

    def _shown(self, view: JobView, request: Request) -> dict[str, Any]:
        return job_json(view, request.root, self._api.clock())


def _revised(old: dict[str, Any], *, parsed: JsonBody, now: Any, features: Any) -> dict[str, Any]:
    return changed_job(old, parsed, now, features)


def _parts(wanted: Sequence[Submission], most: int | None) -> Iterator[Sequence[Submission]]:
    """At most so many jobs each. A large payload counts as many."""
    if most is None:
        yield wanted
        return
    part: list[Submission] = []
    weight = 0
    for one in wanted:
        part.append(one)
        weight += LARGE_PAYLOAD_WEIGHT if is_large(one.document) else 1
        if weight >= most:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _result(answer: JobView | PunctualError, request: Request) -> dict[str, Any]:
    if isinstance(answer, PunctualError):
        body = problem_body(answer, request.request_id)
        return {"status": body["status"], "problem": body}
    job_id = answer.head.job_id
    return {"status": 202, "job_id": job_id, "location": job_url(request.root, job_id)}
