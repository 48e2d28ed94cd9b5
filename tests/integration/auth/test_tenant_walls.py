"""Walls between tenants: whatever of another's is named, nothing is seen and nothing changes."""

from collections.abc import Iterator

import pytest

from punctual.web.contract import API_CALLS, ApiCall
from tests.support.node.tenants import BODIES, DAILY, KINDS, LISTS, World, a_tenant


@pytest.fixture(scope="module", params=sorted(KINDS))
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with KINDS[request.param](tmp_path_factory.mktemp("walls") / "data") as at:
        yield World(at, a_tenant(at, "acme"), a_tenant(at, "globex"))


NAMED = [call for call in API_CALLS if "{" in call.path]


@pytest.mark.parametrize("call", NAMED, ids=lambda call: f"{call.method} {call.path}")
def test_what_is_anothers_is_not_there(world: World, call: ApiCall) -> None:
    before = world.state(world.acme)
    body = BODIES.get((call.method, call.path), {} if call.method == "POST" else None)
    answer = world.at.ask(world.globex.token, call.method, world.acme.path(call), body)
    assert answer.status == 404, answer.body
    assert answer.json["code"] == "NOT_FOUND"
    nobodys = world.acme.path(call)
    for one in world.acme.ids.values():
        nobodys = nobodys.replace(one, one[:-4] + "0000")
    missing = world.at.ask(world.globex.token, call.method, nobodys, body)
    assert missing.json["detail"] == answer.json["detail"], "nothing tells the two apart"
    assert world.state(world.acme) == before


def test_a_run_of_anothers_job_is_not_there_by_a_job_of_ones_own(world: World) -> None:
    mine, theirs = world.globex.ids, world.acme.ids
    for path in ("", "/output", "/logs"):
        mixed = f"/jobs/{mine['job_id']}/runs/{theirs['run_id']}{path}"
        assert world.at.ask(world.globex.token, "GET", mixed).status == 404


@pytest.mark.parametrize("path", [*LISTS, "/schedules/upcoming", "/stats", "/whoami"])
def test_lists_hold_ones_own_alone(world: World, path: str) -> None:
    answer = world.at.ask(world.globex.token, "GET", path)
    assert answer.status == 200
    for one in world.acme.ids.values():
        assert one.encode() not in answer.body
    assert b"acme" not in answer.body


DAY = "/schedules/upcoming?from=2026-11-18T12:00:00Z&to=2026-11-19T12:00:00Z"
OTHER_DAY = "/schedules/upcoming?from=2026-11-18T13:00:00Z&to=2026-11-19T12:00:00Z"


@pytest.mark.parametrize("path", [*(f"{path}?" for path in LISTS), DAY])
def test_a_list_goes_on_for_its_own_tenant_alone(world: World, path: str) -> None:
    token = world.at.ask(world.acme.token, "GET", f"{path}&limit=1").json["next_token"]
    assert token is not None
    answer = world.at.ask(world.globex.token, "GET", f"{path}&limit=1&next_token={token}")
    assert answer.status == 422
    assert "next_token" in answer.fields
    assert world.at.ask(world.acme.token, "GET", f"{path}&limit=1&next_token={token}").status == 200


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ("/jobs?status=SCHEDULED", ["/jobs?", "/jobs?status=PAUSED", "/runs?status=SUCCESS"]),
        ("/runs?trigger=RUN_NOW", ["/runs?", "/runs?trigger=BACKFILL", "/jobs/{job_id}/runs?"]),
        ("/jobs/{job_id}/runs?", ["/jobs/{job_id}/runs?trigger=RUN_NOW", "/runs?", "/jobs?"]),
        ("/audit?", ["/audit?action=job.create", "/tokens?"]),
        (DAY, [OTHER_DAY]),
    ],
)
def test_a_list_goes_on_with_the_path_and_filters_it_began_with(
    world: World, asked: str, others: list[str]
) -> None:
    mine, job_id = world.acme.token, world.acme.ids["job_id"]
    asked = asked.replace("{job_id}", job_id)
    world.at.ask(mine, "POST", f"/jobs/{job_id}/runNow", {})  # at least two runs of one job
    token = world.at.ask(mine, "GET", f"{asked}&limit=1").json["next_token"]
    assert token is not None
    assert world.at.ask(mine, "GET", f"{asked}&limit=5&next_token={token}").status == 200
    for other in others:
        path = f"{other.replace('{job_id}', job_id)}&limit=1"
        assert world.at.ask(mine, "GET", path).status == 200
        answer = world.at.ask(mine, "GET", f"{path}&next_token={token}")
        assert (answer.status, set(answer.fields)) == (422, {"next_token"}), other


def test_the_same_idempotency_key_stands_for_each_tenants_own(world: World) -> None:
    assert world.acme.ids["job_id"] != world.globex.ids["job_id"]
    again = world.at.ask(world.acme.token, "POST", "/jobs", DAILY, idempotency_key="same")
    assert again.json["job_id"] == world.acme.ids["job_id"]
    other = {**DAILY, "name": "another body"}
    third = world.at.token("third")["token"]
    assert world.at.ask(third, "POST", "/jobs", other, idempotency_key="same").status == 202


def _forged(token: str) -> str:
    """Return the token with another last character: "_" may be the one it ends with."""
    return token[:-1] + ("A" if token.endswith("_") else "_")


@pytest.mark.parametrize("call", API_CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_without_a_good_token_nothing_is_answered(world: World, call: ApiCall) -> None:
    if call.is_public:
        assert world.at.ask("wrong", call.method, call.path).status == 200
        return
    for token in ("wrong", _forged(world.acme.token), ""):
        answer = world.at.ask(token, call.method, world.acme.path(call), {"no": "body"})
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="punctual"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["code"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("path", ["/nothing", "/", "/jobs/x/y/z", "/tokens/x"])
def test_without_a_token_nobody_is_told_what_there_is(world: World, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "PUT"):
        assert world.at.ask("", method, path).status == 401
