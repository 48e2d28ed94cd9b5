"""Isolation of tenants: a tenant reads and changes nothing of another tenant."""

from collections.abc import Iterator

import pytest

from punctual.web.contract import API_CALLS, CLAIM_PATHS, ApiCall
from tests.support.node.tenants import BODIES, DAILY, KINDS, LISTS, World, a_tenant


@pytest.fixture(scope="module", params=sorted(KINDS))
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with KINDS[request.param](tmp_path_factory.mktemp("walls") / "data") as at:
        yield World(at, a_tenant(at, "acme"), a_tenant(at, "globex"))


# A secret is set by its name, so this call reaches the caller's own secret.
SETS_BY_NAME = ("PUT", "/secrets/{name}")
NAMED = [
    call for call in API_CALLS if "{" in call.path and (call.method, call.path) != SETS_BY_NAME
]


@pytest.mark.parametrize("call", NAMED, ids=lambda call: f"{call.method} {call.path}")
def test_call_on_another_tenants_object_is_not_found(world: World, call: ApiCall) -> None:
    before = world.state(world.acme)
    body = BODIES.get((call.method, call.path), {} if call.method == "POST" else None)
    answer = world.at.ask(world.globex.token, call.method, world.acme.path(call), body)
    assert answer.status == 404, answer.body
    assert answer.json["code"] == "NOT_FOUND"
    missing_path = world.acme.path(call)
    for object_id in world.acme.ids.values():
        missing_path = missing_path.replace(object_id, object_id[:-4] + "0000")
    missing = world.at.ask(world.globex.token, call.method, missing_path, body)
    assert missing.json["detail"] == answer.json["detail"], "both answers are equal"
    assert world.state(world.acme) == before


def test_run_of_another_tenant_is_not_found_under_own_job(world: World) -> None:
    own, theirs = world.globex.ids, world.acme.ids
    for path in ("", "/output", "/logs"):
        mixed = f"/jobs/{own['job_id']}/runs/{theirs['run_id']}{path}"
        assert world.at.ask(world.globex.token, "GET", mixed).status == 404


@pytest.mark.parametrize("path", [*LISTS, "/secrets", "/schedules/upcoming", "/stats", "/whoami"])
def test_lists_show_only_own_objects(world: World, path: str) -> None:
    answer = world.at.ask(world.globex.token, "GET", path)
    assert answer.status == 200
    for object_id in world.acme.ids.values():
        assert object_id.encode() not in answer.body
    assert b"acme" not in answer.body


DAY = "/schedules/upcoming?from=2026-11-18T12:00:00Z&to=2026-11-19T12:00:00Z"
OTHER_DAY = "/schedules/upcoming?from=2026-11-18T13:00:00Z&to=2026-11-19T12:00:00Z"


@pytest.mark.parametrize("path", [*(f"{path}?" for path in LISTS), DAY])
def test_page_token_is_valid_only_for_its_tenant(world: World, path: str) -> None:
    token = world.at.ask(world.acme.token, "GET", f"{path}&limit=1").json["next_token"]
    assert token is not None
    answer = world.at.ask(world.globex.token, "GET", f"{path}&limit=1&next_token={token}")
    assert answer.status == 422
    assert "next_token" in answer.fields
    assert world.at.ask(world.acme.token, "GET", f"{path}&limit=1&next_token={token}").status == 200


@pytest.mark.parametrize(
    ("path_asked", "others"),
    [
        ("/jobs?status=SCHEDULED", ["/jobs?", "/jobs?status=PAUSED", "/runs?status=SUCCESS"]),
        ("/runs?trigger=RUN_NOW", ["/runs?", "/runs?trigger=BACKFILL", "/jobs/{job_id}/runs?"]),
        ("/jobs/{job_id}/runs?", ["/jobs/{job_id}/runs?trigger=RUN_NOW", "/runs?", "/jobs?"]),
        ("/audit?", ["/audit?action=job.create", "/tokens?"]),
        (DAY, [OTHER_DAY]),
    ],
)
def test_page_token_is_valid_only_for_its_path_and_filters(
    world: World, path_asked: str, others: list[str]
) -> None:
    caller, job_id = world.acme.token, world.acme.ids["job_id"]
    path_asked = path_asked.replace("{job_id}", job_id)
    world.at.ask(caller, "POST", f"/jobs/{job_id}/runNow", {})  # at least two runs of one job
    token = world.at.ask(caller, "GET", f"{path_asked}&limit=1").json["next_token"]
    assert token is not None
    assert world.at.ask(caller, "GET", f"{path_asked}&limit=5&next_token={token}").status == 200
    for other in others:
        other_path = f"{other.replace('{job_id}', job_id)}&limit=1"
        assert world.at.ask(caller, "GET", other_path).status == 200
        answer = world.at.ask(caller, "GET", f"{other_path}&next_token={token}")
        assert (answer.status, set(answer.fields)) == (422, {"next_token"}), other


def test_idempotency_key_is_separate_for_each_tenant(world: World) -> None:
    assert world.acme.ids["job_id"] != world.globex.ids["job_id"]
    repeated = world.at.ask(world.acme.token, "POST", "/jobs", DAILY, idempotency_key="same")
    assert repeated.json["job_id"] == world.acme.ids["job_id"]
    other = {**DAILY, "name": "another body"}
    third = world.at.token("third")["token"]
    assert world.at.ask(third, "POST", "/jobs", other, idempotency_key="same").status == 202


def _forged(token: str) -> str:
    """Return the token with another last character: "_" may be the one it ends with."""
    return token[:-1] + ("A" if token.endswith("_") else "_")


@pytest.mark.parametrize("call", API_CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_call_without_a_valid_token_is_refused(world: World, call: ApiCall) -> None:
    if call.is_public:
        status = 400 if call.path in CLAIM_PATHS else 200  # a claim stands in the body
        assert world.at.ask("wrong", call.method, call.path).status == status
        return
    for token in ("wrong", _forged(world.acme.token), ""):
        answer = world.at.ask(token, call.method, world.acme.path(call), {"no": "body"})
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="punctual"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["code"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("path", ["/nothing", "/", "/jobs/x/y/z", "/tokens/x"])
def test_unknown_path_without_a_token_is_refused(world: World, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "PUT"):
        assert world.at.ask("", method, path).status == 401


def test_secret_of_the_same_name_belongs_to_its_tenant(world: World) -> None:
    before, path = world.state(world.acme), f"/secrets/{world.acme.ids['name']}"
    assert world.at.ask(world.globex.token, "PUT", path, {"value": "other"}).status == 204
    assert world.state(world.acme) == before
    assert world.at.ask(world.globex.token, "DELETE", path).status == 204
    assert world.state(world.acme) == before
