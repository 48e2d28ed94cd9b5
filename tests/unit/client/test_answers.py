"""Answers that are none, or not what was asked for: what is raised, both ways."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from punctual.client import (
    Forbidden,
    Invalid,
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
from tests.support.client_ways import AT_ONCE, JOB, Server, a_problem, both_ways

ID = JOB["job_id"]
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@both_ways
def test_health_that_is_not_good_is_an_answer(opened: Any) -> None:
    server = Server(httpx.Response(503, json={"status": "late", "lateness_ms_p99": 16000}))
    with opened(transport=server.transport) as way:
        health = way.do(way.client.health())
    assert (health.status, health.ok, len(server.asked)) == ("late", False, 1)


@both_ways
def test_a_gateway_that_does_not_reach_the_api_is_no_health(opened: Any) -> None:
    server = Server(httpx.Response(503, json={"message": "Service Unavailable"}))
    with opened(transport=server.transport) as way, pytest.raises(Unavailable):
        way.do(way.client.health())


@both_ways
@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (400, Refused, "It did not do."),
        (401, Unauthenticated, "PUNCTUAL_TOKEN"),
        (403, Forbidden, "higher role"),
        (404, NotFound, "check the id"),
        (412, PreconditionFailed, "the version that it has now"),
        (413, TooLarge, "512 KiB"),
        (429, RateLimited, "Ask again in 0 s"),
        (500, Unavailable, "Request r-1"),
        (503, Unavailable, "after 6 attempts"),
    ],
)
def test_a_refusal_is_an_error_that_says_what_to_do(
    opened: Any, status: int, kind: type[PunctualError], text: str
) -> None:
    code = "INTERNAL" if status == 500 else "X"
    server = Server(a_problem(status, code, request_id="r-1", headers={"retry-after": "0"}))
    with (
        opened(transport=server.transport, retries=AT_ONCE) as way,
        pytest.raises(PunctualError, match=text) as told,
    ):
        way.do(way.client.jobs.get(ID))
    assert type(told.value) is kind
    assert (told.value.status, told.value.code, told.value.request_id) == (status, code, "r-1")


@both_ways
def test_every_wrong_field_is_named(opened: Any) -> None:
    errors = [{"field": "name", "message": "is required"}, {"field": "retry.x", "message": "no"}]
    server = Server(a_problem(422, "INVALID", errors=errors))
    with opened(transport=server.transport) as way, pytest.raises(Invalid) as told:
        way.do(way.client.jobs.create(name="", schedule_type="CRON"))
    assert [tuple(one) for one in told.value.errors] == [("name", "is required"), ("retry.x", "no")]


@both_ways
def test_who_is_sent_on_is_told_where_to(opened: Any) -> None:
    server = Server(httpx.Response(301, headers={"location": "https://punctual.test/v1/jobs"}))
    with (
        opened(transport=server.transport) as way,
        pytest.raises(Refused, match=r"https://punctual\.test/v1/jobs"),
    ):
        way.all(way.client.jobs.list())
    assert len(server.asked) == 1


@both_ways
def test_what_is_no_api_is_not_taken_for_one(opened: Any) -> None:
    server = Server(httpx.Response(200, html="<html>"))
    with opened(transport=server.transport) as way, pytest.raises(Unexpected):
        way.do(way.client.stats())


@both_ways
def test_a_schedule_is_previewed_from_where_it_is_asked(opened: Any) -> None:
    server = Server(httpx.Response(200, json={"times": []}))
    with opened(transport=server.transport) as way:
        way.do(
            way.client.schedules.preview(
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
