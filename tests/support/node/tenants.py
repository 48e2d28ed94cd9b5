"""Two tenants of one installation, each with a token, a job, a run and all its readable data."""

from hashlib import sha256
from typing import Any, NamedTuple

from punctual.web.contract import API_CALLS, ApiCall
from tests.support.node.guarded import Installation, a_guarded_deployment, a_guarded_node

KINDS = {"aws": a_guarded_deployment, "node": a_guarded_node}
SCHEDULE = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
DAILY = {"name": "theirs", **SCHEDULE}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/jobs"): DAILY,
    ("POST", "/jobs/batch"): {"jobs": [DAILY]},
    ("POST", "/tokens"): {"name": "x", "role": "viewer"},
    ("POST", "/schedules/preview"): SCHEDULE,
    ("POST", "/schedules/diff"): {"before": SCHEDULE, "after": SCHEDULE},
    ("PUT", "/jobs/{job_id}"): {"name": "mine now"},
    ("PATCH", "/jobs/{job_id}"): {"name": "mine now"},
    ("POST", "/jobs/{job_id}/backfill"): {
        "from": "2026-11-01T00:00:00Z",
        "to": "2026-11-02T00:00:00Z",
    },
}
QUERIES = {"/jobs/{job_id}/explain": "?at=2026-11-18T00:00:00Z"}
LISTS = ("/jobs", "/runs", "/tokens", "/audit")


class TenantData(NamedTuple):
    """The token and the ids of a tenant, and its readable data."""

    token: str
    ids: dict[str, str]

    def path(self, call: ApiCall) -> str:
        path = call.path
        for name, value in self.ids.items():
            path = path.replace(f"{{{name}}}", value)
        return path + QUERIES.get(call.path, "")


class World(NamedTuple):
    at: Installation
    acme: TenantData
    globex: TenantData

    def state(self, tenant: TenantData) -> dict[str, Any]:
        """Return every answer that a tenant reads, without the audit of its own calls."""
        calls = [call for call in API_CALLS if call.method == "GET" and not call.is_public]
        answers = {}
        for call in calls:
            answer = self.at.ask(tenant.token, "GET", tenant.path(call))
            if "stats" not in call.path:
                answers[call.path] = answer.body if answer.status == 200 else answer.json["code"]
        return answers


def a_tenant(at: Installation, name: str) -> TenantData:
    created = at.token(name)
    token = created["token"]
    job = at.ask(token, "POST", "/jobs", DAILY, idempotency_key="same").json
    run = at.ask(token, "POST", f"/jobs/{job['job_id']}/runNow", {}).json
    assert at.ask(token, "POST", "/jobs", {**DAILY, "name": "second"}).status == 202
    at.token(name, "viewer")
    secret_name = f"{name}-secret"
    assert at.ask(token, "PUT", f"/secrets/{secret_name}", {"value": "hush"}).status == 204
    at.wait(1)
    ids = {
        "job_id": job["job_id"],
        "run_id": run["run_id"],
        "token_id": created["token_id"],
        "name": secret_name,
    }
    content = {"sha256": sha256(name.encode()).hexdigest(), "size": len(name), "name": "main.py"}
    artifact = at.ask(token, "POST", "/artifacts", content).json
    ids["artifact_id"] = artifact["artifact_id"]
    return TenantData(token, ids)
