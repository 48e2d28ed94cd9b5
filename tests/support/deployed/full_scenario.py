"""One life of a deployment with all its features, to collect the rights that it uses."""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

import requests

from bench.cost.meter import WrittenRow
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.control.limits import limits_row
from punctual.aws.s3 import TOKEN_METADATA
from punctual.domain.claims import OutputUpload
from punctual.engine.changes.run_results import log_part_key, log_parts_folder, output_key
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.authorizer.authenticator import DEFAULT_TENANT
from punctual.settings import Settings
from tests.support.claims.deployed import play_claims
from tests.support.containers.scenario import play_containers, remove_definitions
from tests.support.deployed import interrupted_work, repairs
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import PAYLOAD, SMALL, open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World
from tests.support.operations.deployed import play_operations

EVENT = {"type": "event", "detail_type": "Paid"}
MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
INBOX = "https://sqs.us-east-1.amazonaws.com/123456789012/task-inbox"
THEIR_INBOX = "https://sqs.us-east-1.amazonaws.com/123456789012/acme-inbox"
HUGE = {"order": 1, "text": "x" * 90_000}


def play_all_features(world: World) -> None:
    api = open_api(world)
    if (
        Settings.from_env(world.deployed.functions[world.name("job-service")].env).limits
        is not None
    ):
        _write_limits(world)
    world.run(MINUTE)
    _create_targets(world)
    ecs = play_containers(world, api) if world.stage == "rehearsal" else None
    if world.stage == "rehearsal":
        _run_tenant_targets(world, api)
    jobs = _submit_all_tasks(world, api, {**MINUTELY, **interrupted_work.QUICK})
    _submit_all_tasks(world, api, {"schedule_type": "IMMEDIATE", **interrupted_work.LONG})
    world.run(2 * MINUTE)
    _read_everything(api, jobs)
    _change_job(world, api, jobs[0])
    play_operations(world, api)
    _use_tokens(world, api)
    _use_artifacts(world, api)
    _run_scripts(world, api)
    for job in jobs:
        api.call("DELETE", f"/jobs/{job}")
    _switch_dispatch(world)
    _crash_executors(world, api)
    interrupted_work.check_lost_claim(world, api)
    interrupted_work.check_unrecorded_ends(world, api)
    interrupted_work.check_admission_after_end(world, api)
    interrupted_work.check_dead_letters(world, api)
    interrupted_work.check_interrupted_requests(world, api)
    play_claims(world, api)
    _put_poison_record(world)
    repairs.check_timer_repair(world, api)
    _raise_shard_count(world)
    repairs.crash_submission(world, api, "BatchWriteItem")
    _expire_jobs(world)
    if ecs is not None:
        remove_definitions(world, ecs)
    repairs.remove_orphans(world)
    submit_job(api, schedule_type="CRON", cron_expression="0 0 1 1 *")
    world.run(5 * SECOND)
    repairs.recount_tenant(world, {"job_SCHEDULED": 100, "run_RUNNING": 500})


def _use_tokens(world: World, api: Gateway) -> None:
    token = api.post("/tokens", {"name": "ci", "role": "viewer", "tenant": "acme"}).json
    theirs = Gateway(world, token["token"])
    assert theirs.get("/whoami").json["token_id"] == token["token_id"]
    assert theirs.post("/jobs", SMALL).status == 403
    mine = api.post("/tokens", {"name": "mine", "role": "admin"}).json["token_id"]
    assert api.get("/tokens").json["tokens"][0]["token_id"] == mine
    assert api.call("DELETE", f"/tokens/{mine}").json["revoked_at"]


def _use_artifacts(world: World, api: Gateway) -> None:
    """Upload artifacts, delete one, and let a walk of the reconciler find an upload."""

    def create(content: bytes) -> Any:
        fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "main.py"}
        return api.post("/artifacts", fields).json

    def upload(content: bytes) -> str:
        created = create(content)
        headers = created["upload_headers"]
        sent = requests.put(created["upload_url"], data=content, headers=headers, timeout=5)
        assert sent.status_code == 200, sent.text
        return str(created["artifact_id"])

    stored, deleted = upload(b"print(1)"), upload(b"print(2)")
    assert api.get(f"/artifacts/{stored}").json["status"] == "STORED"
    assert "upload_url" not in create(b"print(1)")
    assert api.call("DELETE", f"/artifacts/{deleted}").status == 200
    upload(b"print(3)")
    repairs.remove_orphans(world)
    listed = api.get("/artifacts").json["artifacts"]
    assert [artifact["status"] for artifact in listed] == ["STORED"] * 2


