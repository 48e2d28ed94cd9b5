"""Every call of the API as a method of both clients: the request and the answer."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from punctual.client import (
    AsyncPunctual,
    Misuse,
    Punctual,
    Unexpected,
)
from punctual.web.contract import API_CALLS as CONTRACT
from tests.support.client.kinds import JOB, RUN, Server, a_job, a_run, both_clients

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
ID, RUN_ID = JOB["job_id"], RUN["run_id"]
TOKEN = {"token_id": "t", "tenant": "a", "name": "n", "role": "viewer"}
CRON: Any = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
ENTRY = {"audit_id": "u", "at": "2026-11-18T12:00:00Z", "caller": "n", "action": "job.create"}


def page(name: str, *items: Any) -> dict[str, Any]:
    return {name: list(items), "next_token": None}


FAILURE = {"failure_id": "f", "job_id": "j", "error": "it broke", "acknowledged": {"by": "ann"}}
ARTIFACT = {
    "artifact_id": "a",
    "name": "main.py",
    "sha256": "0" * 64,
    "size": 1,
    "status": "STORED",
}
OPERATION = {
    "operation_id": "o",
    "action": "pause",
    "status": "DONE",
    "matched": 3,
    "done": 3,
    "failed": 0,
    "created_at": "2026-11-18T12:00:00Z",
}
CLAIM_RESULTS = {"results": [{"status": "LOST"}]}
PUBLIC_CALLS = ("GET /health", "GET /openapi.json", "POST /claims")
CALLS: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("POST /jobs", lambda c: c.jobs.create(name="a", schedule_type="IMMEDIATE"), JOB),
    (
        "POST /jobs/batch",
        lambda c: c.jobs.create_many([{"name": "a"}]),
        {"results": [{"status": 202, "job_id": ID}]},
    ),
    ("GET /jobs", lambda c: c.jobs.list(), page("jobs", JOB)),
    ("GET /jobs/{job_id}", lambda c: c.jobs.get(ID), JOB),
    ("PATCH /jobs/{job_id}", lambda c: c.jobs.update(ID, priority="HIGH"), JOB),
    ("DELETE /jobs/{job_id}", lambda c: c.jobs.cancel(ID), JOB),
    ("POST /jobs/{job_id}/pause", lambda c: c.jobs.pause(ID), JOB),
    ("POST /jobs/{job_id}/resume", lambda c: c.jobs.resume(ID, missed="SKIP"), JOB),
    (
        "POST /jobs/bulk",
        lambda c: c.operations.begin("pause", {"tag": ["team:data"]}, until=NOON),
        OPERATION,
    ),
    ("GET /operations", lambda c: c.operations.list(), page("operations", OPERATION)),
    ("GET /operations/{operation_id}", lambda c: c.operations.get("o"), OPERATION),
    ("POST /operations/{operation_id}/cancel", lambda c: c.operations.cancel("o"), OPERATION),
    ("POST /jobs/{job_id}/runNow", lambda c: c.jobs.run(ID), RUN),
    ("POST /jobs/{job_id}/backfill", lambda c: c.jobs.backfill(ID, NOON, NOON), {"runs": 3}),
    (
        "GET /jobs/{job_id}/explain",
        lambda c: c.jobs.explain(ID, NOON),
        {"job_id": ID, "at": "2026-11-18T12:00:00Z", "outcome": "PLANNED"},
    ),
    (
        "GET /jobs/{job_id}/versions",
        lambda c: c.jobs.versions(ID),
        page("versions", {"version": 2, "at": "2026-11-18T12:00:00Z", "changed": ["name"]}),
    ),
    (
        "GET /jobs/{job_id}/status",
        lambda c: c.jobs.status(ID),
        {"job_id": ID, "status": "SCHEDULED", "latest_run": RUN, "next_run_time": None},
    ),
    ("GET /jobs/{job_id}/runs", lambda c: c.runs.list(ID), page("runs", RUN)),
    ("GET /runs", lambda c: c.runs.list(), page("runs", RUN)),
    ("GET /jobs/{job_id}/runs/{run_id}", lambda c: c.runs.get(ID, RUN_ID), RUN),
    ("POST /jobs/{job_id}/runs/{run_id}/cancel", lambda c: c.runs.cancel(ID, RUN_ID), RUN),
    ("POST /jobs/{job_id}/runs/{run_id}/retry", lambda c: c.runs.retry(ID, RUN_ID), RUN),
    ("GET /jobs/{job_id}/runs/{run_id}/output", lambda c: c.runs.output(ID, RUN_ID), "text"),
    ("GET /jobs/{job_id}/runs/{run_id}/logs", lambda c: c.runs.logs(ID, RUN_ID), None),
    (
        "POST /schedules/preview",
        lambda c: c.schedules.preview(**CRON),
        {"times": [], "description": "d", "warnings": [], "tzdata": "2026b"},
    ),
    (
        "POST /schedules/diff",
        lambda c: c.schedules.diff(ID, CRON, days=3),
        {kind: {"count": 0} for kind in ("added", "removed", "moved", "unchanged")},
    ),
    ("GET /schedules/upcoming", lambda c: c.schedules.upcoming(), page("times")),
    ("GET /forecast", lambda c: c.forecast(hours=2), {"minutes": [], "starts": 0}),
    ("POST /tokens", lambda c: c.tokens.create(name="n", role="viewer"), {**TOKEN, "token": "p"}),
    ("GET /tokens", lambda c: c.tokens.list(), page("tokens", TOKEN)),
    ("GET /tokens/{token_id}", lambda c: c.tokens.get("t"), TOKEN),
    ("DELETE /tokens/{token_id}", lambda c: c.tokens.revoke("t"), TOKEN),
    ("GET /artifacts", lambda c: c.artifacts.list(), page("artifacts", ARTIFACT)),
    ("GET /artifacts/{artifact_id}", lambda c: c.artifacts.get("a"), ARTIFACT),
    ("DELETE /artifacts/{artifact_id}", lambda c: c.artifacts.delete("a"), ARTIFACT),
    ("GET /failures", lambda c: c.failures.list(), page("failures", FAILURE)),
    (
        "POST /failures/{failure_id}/acknowledge",
        lambda c: c.failures.acknowledge("f", note="known"),
        FAILURE,
    ),
    ("POST /claims/renew", lambda c: c.claims.renew([{"claim": "x"}]), CLAIM_RESULTS),
    (
        "POST /claims/finish",
        lambda c: c.claims.finish([{"claim": "x", "status": "SUCCESS"}]),
        CLAIM_RESULTS,
    ),
    (
        "POST /claims/upload",
        lambda c: c.claims.upload("x", 1, "text/csv"),
        {"upload_url": "u", "upload_headers": {}, "output_upload": "o"},
    ),
    ("GET /secrets", lambda c: c.secrets.list(), {"secrets": [{"name": "bank"}]}),
    ("PUT /secrets/{name}", lambda c: c.secrets.set("bank", "hush"), None),
    ("DELETE /secrets/{name}", lambda c: c.secrets.delete("bank"), None),
    ("GET /webhook-secret", lambda c: c.webhook_secret(), {"secret": "whsec_c2VjcmV0"}),
    ("GET /audit", lambda c: c.audit.list(), page("entries", ENTRY)),
    ("GET /changes", lambda c: c.read_changes(), {"next_cursor": "c"}),
    ("GET /whoami", lambda c: c.whoami(), {**TOKEN, "limits": {"burst": 5}}),
    ("GET /overview", lambda c: c.overview(), {"verdict": "OK", "sentence": "No jobs yet."}),
    ("GET /stats", lambda c: c.stats(), {"jobs": {"SCHEDULED": 1}}),
    ("GET /health", lambda c: c.health(), {"status": "ok"}),
    ("GET /health/live", lambda c: c.live(), {"status": "ok"}),
    ("GET /health/ready", lambda c: c.ready(), {"status": "ok"}),
    ("GET /openapi.json", lambda c: c.openapi(), {"openapi": "3.1.0"}),
]


def fill_in_ids(name: str) -> str:
    return (
        name.replace("{job_id}", str(ID))
        .replace("{run_id}", str(RUN_ID))
        .replace("{token_id}", "t")
        .replace("{artifact_id}", "a")
        .replace("{failure_id}", "f")
        .replace("{operation_id}", "o")
        .replace("{name}", "bank")
    )


def result_of(access: Any, operation: Any) -> Any:
    return (
        access.all(operation)
        if hasattr(operation, "__next__") or hasattr(operation, "__anext__")
        else access.do(operation)
    )


@both_clients
@pytest.mark.parametrize(("name", "call", "value"), CALLS, ids=[name for name, _, _ in CALLS])
def test_method_sends_the_request_of_its_call(
    open_client: Any, name: str, call: Callable[[Any], Any], value: Any
) -> None:
    answer = httpx.Response(200) if value is None else httpx.Response(200, json=value)
    server = Server(answer)
    with open_client(token="pnc_t", transport=server.transport) as access:
        result = result_of(access, call(access.client))
    (request,) = server.asked
    assert f"{request.method} {request.url.path.removeprefix('/v1')}" == fill_in_ids(name)
    assert (result is None) is ("/secrets/" in name), "only these calls answer nothing"
    public = name.startswith(PUBLIC_CALLS)
    assert request.headers.get("authorization") == (None if public else "Bearer pnc_t")
    assert request.headers["user-agent"].startswith("punctual-python/")
    if request.content:
        assert request.headers["content-type"] == "application/json"


def test_every_call_of_the_contract_has_a_method() -> None:
    # PUT has the same method as PATCH.
    documented = {f"{call.method} {call.path}" for call in CONTRACT} - {"PUT /jobs/{job_id}"}
    documented -= {"POST /artifacts"}  # several requests, in tests/integration/client
    assert documented <= {name for name, _, _ in CALLS}


def methods(client: Any) -> set[str]:
    groups = (
        *("jobs", "runs", "schedules", "operations", "tokens", "secrets"),
        *("audit", "artifacts", "claims"),
    )
    names = {
        f"{group}.{name}"
        for group in groups
        for name in dir(type(getattr(client, group)))
        if name[0] != "_"
    }
    return names | {name for name in dir(type(client)) if name[0] != "_"}


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    sync_client, async_client = Punctual("http://a"), AsyncPunctual("http://a")
    assert methods(sync_client) == methods(async_client)
    for name in methods(sync_client) - {"close"}:
        signatures = []
        for client in (sync_client, async_client):
            member: Any = client
            for part in name.split("."):
                member = getattr(member, part)
            signatures.append(inspect.signature(member))
            assert member.__doc__ or name.endswith((".get", ".status", "whoami", "stats"))
        assert signatures[0] == signatures[1]
        assert "core" not in signatures[0].parameters
    sync_client.close()


@both_clients
def test_update_sends_the_version_that_was_read(open_client: Any) -> None:
    server = Server(a_job())
    with open_client(transport=server.transport) as access:
        job = access.do(access.client.jobs.get(ID))
        for version in (job, 3, "3", "*", None):
            access.do(access.client.jobs.update(job, if_match=version, payload=None))
        with pytest.raises(Misuse, match="must be a job, its version"):
            access.do(access.client.jobs.pause(job, if_match='"3"'))
    sent = [request.headers.get("if-match") for request in server.asked[1:]]
    assert sent == ['"3"', '"3"', '"3"', "*", None]
    assert server.asked[1].content == b'{"payload":null}'


@both_clients
def test_filters_of_runs_are_sent_as_the_api_names_them(open_client: Any) -> None:
    server = Server(httpx.Response(200, json=page("runs")))
    with open_client(transport=server.transport) as access:
        filters: dict[str, Any] = {
            "reason": ["LOST", "POISON"],
            "min_duration": 1.5,
            "job_name": "night ly",
        }
        filters |= {"max_duration": timedelta(seconds=2), "tags": {"team": "data"}}
        access.all(access.client.runs.list(**filters))
        with pytest.raises(Misuse, match="must not be negative"):
            access.all(access.client.runs.list(min_duration=-1))
    sent = server.asked[0].url.params
    assert (sent["duration_ms"], sent["job_name"]) == ("1500..2000", "night ly")
    assert sent["tag"] == "team:data"
    assert sent.get_list("reason") == ["LOST", "POISON"]


@both_clients
def test_retry_sends_a_payload_only_if_one_is_given(open_client: Any) -> None:
    server = Server(a_run())
    with open_client(transport=server.transport) as access:
        runs = access.client.runs
        access.do(runs.retry(ID, RUN_ID))
        access.do(runs.retry(ID, RUN_ID, payload=None))
    assert [request.content for request in server.asked] == [b"{}", b'{"payload":null}']


@both_clients
def test_run_is_named_by_a_run_or_by_two_ids(open_client: Any) -> None:
    server = Server(a_run())
    with open_client(transport=server.transport) as access:
        run = access.do(access.client.runs.get(ID, RUN_ID))
        assert access.do(access.client.runs.get(run)) == run
        with pytest.raises(Misuse, match="a job and a run_id"):
            access.do(access.client.runs.get(ID))
        with pytest.raises(Misuse, match="got None"):
            access.do(access.client.jobs.get(None))
    assert server.asked[0].url == server.asked[1].url


@both_clients
def test_explain_takes_a_time_a_local_time_or_none(open_client: Any) -> None:
    server = Server(
        httpx.Response(200, json={"job_id": ID, "at": NOON.isoformat(), "outcome": "PLANNED"})
    )
    with open_client(transport=server.transport) as access:
        for at in (NOON, "2026-11-18T12:00:00", None):
            assert access.do(access.client.jobs.explain(ID, *[at][: at is not None])).at == NOON
    times = [times.url.params.get("at") for times in server.asked]
    assert times == ["2026-11-18T12:00:00+00:00", "2026-11-18T12:00:00", None]


@both_clients
def test_list_reads_page_after_page(open_client: Any) -> None:
    first = httpx.Response(200, json={"runs": [RUN] * 2, "next_token": "a/b"})
    short = httpx.Response(200, json={"runs": [], "next_token": "c"})
    server = Server(first, short, httpx.Response(200, json=page("runs", RUN)))
    with open_client(transport=server.transport) as access:
        runs = access.all(
            access.client.runs.list(status=["FAILED", "MISSED"], from_=NOON, by="ended")
        )
    assert len(runs) == 3
    queries = [queries.url.params for queries in server.asked]
    assert [query.get("next_token") for query in queries] == [None, "a/b", "c"]
    assert {query["limit"] for query in queries} == {"200"}
    assert all(query.get_list("status") == ["FAILED", "MISSED"] for query in queries)
    assert (queries[0]["from"], queries[0]["by"]) == ("2026-11-18T12:00:00+00:00", "ended")


@both_clients
def test_list_with_a_limit_asks_for_few_items(open_client: Any) -> None:
    server = Server(httpx.Response(200, json={"jobs": [JOB] * 2, "next_token": "more"}))
    with open_client(transport=server.transport) as access:
        assert len(access.all(access.client.jobs.list(limit=2, tags={"a": "b", "c": "d"}))) == 2
        assert access.all(access.client.jobs.list(limit=0)) == []
        with pytest.raises(Misuse, match="limit"):
            access.all(access.client.jobs.list(limit=-1))
    (request,) = server.asked
    assert request.url.params["limit"] == "2"
    assert request.url.params.get_list("tag") == ["a:b", "c:d"]


@both_clients
def test_list_that_repeats_a_page_is_unexpected(open_client: Any) -> None:
    server = Server(httpx.Response(200, json={"jobs": [JOB], "next_token": "same"}))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Unexpected, match="same page"),
    ):
        access.all(access.client.jobs.list())
    server = Server(httpx.Response(200, json={"runs": []}))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Unexpected, match="without jobs"),
    ):
        access.all(access.client.jobs.list())


def redirect_to(url: str) -> httpx.Response:
    return httpx.Response(302, headers={"location": url})


@both_clients
def test_redirected_output_is_read_without_the_token(open_client: Any) -> None:
    redirect = redirect_to("https://bucket.test/x?sign=1")
    data = httpx.Response(200, content=b"\x00\x01", headers={"content-type": "image/png"})
    server = Server(redirect, data)
    with open_client(token="pnc_t", transport=server.transport) as access:
        output = access.do(access.client.runs.output(ID, RUN_ID))
    assert (output.data, output.content_type, output.truncated) == (b"\x00\x01", "image/png", False)
    assert str(server.asked[1].url) == "https://bucket.test/x?sign=1"
    assert "authorization" not in server.asked[1].headers


@both_clients
def test_output_tells_whether_it_is_truncated(open_client: Any) -> None:
    server = Server(httpx.Response(200, content=b"a", headers={"x-output-truncated": "true"}))
    with open_client(transport=server.transport) as access:
        assert access.do(access.client.runs.output(ID, RUN_ID)).truncated
    server = Server(redirect_to("https://bucket.test/x"), httpx.Response(403, content=b"<Error/>"))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Unexpected, match=r"bucket\.test"),
    ):
        access.do(access.client.runs.output(ID, RUN_ID))
    server = Server(redirect_to("file:///etc/passwd"))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Unexpected, match="without a location"),
    ):
        access.do(access.client.runs.output(ID, RUN_ID))
