"""Each call rejects roles below its own, and serves the others."""

import json

import pytest

from punctual.domain.tenants.roles import Role
from punctual.web.app import build_routes
from punctual.web.contract import API_CALLS, PUBLIC_PATHS, REQUIRED_ROLES, ApiCall
from punctual.web.http.request import Caller, Reply, Request
from tests.support.web_world import WebWorld

ID = "01939f6a-7b12-7000-8000-000000000000"
GUARDED = [call for call in API_CALLS if not call.is_public]


def reply_to(call: ApiCall, role: Role) -> Reply:
    path = call.path.replace("{job_id}", ID).replace("{run_id}", ID)
    request = Request(call.method, path, "", {}, b"", Caller("t", "c", role), "id")
    return build_routes(WebWorld().services(), lambda *_, **__: None).answer_whole(request)


@pytest.mark.parametrize("call", GUARDED, ids=lambda call: f"{call.method} {call.path}")
def test_call_is_served_from_its_role_upwards(call: ApiCall) -> None:
    for role in Role:
        reply = reply_to(call, role)
        if role < call.role:
            assert reply.status == 403
            problem = json.loads(reply.body)
            assert problem["code"] == "FORBIDDEN"
            assert call.role.label in problem["detail"]
            assert role.label in problem["detail"]
        else:
            assert reply.status not in (401, 403)


def test_only_public_calls_need_no_role() -> None:
    assert {
        call.path for call in API_CALLS if (call.method, call.rule) not in REQUIRED_ROLES
    } <= PUBLIC_PATHS


def test_roles_have_the_calls_of_the_contract() -> None:
    calls_by_role: dict[Role, set[str]] = {}
    for call in GUARDED:
        calls_by_role.setdefault(call.role, set()).add(f"{call.method} {call.path}")
    assert {"POST /jobs", "POST /jobs/batch", "PUT /jobs/{job_id}"} <= calls_by_role[Role.EDITOR]
    assert {"DELETE /jobs/{job_id}", "POST /jobs/{job_id}/pause"} <= calls_by_role[Role.OPERATOR]
    assert {"GET /jobs", "POST /schedules/preview"} <= calls_by_role[Role.VIEWER]