def _run_scripts(world: World, api: Gateway) -> None:
    """Run a script of each runtime, and hand another one to a runner that never starts."""

    def log_in_parts(event: Mapping[str, Any]) -> dict[str, Any]:
        key = JobKey(DEFAULT_TENANT, event["job_id"])
        env = world.deployed.functions[world.name("claims")].env
        tokens = world.runtime("claims", env).claim_tokens
        claim = tokens.read(event["claim"])
        assert claim is not None
        s3, bucket = world.session.client("s3"), Settings.from_env(env).bucket
        folder = log_parts_folder(key, claim.run_id, claim.attempt_number)
        s3.put_object(Bucket=bucket, Key=log_part_key(folder, claim.token, 0), Body=b"begun ")
        answer = {"log": "ZW5kZWQ=", "log_offset": len("begun ")}
        if event["task"]["runtime"] != "python":
            return {**answer, "output": "b3V0"}
        s3.put_object(
            Bucket=bucket,
            Key=output_key(key, claim.run_id, claim.attempt_number),
            Body=b"out",
            Metadata={TOKEN_METADATA: str(claim.token)},
        )
        return {**answer, "output_upload": tokens.sign_upload(claim, OutputUpload(3, "text/csv"))}

    world.run_script = log_in_parts
    scripts = [
        {"type": "script", "runtime": runtime, "code": "print(1)"}
        for runtime in ("python", "node", "bash")
    ]
    at_once = {"schedule_type": "IMMEDIATE"}
    short = [submit_job(api, **at_once, task=task, timeout_seconds=20) for task in scripts]
    unbegun = submit_job(api, **at_once, task=scripts[0], delivery="AT_MOST_ONCE")
    world.run(2 * MINUTE)
    for job in short:
        assert api.get(f"/jobs/{job}/runs").json["runs"][0]["status"] == "SUCCESS"
    assert api.get(f"/jobs/{unbegun}/runs").json["runs"][0]["status"] == "CLAIMED"
    assert api.call("DELETE", f"/jobs/{unbegun}").status == 200


def _write_limits(world: World) -> None:
    """Write limits for a tenant as an operator does, far above the use in this test."""
    limits = {"calls_per_second": 9_000, "runs_per_minute": 9_000, "concurrent_runs": 900}
    limits |= {"artifacts": 900, "artifact_mb": 900}
    row = limits_row("default", limits)
    world.bare.put_item(TableName=world.table(keys.CONTROL_TABLE), Item=row)


def _create_targets(world: World) -> None:
    """Create the targets of tasks."""
    secrets = world.session.client("secretsmanager")
    secrets.create_secret(Name=f"punctual/{world.stage}/default/name", SecretString="Paid")
    world.session.client("ssm").put_parameter(
        Name=f"/punctual/{world.stage}/secrets/default/other", Value="Paid", Type="SecureString"
    )
    world.add_queue(INBOX)
    world.work = lambda payload: payload


def _submit_all_tasks(world: World, api: Gateway, fields: Mapping[str, Any]) -> list[str]:
    work = {"type": "lambda", "function": "task-work"}
    tasks: list[dict[str, Any]] = [
        EVENT,
        work,
        {"type": "sqs", "queue_url": INBOX},
        {"type": "http", "url": "https://192.0.2.1/"},
        {"type": "event", "detail_type": "{{secret:name}}"},
        {"type": "event", "detail_type": "{{secret:other}}"},
    ]
    backoff = {"backoff_seconds": 1}
    jobs = [submit_job(api, **fields, task=task, retry=backoff) for task in tasks]
    at_once = {"schedule_type": "IMMEDIATE", "timeout_seconds": fields["timeout_seconds"]}
    large = submit_job(api, **at_once, task=work, payload=HUGE)
    alone = submit_job(api, **at_once, task=work, payload=PAYLOAD)
    hook = [{"on": ["SUCCESS"], "url": "https://192.0.2.1/"}]
    submit_job(api, **at_once, task=EVENT, notify=hook)
    batch = {"jobs": [{"name": "n", **at_once, "task": EVENT}] * 3}
    assert api.post("/jobs/batch", batch).status < 300
    asked, key = (
        {"name": "n", **at_once, "task": EVENT},
        {"idempotency_key": f"in {fields['timeout_seconds']} s"},
    )
    assert {api.call("POST", "/jobs", asked, key).status for _ in range(2)} <= {200, 202}
    return [*jobs, large, alone]


def _run_tenant_targets(world: World, api: Gateway) -> None:
    """Run tasks of a tenant that may reach its own function and queue."""
    token = api.post("/tokens", {"name": "ci", "role": "editor", "tenant": "acme"}).json
    theirs = Gateway(world, token["token"])
    world.add_queue(THEIR_INBOX)
    tasks = [
        {"type": "lambda", "function": "acme-answers"},
        {"type": "lambda", "function": "acme-answers:live"},
        {"type": "sqs", "queue_url": THEIR_INBOX},
    ]
    for lane in (interrupted_work.QUICK, interrupted_work.LONG):
        jobs = [submit_job(theirs, schedule_type="IMMEDIATE", **lane, task=task) for task in tasks]
        world.run(MINUTE)
        assert {run["status"] for job in jobs for run in runs_of(theirs, job)} == {"SUCCESS"}


