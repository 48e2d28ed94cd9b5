"""Every call of the contract as a method, waited for and awaited: what is sent and what comes."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
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
from tests.support.client_ways import JOB, RUN, Server, a_job, a_run, both_ways

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
ID, RUN_ID = JOB["job_id"], RUN["run_id"]
TOKEN = {"token_id": "t", "tenant": "a", "name": "n", "role": "viewer"}
ENTRY = {"audit_id": "u", "at": "2026-11-18T12:00:00Z", "caller": "n", "action": "job.create"}


def page(name: str, *items: Any) -> dict[str, Any]:
    return {name: list(items), "next_token": None}


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
    ("POST /jobs/{job_id}/runNow", lambda c: c.jobs.run(ID), RUN),
    ("POST /jobs/{job_id}/backfill", lambda c: c.jobs.backfill(ID, NOON, NOON), {"runs": 3}),
    (
        "GET /jobs/{job_id}/explain",
        lambda c: c.jobs.explain(ID, NOON),
        {"job_id": ID, "at": "2026-11-18T12:00:00Z", "outcome": "PLANNED"},
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
        lambda c: c.schedules.preview(schedule_type="CRON", cron_expression="* * * * *"),
        {"times": [], "description": "d", "warnings": [], "tzdata": "2026b"},
    ),
    ("GET /schedules/upcoming", lambda c: c.schedules.upcoming(), page("times")),
    ("POST /tokens", lambda c: c.tokens.create(name="n", role="viewer"), {**TOKEN, "token": "p"}),
    ("GET /tokens", lambda c: c.tokens.list(), page("tokens", TOKEN)),
    ("GET /tokens/{token_id}", lambda c: c.tokens.get("t"), TOKEN),
    ("DELETE /tokens/{token_id}", lambda c: c.tokens.revoke("t"), TOKEN),
    ("GET /webhook-secret", lambda c: c.webhook_secret(), {"secret": "whsec_c2VjcmV0"}),
    ("GET /audit", lambda c: c.audit.list(), page("entries", ENTRY)),
    ("GET /whoami", lambda c: c.whoami(), {**TOKEN, "limits": {"burst": 5}}),
    ("GET /stats", lambda c: c.stats(), {"jobs": {"SCHEDULED": 1}}),
    ("GET /health", lambda c: c.health(), {"status": "ok"}),
    ("GET /health/live", lambda c: c.live(), {"status": "ok"}),
    ("GET /health/ready", lambda c: c.ready(), {"status": "ok"}),
    ("GET /openapi.json", lambda c: c.openapi(), {"openapi": "3.1.0"}),
]


def spelled(name: str) -> str:
    return (
        name.replace("{job_id}", str(ID))
        .replace("{run_id}", str(RUN_ID))
        .replace("{token_id}", "t")
    )


def done(way: Any, asked: Any) -> Any:
    return (
        way.all(asked)
        if hasattr(asked, "__next__") or hasattr(asked, "__anext__")
        else way.do(asked)
    )


@both_ways
@pytest.mark.parametrize(("name", "call", "value"), CALLS, ids=[name for name, _, _ in CALLS])
def test_a_call_goes_where_the_contract_says(
    opened: Any, name: str, call: Callable[[Any], Any], value: Any
) -> None:
    answer = httpx.Response(200) if value is None else httpx.Response(200, json=value)
    server = Server(answer)
    with opened(token="pnc_t", transport=server.transport) as way:
        found = done(way, call(way.client))
    (asked,) = server.asked
    assert f"{asked.method} {asked.url.path.removeprefix('/v1')}" == spelled(name)
    assert found is not None
    public = name.startswith("GET /health") or name == "GET /openapi.json"
    assert asked.headers.get("authorization") == (None if public else "Bearer pnc_t")
    assert asked.headers["user-agent"].startswith("punctual-python/")
    if asked.content:
        assert asked.headers["content-type"] == "application/json"


def test_every_call_of_the_contract_is_a_method() -> None:
    # PUT says what PATCH says.
    known = {f"{call.method} {call.path}" for call in CONTRACT} - {"PUT /jobs/{job_id}"}
    assert known <= {name for name, _, _ in CALLS}


def methods(client: Any) -> set[str]:
    groups = ("jobs", "runs", "schedules", "tokens", "audit")
    found = {f"{g}.{n}" for g in groups for n in dir(type(getattr(client, g))) if n[0] != "_"}
    return found | {n for n in dir(type(client)) if n[0] != "_"}


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    one, other = Punctual("http://a"), AsyncPunctual("http://a")
    assert methods(one) == methods(other)
    for name in methods(one) - {"close"}:
        pair = []
        for client in (one, other):
            found: Any = client
            for part in name.split("."):
                found = getattr(found, part)
            pair.append(inspect.signature(found))
            assert found.__doc__ or name.endswith((".get", ".status", "whoami", "stats"))
        assert pair[0] == pair[1]
        assert "core" not in pair[0].parameters
    one.close()


@both_ways
def test_a_change_is_for_the_version_that_was_read(opened: Any) -> None:
    server = Server(a_job())
    with opened(transport=server.transport) as way:
        job = way.do(way.client.jobs.get(ID))
        for version in (job, 3, "3", "*", None):
            way.do(way.client.jobs.update(job, if_match=version, payload=None))
        with pytest.raises(Misuse, match="no version"):
            way.do(way.client.jobs.pause(job, if_match='"3"'))
    sent = [asked.headers.get("if-match") for asked in server.asked[1:]]
    assert sent == ['"3"', '"3"', '"3"', "*", None]
    assert server.asked[1].content == b'{"payload":null}'


@both_ways
def test_a_run_is_named_by_itself_or_by_two_ids(opened: Any) -> None:
    server = Server(a_run())
    with opened(transport=server.transport) as way:
        run = way.do(way.client.runs.get(ID, RUN_ID))
        assert way.do(way.client.runs.get(run)) == run
        with pytest.raises(Misuse, match="job_id and the run_id"):
            way.do(way.client.runs.get(ID))
        with pytest.raises(Misuse, match="not None"):
            way.do(way.client.jobs.get(None))
    assert server.asked[0].url == server.asked[1].url


@both_ways
def test_explain_takes_a_moment_a_local_time_or_none(opened: Any) -> None:
    server = Server(
        httpx.Response(200, json={"job_id": ID, "at": NOON.isoformat(), "outcome": "PLANNED"})
    )
    with opened(transport=server.transport) as way:
        for at in (NOON, "2026-11-18T12:00:00", None):
            assert way.do(way.client.jobs.explain(ID, *[at][: at is not None])).at == NOON
    asked = [asked.url.params.get("at") for asked in server.asked]
    assert asked == ["2026-11-18T12:00:00+00:00", "2026-11-18T12:00:00", None]


@both_ways
def test_lists_go_from_page_to_page(opened: Any) -> None:
    first = httpx.Response(200, json={"runs": [RUN] * 2, "next_token": "a/b"})
    short = httpx.Response(200, json={"runs": [], "next_token": "c"})
    server = Server(first, short, httpx.Response(200, json=page("runs", RUN)))
    with opened(transport=server.transport) as way:
        found = way.all(way.client.runs.list(status=["FAILED", "MISSED"], from_=NOON, by="ended"))
    assert len(found) == 3
    asked = [asked.url.params for asked in server.asked]
    assert [one.get("next_token") for one in asked] == [None, "a/b", "c"]
    assert {one["limit"] for one in asked} == {"200"}
    assert all(one.get_list("status") == ["FAILED", "MISSED"] for one in asked)
    assert (asked[0]["from"], asked[0]["by"]) == ("2026-11-18T12:00:00+00:00", "ended")


@both_ways
def test_who_wants_few_asks_for_few(opened: Any) -> None:
    server = Server(httpx.Response(200, json={"jobs": [JOB] * 2, "next_token": "more"}))
    with opened(transport=server.transport) as way:
        assert len(way.all(way.client.jobs.list(limit=2, tags={"a": "b", "c": "d"}))) == 2
        assert way.all(way.client.jobs.list(limit=0)) == []
        with pytest.raises(Misuse, match="limit"):
            way.all(way.client.jobs.list(limit=-1))
    (asked,) = server.asked
    assert asked.url.params["limit"] == "2"
    assert asked.url.params.get_list("tag") == ["a:b", "c:d"]


@both_ways
def test_a_list_that_does_not_go_on_is_no_list(opened: Any) -> None:
    server = Server(httpx.Response(200, json={"jobs": [JOB], "next_token": "same"}))
    with opened(transport=server.transport) as way, pytest.raises(Unexpected, match="same page"):
        way.all(way.client.jobs.list())
    server = Server(httpx.Response(200, json={"runs": []}))
    with opened(transport=server.transport) as way, pytest.raises(Unexpected, match="no jobs"):
        way.all(way.client.jobs.list())


def there_at(url: str) -> httpx.Response:
    return httpx.Response(302, headers={"location": url})


@both_ways
def test_an_output_elsewhere_is_read_there_without_the_token(opened: Any) -> None:
    there = there_at("https://bucket.test/x?sign=1")
    data = httpx.Response(200, content=b"\x00\x01", headers={"content-type": "image/png"})
    server = Server(there, data)
    with opened(token="pnc_t", transport=server.transport) as way:
        output = way.do(way.client.runs.output(ID, RUN_ID))
    assert (output.data, output.content_type, output.truncated) == (b"\x00\x01", "image/png", False)
    assert str(server.asked[1].url) == "https://bucket.test/x?sign=1"
    assert "authorization" not in server.asked[1].headers


@both_ways
def test_an_output_says_when_it_was_cut(opened: Any) -> None:
    server = Server(httpx.Response(200, content=b"a", headers={"x-output-truncated": "true"}))
    with opened(transport=server.transport) as way:
        assert way.do(way.client.runs.output(ID, RUN_ID)).truncated
    server = Server(there_at("https://bucket.test/x"), httpx.Response(403, content=b"<Error/>"))
    with (
        opened(transport=server.transport) as way,
        pytest.raises(Unexpected, match=r"bucket\.test"),
    ):
        way.do(way.client.runs.output(ID, RUN_ID))
    server = Server(there_at("file:///etc/passwd"))
    with opened(transport=server.transport) as way, pytest.raises(Unexpected, match="where to"):
        way.do(way.client.runs.output(ID, RUN_ID))
