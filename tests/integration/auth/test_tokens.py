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
def test_token_is_allowed_the_calls_of_its_role(world: World, role: str) -> None:
    token = world.at.token("roles", role)["token"]
    for call in API_CALLS:
        if call.is_public:
            continue
        answer = world.at.ask(token, call.method, world.acme.path(call), {"no": "field"})
        allowed = ROLES.index(role) + 1 >= call.role
        assert (answer.status == 403) is not allowed, (call, answer.body)


def test_only_admins_of_the_default_tenant_create_tokens_for_others(world: World) -> None:
    body = {"name": "x", "role": "admin"}
    for tenant in ("globex", world.at.home):
        answer = world.at.ask(world.acme.token, "POST", "/tokens", {**body, "tenant": tenant})
        assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")
    own: Answer = world.at.ask(world.acme.token, "POST", "/tokens", {**body, "tenant": "acme"})
    assert (own.status, own.json["tenant"]) == (201, "acme")


def test_revoked_token_is_refused_within_a_minute(world: World) -> None:
    token = world.at.token("gone")
    admin = world.at.token("gone")["token"]
    assert world.at.ask(token["token"], "GET", "/whoami").json["token_id"] == token["token_id"]
    revoked = world.at.ask(admin, "DELETE", f"/tokens/{token['token_id']}")
    assert revoked.json["revoked_at"] is not None
    assert "token" not in revoked.json
    repeated = world.at.ask(admin, "DELETE", f"/tokens/{token['token_id']}")
    assert (repeated.status, repeated.json) == (200, revoked.json)
    world.at.wait(59)
    assert world.at.ask(token["token"], "GET", "/whoami").status == 401
    assert world.at.ask(admin, "GET", "/whoami").status == 200


def test_token_expires_at_its_time(world: World) -> None:
    preview = world.at.ask(world.at.admin, "POST", "/schedules/preview", DAILY_TIMES).json
    assert preview["times"]
    body = {"name": "short", "role": "viewer", "expires_at": preview["times"][0]["utc"]}
    token = world.at.ask(world.at.admin, "POST", "/tokens", body).json
    assert token["expires_at"] == preview["times"][0]["utc"]
    caller = world.at.ask(token["token"], "GET", "/whoami").json
    assert caller["expires_at"] == token["expires_at"]
    world.at.wait(61)
    assert world.at.ask(token["token"], "GET", "/whoami").status == 401


DAILY_TIMES = {"schedule_type": "CRON", "cron_expression": "* * * * *", "count": 1}


def test_whoami_returns_the_caller_and_its_limits(world: World) -> None:
    caller = world.at.ask(world.acme.token, "GET", "/whoami").json
    assert (caller["tenant"], caller["name"], caller["role"]) == ("acme", "ci", "admin")
    assert caller["token_id"] == world.acme.ids["token_id"]
    assert set(caller["limits"]) == {
        "calls_per_second",
        "burst",
        "jobs",
        "runs_per_minute",
        "concurrent_runs",
        "lane_percent",
        "payload_bytes",
        "artifacts",
        "artifact_mb",
    }


def test_job_names_its_creator_and_audit_its_address(world: World) -> None:
    job = world.at.ask(world.acme.token, "GET", f"/jobs/{world.acme.ids['job_id']}").json
    assert job["created_by"] == "ci"
    body = {"name": "own", "role": "viewer"}
    token = world.at.ask(world.acme.token, "POST", "/tokens", body).json
    (entry,) = [
        row
        for row in world.at.ask(world.acme.token, "GET", "/audit").json["entries"]
        if row["subject_token_id"] == token["token_id"]
    ]
    assert entry["token_id"] == world.acme.ids["token_id"]
    assert entry["address"] in ("127.0.0.9", "192.0.2.1")


def test_tenant_reads_the_creator_of_its_token_without_address(world: World) -> None:
    token = world.at.token("outside")

    def read_entry(reader: str) -> Any:
        entries = world.at.ask(reader, "GET", "/audit?action=token.create&limit=200").json[
            "entries"
        ]
        (row,) = (row for row in entries if row["subject_token_id"] == token["token_id"])
        return row

    theirs, ours = read_entry(token["token"]), read_entry(world.at.admin)
    assert (theirs["token_id"], theirs["address"]) == (None, "")
    assert theirs["caller"] == ours["caller"] == token["created_by"]
    assert theirs["request_id"] == ours["request_id"] != ""
    assert ours["address"] in ("127.0.0.9", "192.0.2.1")
    second = world.at.ask(token["token"], "POST", "/tokens", {"name": "own", "role": "viewer"}).json
    entries = world.at.ask(token["token"], "GET", "/audit").json["entries"]
    (own,) = (row for row in entries if row["subject_token_id"] == second["token_id"])
    assert (own["token_id"], own["address"]) == (token["token_id"], ours["address"])


def test_token_secret_is_shown_once(world: World) -> None:
    token = world.at.token("once")
    secret = token["token"].encode()
    admin = world.at.token("once")["token"]
    for path in ("/tokens", f"/tokens/{token['token_id']}", "/audit"):
        answer = world.at.ask(admin, "GET", path)
        assert token["token_id"].encode() in answer.body
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
def test_all_invalid_fields_of_a_token_are_reported_together(
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
    token_ids: list[str] = []
    path = "/tokens?limit=2"
    while True:
        page = world.at.ask(token, "GET", path).json
        token_ids += [row["token_id"] for row in page["tokens"]]
        assert len(page["tokens"]) <= 2
        if page["next_token"] is None:
            break
        path = f"/tokens?limit=2&next_token={page['next_token']}"
    assert token_ids[1:] == ids[::-1]
    assert token_ids == sorted(token_ids, reverse=True)


def test_repeated_authorization_header_is_refused(tmp_path: Path) -> None:
    node = GuardedNode(tmp_path / "data")
    good = (b"authorization", f"Bearer {node.admin}".encode())
    try:
        host = (b"host", b"127.0.0.1:8080")
        assert node.raw("GET", "/v1/whoami", [host, good], [b""]).status == 200
        assert node.raw("GET", "/v1/whoami", [host, good, good], [b""]).status == 401
        node.is_key_unreadable = True
        answer = node.raw("GET", "/v1/whoami", [host, good], [b""])
        assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
        assert int(answer.headers["retry-after"]) >= 1
        assert [row["error"] for row in node.logged if row["event"] == "token_not_checked"]
    finally:
        node.close()
