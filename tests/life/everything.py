"""A life with everything in it that a deployment does, once: for the rights that this takes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bench.meter import Written
from punctual.aws import keys
from tests.life.faults import Killed, Moment, Refusal
from tests.life.gateway import Gateway
from tests.life.scenes import PAYLOAD, SMALL, opened, submitted
from tests.life.seen import runs_of
from tests.life.world import MINUTE, SECOND, World

EVENT = {"type": "event", "detail_type": "Paid"}
MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
HUGE = {"order": 1, "text": "x" * 90_000}


def lived(world: World) -> None:
    api = opened(world)
    world.run(MINUTE)
    jobs = _all_tasks(world, api)
    world.run(2 * MINUTE)
    _read_it_all(api, jobs)
    _changed(world, api, jobs[0])
    _tokens(world, api)
    for job in jobs:
        api.call("DELETE", f"/jobs/{job}")
    _stopped_and_started(world)
    _died(world, api)
    _long(world, api)
    _poisoned(world, api)
    world.tick("reconciler")
    world.run(3 * MINUTE)
    _grown(world)
    _expired(world)


def _tokens(world: World, api: Gateway) -> None:
    made = api.post("/tokens", {"name": "ci", "role": "viewer", "tenant": "acme"}).json
    theirs = Gateway(world, made["token"])
    assert theirs.get("/whoami").json["token_id"] == made["token_id"]
    assert theirs.post("/jobs", SMALL).status == 403
    mine = api.post("/tokens", {"name": "mine", "role": "admin"}).json["token_id"]
    assert api.get("/tokens").json["tokens"][0]["token_id"] == mine
    assert api.call("DELETE", f"/tokens/{mine}").json["revoked_at"]


def _all_tasks(world: World, api: Gateway) -> list[str]:
    secrets = world.session.client("secretsmanager")
    secrets.create_secret(Name=f"punctual/{world.stage}/default/name", SecretString="Paid")
    world.session.client("ssm").put_parameter(
        Name=f"/punctual/{world.stage}/secrets/default/other", Value="Paid", Type="SecureString"
    )
    queue = "https://sqs.us-east-1.amazonaws.com/123456789012/task-inbox"
    world.add_queue(queue)
    tasks: list[dict[str, Any]] = [
        EVENT,
        {"type": "lambda", "function": "task-work"},
        {"type": "sqs", "queue_url": queue},
        {"type": "http", "url": "https://192.0.2.1/"},
        {"type": "event", "detail_type": "{{secret:name}}"},
        {"type": "event", "detail_type": "{{secret:other}}"},
    ]
    jobs = [submitted(api, **MINUTELY, task=task, retry={"backoff_seconds": 1}) for task in tasks]
    work = {"type": "lambda", "function": "task-work"}
    world.work = lambda payload: payload
    large = submitted(api, schedule_type="IMMEDIATE", task=work, payload=HUGE)
    alone = submitted(api, schedule_type="IMMEDIATE", task=work, payload=PAYLOAD)
    hook = [{"on": ["SUCCESS"], "url": "https://192.0.2.1/"}]
    submitted(api, schedule_type="IMMEDIATE", task=EVENT, notify=hook)
    batch = {"jobs": [{"name": "n", "schedule_type": "IMMEDIATE", "task": EVENT}] * 3}
    assert api.post("/jobs/batch", batch).status < 300
    key = {"idempotency_key": "one"}
    asked = {"name": "n", "schedule_type": "IMMEDIATE", "task": EVENT}
    assert {api.call("POST", "/jobs", asked, key).status for _ in range(2)} <= {200, 202}
    return [*jobs, large, alone]


def _read_it_all(api: Gateway, jobs: list[str]) -> None:
    for target in ("/audit", "/jobs", "/runs", "/stats", "/health", "/schedules/upcoming"):
        assert api.get(target).status == 200, target
    preview = {"schedule_type": "CRON", "cron_expression": "0 9 * * *"}
    assert api.post("/schedules/preview", preview).status == 200
    for job in jobs:
        for target in ("", "/status", "/explain?at=2026-03-02T12:01:00Z", "/runs"):
            assert api.get(f"/jobs/{job}{target}").status == 200, target
        for run in runs_of(api, job)[:2]:
            for target in ("", "/output", "/logs"):
                status = api.get(f"/jobs/{job}/runs/{run['run_id']}{target}").status
                assert status in (200, 302, 307, 404), (target, status)
    assert api.get("/jobs/no-such-job").status == 404
    assert api.get("/webhook-secret").json["secret"].startswith("whsec_")


def _changed(world: World, api: Gateway, job: str) -> None:
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
    later = submitted(api, schedule_type="FUTURE", schedule_time="2026-03-03T12:00:00Z")
    assert api.call("DELETE", f"/jobs/{later}").status == 200
    world.run(MINUTE)


def _stopped_and_started(world: World) -> None:
    world.put_dispatch("off")
    world.run(2 * MINUTE)
    world.put_dispatch("on")
    world.run(2 * MINUTE)


def _once(world: World, hit: Callable[[Moment], bool], blow: Refusal | BaseException) -> None:
    struck: list[Moment] = []

    def plan(moment: Moment) -> Refusal | BaseException | None:
        if struck or not hit(moment):
            return None
        struck.append(moment)
        return blow

    world.faults.plan = plan


def _died(world: World, api: Gateway) -> None:
    """After its claim, and after its output was packed."""
    for operation in ("UpdateItem", "PutObject"):
        _once(
            world,
            lambda moment, operation=operation: (  # type: ignore[misc]
                moment.answered
                and moment.operation == operation
                and moment.role == world.name("executor-quick")
            ),
            Killed("out of memory"),
        )
        at = (world.clock() + 30 * SECOND).isoformat()
        for _ in range(9):
            submitted(api, schedule_type="FUTURE", schedule_time=at, payload=PAYLOAD)
        world.run(7 * MINUTE)
    world.faults.plan = None


def _long(world: World, api: Gateway) -> None:
    """In the lane of what takes long, whose claims are renewed."""
    long = {"schedule_type": "IMMEDIATE", "timeout_seconds": 900}
    work = {"type": "lambda", "function": "task-work"}
    at = (world.clock() + 20 * SECOND).isoformat()
    jobs = [
        submitted(api, **long, task=EVENT, payload=SMALL),
        submitted(api, **long, task=work, payload=HUGE),
        submitted(api, **{**long, "schedule_type": "FUTURE"}, schedule_time=at, task=EVENT),
    ]
    world.run(MINUTE)
    assert [runs_of(api, job)[0]["status"] for job in jobs] == ["SUCCESS"] * 3


def _poisoned(world: World, api: Gateway) -> None:
    """A message that is given up, a wake-up and a record that nobody can read."""
    for short in ("quick.fifo", "long.fifo"):
        source, name = world.queue(short), world.name(f"executor-{short.split('.')[0]}")
        source.most = 1
        world.faults.plan = lambda moment, name=name: (
            Killed("out of memory") if moment.role == name else None
        )
        timeout = 900 if short.startswith("long") else 60
        submitted(api, schedule_type="IMMEDIATE", task=EVENT, timeout_seconds=timeout)
        world.run(source.visibility + 7 * MINUTE)
        source.most = 50
    world.faults.plan = None
    (stream,) = world.streams.values()
    key = keys.head("default", "poison")
    row = {**key.item(), keys.STATE: {"S": "NONE"}, keys.FORMAT: {"N": "1"}}
    stream.append(Written(world.table(keys.JOBS), key, None, row), world.clock())
    world.run(5 * MINUTE)


def _grown(world: World) -> None:
    """More shards, which the planner writes down for all."""
    world.put_knob("shards", "2")
    world.run(2 * MINUTE)


def _expired(world: World) -> None:
    """A month after their end DynamoDB forgets jobs, and `status` what belonged to them."""
    world.run(MINUTE)
    world.ticks = False
    world.clock.advance(timedelta(days=40))
    assert world.expire(keys.JOBS)
    world.run(5 * SECOND)