def _read_everything(api: Gateway, jobs: list[str]) -> None:
    cursor = api.get("/changes").json["next_cursor"]
    for target in (
        f"/changes?after={cursor}",
        "/audit",
        "/jobs",
        "/jobs?name=other",
        "/runs",
        "/stats",
        "/health",
        "/schedules/upcoming",
        "/forecast",
        "/overview",
    ):
        assert api.get(target).status == 200, target
    failures = api.get("/failures").json["failures"]
    of_job = api.get(f"/failures?job_id={failures[0]['job_id']}").json["failures"]
    assert failures[0] in of_job
    known = api.post(f"/failures/{failures[0]['failure_id']}/acknowledge", {"note": "known"})
    assert known.status == 200
    preview = {"schedule_type": "CRON", "cron_expression": "0 9 * * *"}
    assert api.post("/schedules/preview", preview).status == 200
    assert api.post("/schedules/diff", {"before": jobs[0], "after": preview}).status == 200
    for job in jobs:
        for target in ("", "/status", "/versions", "/explain?at=2026-03-02T12:01:00Z", "/runs"):
            assert api.get(f"/jobs/{job}{target}").status == 200, target
        for run in runs_of(api, job)[:2]:
            for target in ("", "/output", "/logs"):
                status = api.get(f"/jobs/{job}/runs/{run['run_id']}{target}").status
                assert status in (200, 302, 307, 404), (target, status)
    assert api.get("/jobs/no-such-job").status == 404
    assert api.get("/webhook-secret").json["secret"].startswith("whsec_")
    assert api.call("PUT", "/secrets/bank", {"value": "hush"}).status == 204
    assert api.call("PUT", "/secrets/bank", {"value": "other"}).status == 204
    assert [secret["name"] for secret in api.get("/secrets").json["secrets"]] == ["bank"]
    assert api.call("DELETE", "/secrets/bank").status == 204


def _change_job(world: World, api: Gateway, job: str) -> None:
    for method, target, value in (
        ("PATCH", "", {"name": "other"}),
        ("PATCH", "", {"payload": HUGE}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/runNow", {"payload": HUGE}),
        ("POST", "/runNow", None),
    ):
        assert api.call(method, f"/jobs/{job}{target}", value).status < 300, (method, target)
    world.run(MINUTE)
    ended = next(run for run in runs_of(api, job) if run["end_time"])
    assert api.post(f"/jobs/{job}/runs/{ended['run_id']}/retry").status < 300
    times = {"start": "2026-03-02T12:00:00Z", "end": "2026-03-02T12:02:00Z"}
    assert api.post(f"/jobs/{job}/backfill", times).status < 500
    later = submit_job(api, schedule_type="FUTURE", schedule_time="2026-03-03T12:00:00Z")
    world.run(5 * SECOND)
    for step in ("pause", "resume"):  # the pair does not change the counts
        assert api.post(f"/jobs/{later}/{step}").status == 200
    world.run(5 * SECOND)
    assert api.call("DELETE", f"/jobs/{later}").status == 200
    world.run(MINUTE)


def _switch_dispatch(world: World) -> None:
    world.put_dispatch("off")
    world.run(2 * MINUTE)
    world.put_dispatch("on")
    world.run(2 * MINUTE)


def _crash_executors(world: World, api: Gateway) -> None:
    """Kill executors after a claim, and after their output was packed."""
    for operation in ("UpdateItem", "PutObject"):
        hit = interrupted_work.call_of(world, "executor-quick", operation, answered=True)
        at = (world.clock() + 30 * SECOND).isoformat()
        with interrupted_work.inject_fault(world, hit, interrupted_work.OUT_OF_MEMORY):
            jobs = [
                submit_job(api, schedule_type="FUTURE", schedule_time=at, payload=PAYLOAD)
                for _ in range(9)
            ]
            world.run(7 * MINUTE)
        assert {run["status"] for job in jobs for run in runs_of(api, job)} == {"SUCCESS"}


def _put_poison_record(world: World) -> None:
    """Put a record that cannot be read."""
    (stream,) = world.streams.values()
    key = keys.state_key("default", "poison")
    row = {**key.item(), keys.STATUS_ATTR: {"S": "NONE"}, **keys.ROW_LAYOUT_ATTRIBUTE}
    stream.append(WrittenRow(world.table(keys.JOBS_TABLE), key, None, row), world.clock())
    world.run(5 * MINUTE)


def _raise_shard_count(world: World) -> None:
    """Raise the number of shards. The planner stores the new number."""
    world.put_knob("shards", "2")
    world.run(2 * MINUTE)


def _expire_jobs(world: World) -> None:
    """Expire jobs by TTL a month after their end. The status function deletes their data."""
    world.run(MINUTE)
    world.ticks = False
    world.clock.advance(timedelta(days=40))
    assert world.expire(keys.JOBS_TABLE)
    world.run(5 * SECOND)
