"""The list of open failures and their acknowledgement, over a whole node."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.domain.tenants.roles import Role
from punctual.domain.timestamps import format_time
from punctual.engine.ports.rows import Detail
from tests.integration.web.test_http_engine import CRON, NOON, NodeClient, submitted
from tests.support.builders import a_row, a_run, an_id
from tests.support.node.guarded import GuardedNode


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    yield client
    client.close()


def end_run(
    client: NodeClient, job_id: str, number: int, error: str = "it broke", tenant: str = "local"
) -> None:
    """Record a run that ended `number` seconds after noon. Without an error it succeeded."""
    at = NOON + timedelta(seconds=number)
    status = RunStatus.FAILED if error else RunStatus.SUCCESS
    run = a_run(an_id(number), status, attempt_at=at, ended_at=at)
    row = a_row(an_id(number), job_id, tenant, run=run, detail=Detail(error=error))
    client.store.history.put_runs([row])


def failures(client: NodeClient, **headers: str) -> list[dict[str, Any]]:
    answer = client.call("GET", "/v1/failures", None, headers)
    assert answer.status == 200, answer.body
    listed: list[dict[str, Any]] = answer.json["failures"]
    return listed


def test_failure_is_listed_until_a_run_succeeds(client: NodeClient) -> None:
    job = submitted(client, {**CRON, "name": "nightly"})
    end_run(client, job["job_id"], 1)
    end_run(client, job["job_id"], 2)
    (failure,) = failures(client)
    assert failure == {
        "failure_id": failure["failure_id"],
        "job_id": job["job_id"],
        "job_name": "nightly",
        "error": "it broke",
        "status": "FAILED",
        "count": 2,
        "first_at": format_time(NOON + timedelta(seconds=1)),
        "last_at": format_time(NOON + timedelta(seconds=2)),
        "last_run_id": an_id(2),
        "acknowledged": None,
    }
    end_run(client, job["job_id"], 3, error="")
    assert failures(client) == []


def test_acknowledged_failure_names_the_caller_and_is_audited(client: NodeClient) -> None:
    job_id = submitted(client, CRON)["job_id"]
    end_run(client, job_id, 1)
    path = f"/v1/failures/{failures(client)[0]['failure_id']}/acknowledge"
    for _ in range(2):
        known = client.post(path, {"note": "a disk is on its way"})
        assert known.status == 200
    assert known.json["acknowledged"] == {
        "by": "local",
        "at": format_time(client.clock.now),
        "note": "a disk is on its way",
    }
    assert failures(client) == [known.json]
    (entry,) = client.get("/v1/audit?action=failure.acknowledge").json["entries"]
    assert entry["after"] == {"job_id": job_id, "error": "it broke", "note": "a disk is on its way"}
    assert client.post(path).json["acknowledged"]["note"] is None


def test_closed_or_unknown_failure_cannot_be_acknowledged(client: NodeClient) -> None:
    job_id = submitted(client, CRON)["job_id"]
    end_run(client, job_id, 1)
    failure_id = failures(client)[0]["failure_id"]
    end_run(client, job_id, 2, error="")
    wrong = [failure_id, failure_id[:-1] + "x", job_id, "x", "%2e%2e", "a" * 300]
    for failure in wrong:
        assert client.post(f"/v1/failures/{failure}/acknowledge", {}).status == 404
    assert client.get("/v1/audit?action=failure.acknowledge").json["entries"] == []


@pytest.mark.parametrize("body", [{"note": "x" * 257}, {"note": "a\nb"}, {"note": 7}, {"not": ""}])
def test_wrong_acknowledgement_is_an_error(client: NodeClient, body: dict[str, Any]) -> None:
    end_run(client, submitted(client, CRON)["job_id"], 1)
    failure_id = failures(client)[0]["failure_id"]
    answer = client.post(f"/v1/failures/{failure_id}/acknowledge", body)
    assert set(answer.fields) == set(body)
    assert failures(client)[0]["acknowledged"] is None


def test_list_is_paged_and_its_tokens_are_of_this_list(client: NodeClient) -> None:
    for number in range(1, 8):
        job_id = submitted(client, {**CRON, "name": f"a{number}"})["job_id"]
        end_run(client, job_id, number)
    token, seen = "", []
    for _ in range(4):
        page = client.get(f"/v1/failures?limit=3&next_token={token}").json
        seen += [failure["last_at"] for failure in page["failures"]]
        token = page["next_token"]
        if token is None:
            break
    assert seen == [format_time(NOON + timedelta(seconds=n)) for n in range(7, 0, -1)]
    other = client.get("/v1/failures?limit=3").json["next_token"]
    assert client.get(f"/v1/audit?next_token={other}").status == 422


def test_failures_of_one_job_are_paged(client: NodeClient) -> None:
    job_id, other_id = (submitted(client, {**CRON, "name": name})["job_id"] for name in "ab")
    for number, error in enumerate(("first", "second", "third"), start=1):
        end_run(client, job_id, number, error)
        end_run(client, other_id, 10 + number, error)
    first = client.get(f"/v1/failures?job_id={job_id}&limit=2").json
    assert [failure["error"] for failure in first["failures"]] == ["third", "second"]
    assert {failure["job_name"] for failure in first["failures"]} == {"a"}
    token = first["next_token"]
    last = client.get(f"/v1/failures?job_id={job_id}&limit=2&next_token={token}").json
    assert [failure["error"] for failure in last["failures"]] == ["first"]
    assert last["next_token"] is None
    assert client.get(f"/v1/failures?limit=2&next_token={token}").status == 422
    assert client.get(f"/v1/failures?job_id={other_id}&limit=2&next_token={token}").status == 422
    assert client.get(f"/v1/failures?job_id={an_id(99)}").json["failures"] == []
    assert client.get("/v1/failures?job_id=").status == 422
    assert client.get("/v1/failures?job_id=a").status == 404


def test_viewer_cannot_acknowledge_and_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    node = GuardedNode(tmp_path)
    try:
        tokens = {
            (tenant, role): node.tokens.create(tenant, "a", role, None, "test")[1]
            for tenant in ("acme", "umbrella")
            for role in (Role.VIEWER, Role.OPERATOR, Role.EDITOR)
        }

        def headers(tenant: str, role: Role) -> dict[str, str]:
            return {"authorization": f"Bearer {tokens[tenant, role]}"}

        job_id = submitted(node, CRON, **headers("acme", Role.EDITOR))["job_id"]
        end_run(node, job_id, 1, tenant="acme")
        assert failures(node, **headers("umbrella", Role.OPERATOR)) == []
        (failure,) = failures(node, **headers("acme", Role.VIEWER))
        of_job = f"/v1/failures?job_id={job_id}"
        other = node.call("GET", of_job, None, headers("umbrella", Role.OPERATOR))
        assert other.json["failures"] == []
        path = f"/v1/failures/{failure['failure_id']}/acknowledge"
        for tenant, role, status in (
            ("acme", Role.VIEWER, 403),
            ("umbrella", Role.OPERATOR, 404),
            ("acme", Role.OPERATOR, 200),
        ):
            assert node.call("POST", path, b"{}", headers(tenant, role)).status == status
    finally:
        node.close()
