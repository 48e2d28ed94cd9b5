"""Refusals and answers that are not from the API: the error that both clients raise."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from punctual.client import (
    Conflict,
    Forbidden,
    Invalid,
    NameTaken,
    NotFound,
    PreconditionFailed,
    PunctualError,
    RateLimited,
    Refused,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unexpected,
)
from tests.support.client.kinds import JOB, NO_DELAY, Server, a_problem, both_clients

ID = JOB["job_id"]
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@both_clients
def test_health_of_a_late_service_is_an_answer(open_client: Any) -> None:
    server = Server(httpx.Response(503, json={"status": "late", "lateness_ms_p99": 16000}))
    with open_client(transport=server.transport) as access:
        health = access.do(access.client.health())
    assert (health.status, health.ok, len(server.asked)) == ("late", False, 1)


@both_clients
def test_health_from_a_gateway_without_the_api_is_unavailable(open_client: Any) -> None:
    server = Server(httpx.Response(503, json={"message": "Service Unavailable"}))
    with open_client(transport=server.transport) as access, pytest.raises(Unavailable):
        access.do(access.client.health())


@both_clients
@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (400, Refused, "It did not do."),
        (401, Unauthenticated, "PUNCTUAL_TOKEN"),
        (403, Forbidden, "higher role"),
        (404, NotFound, "Check the id"),
        (412, PreconditionFailed, "the present version"),
        (413, TooLarge, "512 KiB"),
        (429, RateLimited, "Retry in 0 s"),
        (500, Unavailable, "request r-1"),
        (503, Unavailable, "after 6 attempts"),
    ],
)
def test_refusal_becomes_an_error_with_advice(
    open_client: Any, status: int, kind: type[PunctualError], text: str
) -> None:
    code = "INTERNAL" if status == 500 else "X"
    server = Server(a_problem(status, code, request_id="r-1", headers={"retry-after": "0"}))
    with (
        open_client(transport=server.transport, retries=NO_DELAY) as access,
        pytest.raises(PunctualError, match=text) as raised,
    ):
        access.do(access.client.jobs.get(ID))
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.code, raised.value.request_id) == (
        status,
        code,
        "r-1",
    )


@both_clients
def test_invalid_request_error_names_each_wrong_field(open_client: Any) -> None:
    errors = [{"field": "name", "message": "is required"}, {"field": "retry.x", "message": "no"}]
    server = Server(a_problem(422, "INVALID", errors=errors))
    with open_client(transport=server.transport) as access, pytest.raises(Invalid) as raised:
        access.do(access.client.jobs.create(name="", schedule_type="CRON"))
    assert [tuple(error) for error in raised.value.errors] == [
        ("name", "is required"),
        ("retry.x", "no"),
    ]


@both_clients
def test_redirect_is_refused_with_its_target(open_client: Any) -> None:
    server = Server(httpx.Response(301, headers={"location": "https://punctual.test/v1/jobs"}))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Refused, match=r"https://punctual\.test/v1/jobs"),
    ):
        access.all(access.client.jobs.list())
    assert len(server.asked) == 1


@both_clients
def test_html_answer_is_unexpected(open_client: Any) -> None:
    server = Server(httpx.Response(200, html="<html>"))
    with open_client(transport=server.transport) as access, pytest.raises(Unexpected):
        access.do(access.client.stats())


@both_clients
def test_schedule_preview_sends_its_start_and_count(open_client: Any) -> None:
    server = Server(httpx.Response(200, json={"times": []}))
    with open_client(transport=server.transport) as access:
        access.do(
            access.client.schedules.preview(
                schedule_type="INTERVAL",
                interval_seconds=timedelta(hours=1),
                from_=NOON,
                count=3,
            )
        )
    assert server.asked[0].content == (
        b'{"schedule_type":"INTERVAL","interval_seconds":3600,'
        b'"from":"2026-11-18T12:00:00+00:00","count":3}'
    )


@both_clients
def test_taken_name_names_its_job(open_client: Any) -> None:
    taken = {"status": 409, "title": "Conflict", "code": "NAME_TAKEN", "job_id": ID}
    server = Server(httpx.Response(409, json={**taken, "detail": "The name is taken."}))
    with open_client(transport=server.transport) as access, pytest.raises(NameTaken) as refused:
        access.do(access.client.jobs.pause(ID))
    assert isinstance(refused.value, Conflict)
    assert refused.value.job_id == ID
