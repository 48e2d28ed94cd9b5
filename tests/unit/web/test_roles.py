"""Each call rejects roles below its own, and serves the others."""

import json

import pytest

from punctual.domain.tenants.roles import Role
from punctual.node.features import NODE_FEATURES
from punctual.web.app import build_routes
from punctual.web.contract import API_CALLS, PUBLIC_PATHS, REQUIRED_ROLES, ApiCall
from punctual.web.http.request import Caller, Reply, Request
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo
from tests.support.web_engine import MemoryEngine

ID = "01939f6a-7b12-7000-8000-000000000000"
GUARDED = [call for call in API_CALLS if not call.is_public]


def asked(call: ApiCall, role: Role) -> Reply:
    engine = MemoryEngine()
    services = Services(
        engine.as_jobs,
        engine.as_search,
        engine.clock,
        NODE_FEATURES,
        InstallationInfo("0", ()),
        engine.tokens,
    )
    path = call.path.replace("{job_id}", ID).replace("{run_id}", ID)
    request = Request(call.method, path, "", {}, b"", Caller("t", "c", role), "id")
    return build_routes(services, lambda *_, **__: None).answer_whole(request)


@pytest.mark.parametrize("call", GUARDED, ids=lambda call: f"{call.method} {call.path}")
def test_a_call_is_served_from_its_own_role_on_and_refused_below(call: ApiCall) -> None:
    for role in Role:
        reply = asked(call, role)
        if role < call.role:
            assert reply.status == 403
            problem = json.loads(reply.body)
            assert problem["code"] == "FORBIDDEN"
            assert call.role.label in problem["detail"]
            assert role.label in problem["detail"]
        else:
            assert reply.status not in (401, 403)


def test_only_what_is_open_needs_no_role() -> None:
    assert {
        call.path for call in API_CALLS if (call.method, call.rule) not in REQUIRED_ROLES
    } <= PUBLIC_PATHS


def test_roles_need_what_the_contract_says() -> None:
    least: dict[Role, set[str]] = {}
    for call in GUARDED:
        least.setdefault(call.role, set()).add(f"{call.method} {call.path}")
    assert {"POST /jobs", "POST /jobs/batch", "PUT /jobs/{job_id}"} <= least[Role.EDITOR]
    assert {"DELETE /jobs/{job_id}", "POST /jobs/{job_id}/pause"} <= least[Role.OPERATOR]
    assert {"GET /jobs", "POST /schedules/preview"} <= least[Role.VIEWER]
