"""Tokens on the node and on AWS: create, use, list and revoke them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.web.contract import API_CALLS
from tests.support.node.guarded import GuardedNode
from tests.support.node.tenants import KINDS, World, a_tenant
from tests.support.web_client import Answer


@pytest.fixture(scope="module", params=sorted(KINDS))
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with KINDS[request.param](tmp_path_factory.mktemp("walls") / "data") as at:
        yield World(at, a_tenant(at, "acme"), a_tenant(at, "globex"))


ROLES = ("viewer", "operator", "editor", "admin")


@pytest.mark.parametrize("role", ROLES)
def test_a_token_may_what_its_role_may(world: World, role: str) -> None:
    token = world.at.token("roles", role)["token"]
    for call in API_CALLS:
        if call.is_public:
            continue
        answer = world.at.ask(token, call.method, world.acme.path(call), {"no": "field"})
        allowed = ROLES.index(role) + 1 >= call.role
        assert (answer.status == 403) is not allowed, (call, answer.body)


def test_only_admins_of_the_installations_tenant_name_another(world: World) -> None:
    body = {"name": "x", "role": "admin"}
    for tenant in ("globex", world.at.home):
        answer = world.at.ask(world.acme.token, "POST", "/tokens", {**body, "tenant": tenant})
        assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")
    own: Answer = world.at.ask(world.acme.token, "POST", "/tokens", {**body, "tenant": "acme"})
    assert (own.status, own.json["tenant"]) == (201, "acme")


def test_a_token_that_is_taken_back_is_refused_within_a_minute(world: World) -> None:
    made = world.at.token("gone")
    admin = world.at.token("gone")["token"]
    assert world.at.ask(made["token"], "GET", "/whoami").json["token_id"] == made["token_id"]
    back = world.at.ask(admin, "DELETE", f"/tokens/{made['token_id']}")
    assert back.json["revoked_at"] is not None
    assert "token" not in back.json
    again = world.at.ask(admin, "DELETE", f"/tokens/{made['token_id']}")
    assert (again.status, again.json) == (200, back.json)
    world.at.wait(59)
    assert world.at.ask(made["token"], "GET", "/whoami").status == 401
    assert world.at.ask(admin, "GET", "/whoami").status == 200


def test_a_token_ends_when_it_says(world: World) -> None:
    here = world.at.ask(world.at.admin, "POST", "/schedules/preview", DAILY_TIMES).json
    assert here["times"]
    body = {"name": "short", "role": "viewer", "expires_at": here["times"][0]["utc"]}
    made = world.at.ask(world.at.admin, "POST", "/tokens", body).json
    assert made["expires_at"] == here["times"][0]["utc"]
    who = world.at.ask(made["token"], "GET", "/whoami").json
    assert who["expires_at"] == made["expires_at"]
    world.at.wait(61)
    assert world.at.ask(made["token"], "GET", "/whoami").status == 401


DAILY_TIMES = {"schedule_type": "CRON", "cron_expression": "* * * * *", "count": 1}


def test_who_calls_is_told(world: World) -> None:
    who = world.at.ask(world.acme.token, "GET", "/whoami").json
    assert (who["tenant"], who["name"], who["role"]) == ("acme", "ci", "admin")
    assert who["token_id"] == world.acme.ids["token_id"]
    assert set(who["limits"]) == {
        "calls_per_second",
        "burst",
        "jobs",
        "runs_per_minute",
        "concurrent_runs",
        "lane_percent",
        "payload_bytes",
    }


def test_jobs_say_whose_token_made_them_and_the_audit_from_where(world: World) -> None:
    job = world.at.ask(world.acme.token, "GET", f"/jobs/{world.acme.ids['job_id']}").json
    assert job["created_by"] == "ci"
    body = {"name": "own", "role": "viewer"}
    made = world.at.ask(world.acme.token, "POST", "/tokens", body).json
    (entry,) = [
        one
        for one in world.at.ask(world.acme.token, "GET", "/audit").json["entries"]
        if one["subject_token_id"] == made["token_id"]
    ]
    assert entry["token_id"] == world.acme.ids["token_id"]
    assert entry["address"] in ("127.0.0.9", "192.0.2.1")


def test_a_tenant_reads_who_made_its_token_but_not_from_where(world: World) -> None:
    made = world.at.token("outside")

    def told(reader: str) -> Any:
        entries = world.at.ask(reader, "GET", "/audit?action=token.create&limit=200").json[
            "entries"
        ]
        (one,) = (one for one in entries if one["subject_token_id"] == made["token_id"])
        return one

    theirs, ours = told(made["token"]), told(world.at.admin)
    assert (theirs["token_id"], theirs["address"]) == (None, "")
    assert theirs["caller"] == ours["caller"] == made["created_by"]
    assert theirs["request_id"] == ours["request_id"] != ""
    assert ours["address"] in ("127.0.0.9", "192.0.2.1")
    second = world.at.ask(made["token"], "POST", "/tokens", {"name": "own", "role": "viewer"}).json
    entries = world.at.ask(made["token"], "GET", "/audit").json["entries"]
    (own,) = (one for one in entries if one["subject_token_id"] == second["token_id"])
    assert (own["token_id"], own["address"]) == (made["token_id"], ours["address"])


def test_a_secret_is_shown_once(world: World) -> None:
    made = world.at.token("once")
    secret = made["token"].encode()
    admin = world.at.token("once")["token"]
    for path in ("/tokens", f"/tokens/{made['token_id']}", "/audit"):
        answer = world.at.ask(admin, "GET", path)
        assert made["token_id"].encode() in answer.body
        assert secret not in answer.body


EVERY = {"name", "role", "expires_at", "tenant"}
PAST = "2020-01-01T00:00:00Z"
WRONG: list[tuple[Any, set[str]]] = [
    ({}, {"name", "role"}),
    (
        {"name": 1, "role": 4, "expires_at": 5, "tenant": []},
        {"name", "role", "expires_at", "tenant"},
    ),
    ({"name": "", "role": "root", "tenant": "a b", "x": 1}, {"name", "role", "tenant", "x"}),
    ({"name": "a\nb", "role": "viewer", "expires_at": "soon"}, {"name", "expires_at"}),
    (
        {"name": "a" * 129, "role": None, "expires_at": "2020-01-01T00:00:00Z"},
        {"name", "role", "expires_at"},
    ),
    ({"name": "a", "role": "viewer", "tenant": "x" * 65}, {"tenant"}),
    ({"name": "a", "role": "viewer", "token": "pnc_mine"}, {"token"}),
    ({"name": "a", "role": "viewer", "token_id": "x"}, {"token_id"}),
]


@pytest.mark.parametrize(("body", "fields"), WRONG)
def test_everything_wrong_with_a_token_is_told_at_once(
    world: World, body: Any, fields: set[str]
) -> None:
    answer = world.at.ask(world.at.admin, "POST", "/tokens", body)
    assert (answer.status, set(answer.fields)) == (422, fields)


def test_pages_of_tokens_are_newest_first(world: World) -> None:
    ids = []
    for _ in range(5):
        ids.append(world.at.token("paged")["token_id"])
        world.at.wait(0.001)
    token = world.at.token("paged")["token"]
    found: list[str] = []
    path = "/tokens?limit=2"
    while True:
        page = world.at.ask(token, "GET", path).json
        found += [one["token_id"] for one in page["tokens"]]
        assert len(page["tokens"]) <= 2
        if page["next_token"] is None:
            break
        path = f"/tokens?limit=2&next_token={page['next_token']}"
    assert found[1:] == ids[::-1]
    assert found == sorted(found, reverse=True)


def test_a_header_that_comes_twice_lets_nobody_in(tmp_path: Path) -> None:
    node = GuardedNode(tmp_path / "data")
    good = (b"authorization", f"Bearer {node.admin}".encode())
    try:
        host = (b"host", b"127.0.0.1:8080")
        assert node.raw("GET", "/v1/whoami", [host, good], [b""]).status == 200
        assert node.raw("GET", "/v1/whoami", [host, good, good], [b""]).status == 401
        node.unread = True
        answer = node.raw("GET", "/v1/whoami", [host, good], [b""])
        assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
        assert int(answer.headers["retry-after"]) >= 1
        assert [one["error"] for one in node.logged if one["event"] == "token_not_checked"]
    finally:
        node.close()
