"""Each call that takes a job takes an id or an exact name. Only a name costs a further call."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from punctual.client import AmbiguousName, Job, Misuse, NotFound
from punctual.client.endpoints.job_references import LIVE_JOB_STATUSES, MAX_LISTED_IDS
from punctual.client.model import convert_model
from tests.support.client.kinds import JOB, NO_DELAY, RUN, Server, both_clients

ID, RUN_ID = str(JOB["job_id"]), str(RUN["run_id"])
RANGE = ("2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z")
CRON = {"schedule_type": "CRON", "cron_expression": "0 3 * * *"}
UPCOMING, CHANGES, LOG = "/schedules/upcoming", "/changes", f"/jobs/{ID}/runs/{RUN_ID}/logs"

Call = Callable[[Any, Any], Any]
CALLS: dict[str, Call] = {
    "get": lambda c, job: c.jobs.get(job),
    "update": lambda c, job: c.jobs.update(job, priority="HIGH"),
    "cancel": lambda c, job: c.jobs.cancel(job),
    "pause": lambda c, job: c.jobs.pause(job),
    "resume": lambda c, job: c.jobs.resume(job),
    "run": lambda c, job: c.jobs.run(job),
    "backfill": lambda c, job: c.jobs.backfill(job, *RANGE),
    "explain": lambda c, job: c.jobs.explain(job),
    "status": lambda c, job: c.jobs.status(job),
    "occurrences": lambda c, job: c.jobs.occurrences(job, *RANGE),
    "get run": lambda c, job: c.runs.get(job, RUN_ID),
    "cancel run": lambda c, job: c.runs.cancel(job, RUN_ID),
    "retry run": lambda c, job: c.runs.retry(job, RUN_ID),
    "output": lambda c, job: c.runs.output(job, RUN_ID),
    "logs": lambda c, job: c.runs.logs(job, RUN_ID),
    "diff": lambda c, job: c.schedules.diff(job, CRON),
    "read changes": lambda c, job: c.read_changes(job=job),
}
STREAMS: dict[str, Call] = {
    "versions": lambda c, job: c.jobs.versions(job),
    "runs": lambda c, job: c.runs.list(job),
    "upcoming": lambda c, job: c.schedules.upcoming(job),
    "audit": lambda c, job: c.audit.list(job=job),
    "failures": lambda c, job: c.failures.list(job=job),
}
by_call = pytest.mark.parametrize("name", [*CALLS, *STREAMS])
EMPTY_PAGE: dict[str, list[Any]] = {
    kind: [] for kind in ("runs", "versions", "times", "entries", "failures", "changes", "jobs")
}


def an_answer(request: httpx.Request) -> httpx.Response:
    """Answer a call on the job, whichever it is."""
    url_path = request.url.path.removeprefix("/v1")
    body: dict[str, Any] = {**JOB, **EMPTY_PAGE, "next_cursor": "c", "runs": []}
    if request.method == "GET" and url_path == f"/jobs/{ID}/explain":
        body = {"job_id": ID, "at": RANGE[0], "outcome": "PLANNED"}
    elif url_path.endswith(("/runNow", RUN_ID, "/cancel", "/retry")):
        body = RUN
    elif url_path.endswith("/backfill"):
        body = {"runs": 0}
    elif url_path.endswith("/diff"):
        kinds = ("added", "removed", "moved", "unchanged")
        body = {kind: {"count": 0, "times": []} for kind in kinds}
    elif url_path.endswith("/logs"):
        return httpx.Response(200, content=b"")
    return httpx.Response(200, json=body)


class NamedServer(Server):
    """A server that lists these jobs under each name and status, and answers all other calls."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        super().__init__(self._serve)
        self._jobs = jobs

    def _serve(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v1/jobs":
            return an_answer(request)
        wanted = request.url.params
        statuses = wanted.get_list("status")
        jobs = [
            job
            for job in self._jobs
            if job["name"] == wanted["name"] and (not statuses or job["status"] in statuses)
        ]
        page = {"jobs": jobs[: int(wanted["limit"])], "next_token": None}
        return httpx.Response(200, json=page)

    @property
    def searches(self) -> list[dict[str, Any]]:
        """Return the parameters of each search by name."""
        return [
            {**request.url.params, "status": request.url.params.get_list("status")}
            for request in self.asked
            if request.url.path == "/v1/jobs"
        ]


def a_listed_job(number: int, status: str = "SCHEDULED", name: str = "nightly") -> dict[str, Any]:
    return {
        **JOB,
        "job_id": f"01a1f03b-abb9-7019-9650-{number:012d}",
        "status": status,
        "name": name,
    }


def do(access: Any, name: str, job: Any) -> Any:
    if name in CALLS:
        return access.do(CALLS[name](access.client, job))
    return access.all(STREAMS[name](access.client, job))


@by_call
@both_clients
def test_name_takes_one_search_and_is_then_the_id(open_client: Any, name: str) -> None:
    by_id, by_name = NamedServer(JOB), NamedServer(JOB)
    with open_client(transport=by_id.transport) as access:
        do(access, name, ID)
    with open_client(transport=by_name.transport) as access:
        do(access, name, JOB["name"])
    assert by_id.searches == []
    status = list(LIVE_JOB_STATUSES)
    limit = str(MAX_LISTED_IDS + 1)
    assert by_name.searches == [{"name": "nightly", "status": status, "limit": limit}]
    urls = [[request.url for request in server.asked] for server in (by_id, by_name)]
    assert urls[0] == urls[1][1:]
    assert any(ID in f"{request.url} {request.content!r}" for request in by_name.asked[1:])


@by_call
@both_clients
def test_job_and_id_take_no_search(open_client: Any, name: str) -> None:
    server = NamedServer()
    with open_client(transport=server.transport) as access:
        do(access, name, convert_model(Job, JOB))
        do(access, name, ID.upper())
    assert server.searches == []
    assert all(ID.upper() not in str(request.url) for request in server.asked)


@both_clients
def test_followed_changes_search_once(open_client: Any) -> None:
    cursors = iter(("a", "b"))

    class Feed(NamedServer):
        def _serve(self, request: httpx.Request) -> httpx.Response:
            if request.url.path != "/v1/changes":
                return super()._serve(request)
            cursor = next(cursors, None)
            if cursor is None:
                return httpx.Response(422, json={"code": "INVALID", "detail": "The end."})
            return httpx.Response(200, json={"changes": [], "next_cursor": cursor, "gap": True})

    server = Feed(JOB)
    with open_client(transport=server.transport) as access, pytest.raises(Exception, match="end"):
        access.all(access.client.changes(job="nightly"))
    assert len(server.searches) == 1
    assert [r.url.params["job_id"] for r in server.asked[1:]] == [ID] * 3


@both_clients
def test_name_means_the_job_that_has_not_ended(open_client: Any) -> None:
    ended = [a_listed_job(n, "COMPLETED") for n in (9, 8)]
    server = NamedServer(*ended, a_listed_job(3, "PAUSED"), a_listed_job(7, name="nightly-2"))
    with open_client(transport=server.transport) as access:
        access.do(access.client.jobs.pause("nightly"))
    assert server.asked[-1].url.path.endswith("/01a1f03b-abb9-7019-9650-000000000003/pause")


@both_clients
def test_name_means_the_newest_job_if_all_have_ended(open_client: Any) -> None:
    server = NamedServer(*(a_listed_job(n, "COMPLETED") for n in (9, 8)))
    with open_client(transport=server.transport) as access:
        access.do(access.client.jobs.get("nightly"))
    assert server.asked[-1].url.path.endswith("000000000009")
    assert [search["status"] for search in server.searches] == [list(LIVE_JOB_STATUSES), []]


@pytest.mark.parametrize("number", [2, MAX_LISTED_IDS, MAX_LISTED_IDS + 1, 40])
@both_clients
def test_shared_name_is_refused_with_the_ids(open_client: Any, number: int) -> None:
    server = NamedServer(*(a_listed_job(n) for n in range(number)))
    with open_client(transport=server.transport) as access, pytest.raises(AmbiguousName) as refused:
        access.do(access.client.jobs.cancel("nightly"))
    shown = min(number, MAX_LISTED_IDS)
    ids = tuple(a_listed_job(n)["job_id"] for n in range(shown))
    assert refused.value.job_ids == ids
    count = str(number) if number == shown else f"More than {MAX_LISTED_IDS}"
    assert str(refused.value).startswith(f"{count} jobs are named 'nightly'. Use an id: {ids[0]}")
    assert (refused.value.status, refused.value.code) == (409, "AMBIGUOUS_NAME")
    assert len(server.asked) == 1, "nothing was cancelled"


@both_clients
def test_unknown_name_is_not_found(open_client: Any) -> None:
    server = NamedServer(a_listed_job(1, name="nightly-2"))
    with open_client(transport=server.transport) as access, pytest.raises(NotFound) as missing:
        access.do(access.client.runs.get("nightly", RUN_ID))
    assert str(missing.value).startswith("There is no job 'nightly'. Check its name")
    assert missing.value.status == 404
    assert len(server.asked) == 2


@both_clients
def test_empty_pages_of_a_search_are_followed(open_client: Any) -> None:
    empty = httpx.Response(200, json={"jobs": [], "next_token": "t"})
    last = httpx.Response(200, json={"jobs": [JOB], "next_token": None})
    server = Server(empty, last, an_answer)
    with open_client(transport=server.transport, retries=NO_DELAY) as access:
        access.do(access.client.jobs.pause("nightly"))
    assert server.asked[1].url.params["next_token"] == "t"
    assert server.asked[2].url.path.endswith(f"/jobs/{ID}/pause")


@pytest.mark.parametrize("job", ["", None, 7, b"nightly"])
@both_clients
def test_other_value_is_misuse(open_client: Any, job: Any) -> None:
    server = NamedServer()
    with open_client(transport=server.transport) as access, pytest.raises(Misuse, match="job must"):
        access.do(access.client.jobs.get(job))
    assert server.asked == []
