"""Artifacts in the deployed functions: uploads, deletion, and the walk that removes their bytes."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import requests

from punctual.domain.artifacts import MAX_ARTIFACT_BYTES, artifact_blob_name
from tests.support.deployed import repairs
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.world import World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
CONTENT = b"print('hello')"


def create(api: Gateway, content: bytes = CONTENT) -> Any:
    fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "main.py"}
    return api.post("/artifacts", fields)


def upload(api: Gateway, content: bytes = CONTENT) -> str:
    created = create(api, content).json
    sent = requests.put(
        created["upload_url"], data=content, headers=created["upload_headers"], timeout=5
    )
    assert sent.status_code == 200, sent.text
    return str(created["artifact_id"])


def stored_names(world: World) -> set[str]:
    s3 = world.session.client("s3")
    return {
        entry["Key"]
        for bucket in s3.list_buckets()["Buckets"]
        for entry in s3.list_objects_v2(Bucket=bucket["Name"], Prefix="artifacts/").get(
            "Contents", []
        )
    }


NAME = artifact_blob_name("default", sha256(CONTENT).hexdigest())


def test_upload_is_signed_with_size_and_digest(api: Gateway, world: World) -> None:
    created = create(api)
    assert created.status == 201
    headers = {name.lower() for name in created.json["upload_headers"]}
    assert headers == {"content-length", "content-type", "if-none-match", "x-amz-checksum-sha256"}
    artifact_id = upload(api)
    assert api.get(f"/artifacts/{artifact_id}").json["status"] == "STORED"
    assert stored_names(world) == {NAME}
    repeated = create(api)
    assert (repeated.status, "upload_url" in repeated.json) == (200, False)


def test_stage_without_limits_limits_artifacts(api: Gateway, world: World) -> None:
    assert world.stage == "dev", "its limits are null"
    allowed = api.get("/whoami").json["limits"]
    assert {name: value for name, value in allowed.items() if value is not None} == {
        "artifacts": 1_000,
        "artifact_mb": 20_480,
    }
    largest = {"size": MAX_ARTIFACT_BYTES, "name": "large.zip"}
    fitting = allowed["artifact_mb"] * 1024 * 1024 // MAX_ARTIFACT_BYTES
    for number in range(fitting):
        assert api.post("/artifacts", {**largest, "sha256": f"{number:064x}"}).status == 201
    refused = api.post("/artifacts", {**largest, "sha256": "a" * 64})
    assert (refused.status, refused.json["code"]) == (429, "LIMIT_EXCEEDED")
    assert "at most 20,480 MB of artifacts (artifact_mb)" in refused.json["detail"]


def test_wrong_fields_are_named(api: Gateway) -> None:
    answer = api.post("/artifacts", {"sha256": "A" * 64, "size": 0, "name": "a/b"})
    assert answer.status == 422
    assert {error["field"] for error in answer.json["errors"]} == {"sha256", "size", "name"}
    too_long = {"sha256": "0" * 64, "size": 250 * 1024 * 1024 + 1, "name": "a"}
    assert api.post("/artifacts", too_long).status == 422


def test_walk_removes_the_bytes_of_a_deleted_artifact(api: Gateway, world: World) -> None:
    artifact_id = upload(api)
    assert api.call("DELETE", f"/artifacts/{artifact_id}").status == 200
    assert api.get(f"/artifacts/{artifact_id}").status == 404
    repairs.remove_orphans(world)
    assert stored_names(world) == {NAME}
    world.run(2 * HOUR)
    repairs.remove_orphans(world)
    assert stored_names(world) == set()
    assert create(api).status == 201


def test_walk_keeps_an_upload_that_no_call_has_seen(api: Gateway, world: World) -> None:
    artifact_id = upload(api)
    repairs.remove_orphans(world)
    world.run(DAY + HOUR)
    assert api.get(f"/artifacts/{artifact_id}").json["status"] == "STORED"


def script(artifact_id: str, runtime: str = "python") -> dict[str, Any]:
    task = {"type": "script", "runtime": runtime, "artifact_id": artifact_id}
    return {
        "name": "report",
        "schedule_type": "CRON",
        "cron_expression": "0 0 1 1 *",
        "task": task,
    }


def test_artifact_of_a_job_is_not_deleted(api: Gateway) -> None:
    artifact_id = upload(api)
    job = api.post("/jobs", script(artifact_id))
    assert job.status == 202
    refused = api.call("DELETE", f"/artifacts/{artifact_id}")
    assert (refused.status, job.json["job_id"] in refused.json["detail"]) == (409, True)
    shown = api.get(f"/artifacts/{artifact_id}").json["jobs"]
    assert shown == [{"job_id": job.json["job_id"], "name": "report"}]
    assert api.call("DELETE", f"/jobs/{job.json['job_id']}").status == 200
    assert api.call("DELETE", f"/artifacts/{artifact_id}").status == 200
    (error,) = api.post("/jobs", script(artifact_id)).json["errors"]
    assert error["field"] == "task.artifact_id"


def test_binary_of_another_architecture_is_refused(api: Gateway) -> None:
    head = b"\x7fELF\x02\x01" + bytes(12)
    arm = upload(api, head + (183).to_bytes(2, "little") + bytes(44))
    intel = upload(api, head + (62).to_bytes(2, "little") + bytes(44))
    (error,) = api.post("/jobs", script(arm, "binary")).json["errors"]
    assert error["message"] == "is a binary for arm64; only x86_64 runs here"
    assert api.post("/jobs", script(intel, "binary")).status == 202
