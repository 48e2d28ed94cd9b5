"""Tokens of any installation: creation, roles and revocation."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.acceptance.contract import (
    NEVER_SOON,
    Api,
    a_client,
    eventually,
    fields_of,
    instant,
    soon,
    unique,
)

TOKEN = {
    "token_id",
    "tenant",
    "name",
    "role",
    "created_at",
    "created_by",
    "expires_at",
    "last_used_at",
    "revoked_at",
}
LIMITS = {
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
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(api: Api) -> Iterator[Make]:
    """Yield a function that creates a token. Its tokens are revoked after the test."""
    token_ids: list[str] = []

    def create(role: str = "viewer", **fields: Any) -> dict[str, Any]:
        body = {"name": unique("acceptance"), "role": role, **fields}
        answer = api("POST", "/tokens", body)
        assert answer.status_code == 201, answer.text
        token: dict[str, Any] = answer.json()
        assert answer.headers["Location"].endswith(f"/tokens/{token['token_id']}")
        if "tenant" not in fields:
            token_ids.append(token["token_id"])
        return token

    yield create
    for token_id in token_ids:
        assert api("DELETE", f"/tokens/{token_id}").status_code == 200


@pytest.fixture(scope="module")
def requires_tokens(url: str) -> bool:
    """Return True if the installation refuses calls without a token."""
    with a_client(url, None) as client:
        return client.get("/whoami").status_code == 401


@pytest.fixture
def tokens_required(requires_tokens: bool) -> None:
    if not requires_tokens:
        pytest.skip("this installation asks for no tokens")


@pytest.fixture
def as_caller(url: str) -> Iterator[Callable[[str], httpx.Client]]:
    clients: list[httpx.Client] = []

    def client_of(token: str) -> httpx.Client:
        clients.append(a_client(url, token))
        return clients[-1]

    yield client_of
    for client in clients:
        client.close()


AsCaller = Callable[[str], httpx.Client]


def test_caller_is_an_admin(api: Api) -> None:
    identity = api.get("/whoami")
    assert set(identity) == {"tenant", "name", "role", "token_id", "expires_at", "limits"}
    assert identity["role"] == "admin"
    assert set(identity["limits"]) == LIMITS


def test_token_secret_is_shown_once_and_token_is_listed(api: Api, make: Make) -> None:
    until = soon(3_600)
    token = make("operator", expires_at=until)
    secret = token.pop("token")
    assert secret.startswith("pnc_")
    assert len(secret) > 40
    assert set(token) == TOKEN
    assert (token["role"], token["expires_at"], token["revoked_at"]) == ("operator", until, None)
    assert token["tenant"] == api.get("/whoami")["tenant"]
    assert instant(token["created_at"]) < instant(until)
    assert api.get(f"/tokens/{token['token_id']}") == token
    assert token in list(api.pages("/tokens", "tokens", limit=200))


def test_tokens_differ_from_each_other(make: Make) -> None:
    secrets = {make()["token"] for _ in range(5)}
    assert len(secrets) == 5


def test_token_revocation_is_final_and_idempotent(api: Api, make: Make) -> None:
    token_id = make()["token_id"]
    first = api("DELETE", f"/tokens/{token_id}")
    assert first.status_code == 200
    assert instant(first.json()["revoked_at"])
    assert api("DELETE", f"/tokens/{token_id}").json() == first.json()
    assert api.get(f"/tokens/{token_id}") == first.json()


@pytest.mark.parametrize("token_id", ["x", "01939f6a-7b12-7000-8000-000000000000"])
def test_unknown_token_returns_404(api: Api, token_id: str) -> None:
    for method in ("GET", "DELETE"):
        assert api(method, f"/tokens/{token_id}").status_code == 404


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"name", "role"}),
        ({"name": "", "role": "root", "tenant": "", "x": 1}, {"name", "role", "tenant", "x"}),
        ({"name": "a", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}, {"expires_at"}),
        ({"name": 1, "role": 1, "expires_at": 1}, {"name", "role", "expires_at"}),
    ],
)
def test_all_wrong_fields_of_a_token_are_named(api: Api, body: Any, fields: set[str]) -> None:
    assert fields_of(api("POST", "/tokens", body)) == fields


@pytest.mark.usefixtures("tokens_required")
@pytest.mark.parametrize("header", ["x", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer a.b.c"])
def test_request_without_a_valid_token_returns_401(url: str, header: str) -> None:
    with a_client(url, None) as client:
        # A gateway may answer by itself if the header is missing.
        assert client.get("/jobs").status_code == 401
        sent = {"Authorization": header}
        for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/nothing")):
            answer = client.request(method, path, headers=sent)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json()["code"] == "UNAUTHENTICATED"
        for path in ("/health", "/health/live", "/health/ready", "/openapi.json"):
            assert client.get(path, headers=sent).status_code == 200


@pytest.mark.usefixtures("tokens_required")
def test_role_allows_its_calls_only(make: Make, as_caller: AsCaller, api: Api) -> None:
    job = api.create(**NEVER_SOON)["job_id"]
    least = {
        ("GET", f"/jobs/{job}"): "viewer",
        ("POST", f"/jobs/{job}/pause"): "operator",
        ("PATCH", f"/jobs/{job}"): "editor",
        ("GET", "/tokens"): "admin",
        ("GET", "/audit"): "admin",
    }
    roles = ["viewer", "operator", "editor", "admin"]
    for role in roles:
        caller = as_caller(make(role)["token"])
        assert caller.get("/whoami").json()["role"] == role
        for (method, path), needs in least.items():
            body = {"name": "n"} if method == "PATCH" else None
            answer = caller.request(method, path, json=body)
            may = roles.index(role) >= roles.index(needs)
            assert answer.status_code == (200 if may else 403), (role, path, answer.text)


@pytest.mark.usefixtures("tokens_required")
def test_jobs_and_tokens_of_another_tenant_return_404(
    make: Make, as_caller: AsCaller, api: Api
) -> None:
    other_tenant = as_caller(make("admin", tenant=unique("tenant"))["token"])
    job = api.create(**NEVER_SOON)["job_id"]
    for method, path in (
        ("GET", f"/jobs/{job}"),
        ("GET", f"/jobs/{job}/runs"),
        ("DELETE", f"/jobs/{job}"),
        ("POST", f"/jobs/{job}/runNow"),
        ("GET", f"/tokens/{make()['token_id']}"),
    ):
        assert other_tenant.request(method, path).status_code == 404
    assert other_tenant.get("/jobs").json()["jobs"] == []
    assert api.get(f"/jobs/{job}")["status"] == "SCHEDULED"
    refused = other_tenant.post(
        "/tokens", json={"name": "x", "role": "viewer", "tenant": "default"}
    )
    assert refused.status_code == 403
    own = other_tenant.get("/whoami").json()["token_id"]
    assert other_tenant.delete(f"/tokens/{own}").status_code == 200


@pytest.mark.usefixtures("tokens_required")
def test_revoked_token_is_refused_within_a_minute(
    make: Make, as_caller: AsCaller, api: Api
) -> None:
    token = make()
    caller = as_caller(token["token"])
    assert caller.get("/jobs").status_code == 200
    assert api.get(f"/tokens/{token['token_id']}")["last_used_at"] is not None
    assert api("DELETE", f"/tokens/{token['token_id']}").status_code == 200
    eventually(lambda: caller.get("/jobs").status_code == 401, within=60)
