"""The handler modules as Lambda loads them, with real tasks, threads and events."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from punctual.domain.run import Reason, RunStatus
from punctual.lambdas.runtime import Runtime
from punctual.tasks.reach import AllowedTargets, encode_targets
from tests.support.aws.moto_faults import refused
from tests.support.builders import after
from tests.support.deployed.drivers.executors import Executors, InvocationContext, executors

ROOT = Path(__file__).parents[4]
OTHERS = "https://sqs.us-east-1.amazonaws.com/123456789012"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executors]:
    with executors() as world:
        monkeypatch.setattr(Runtime, "from_env", lambda _service: world.new_runtime())
        monkeypatch.setenv("PUNCTUAL_LANE", "quick")
        # The lane queues serve as dead-letter queues. Messages are equal in both.
        monkeypatch.setenv("PUNCTUAL_DEAD_LETTERS", " ".join(world.aws.settings.queues.values()))
        yield world


def function(name: str) -> ModuleType:
    path = ROOT / "functions" / name / "handler.py"
    spec = importlib.util.spec_from_file_location(f"handler_of_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def execute(world: Executors) -> dict[str, Any]:
    event = {"Records": world.records()}
    answer: dict[str, Any] = function("executor").handler(
        event, InvocationContext(world.clock, 330)
    )
    return answer


def test_executor_runs_every_task_type_in_one_batch(world: Executors) -> None:
    inbox = world.world.add_queue(f"{OTHERS}/orders")
    event = world.submit(payload={"n": 1})
    queue = world.submit(task={"type": "sqs", "queue_url": inbox.url}, payload={"n": 2})
    http = world.submit(task={"type": "http", "url": "http://169.254.169.254/latest/"})
    own = world.submit(task={"type": "lambda", "function": "punctual-dev-planner"})
    secret = world.submit(task={"type": "sqs", "queue_url": "{{secret:none}}"})
    assert execute(world) == {"batchItemFailures": []}
    assert world.status(event) is RunStatus.SUCCESS
    assert len(world.search.output(*event, world.run(event).run.run_id).data) == 36
    (sent,) = inbox.messages
    assert sent.body == '{"n":2}'
    output = world.search.output(*queue, world.run(queue).run.run_id)
    assert output.data == sent.id.encode()
    failed = {key: world.run(key) for key in (http, own, secret)}
    assert {view.run.status for view in failed.values()} == {RunStatus.FAILED}
    assert "may not be called" in failed[http].detail.error
    assert failed[own].detail.error == "The function is reserved for Punctual"
    assert failed[secret].detail.error == "There is no secret named 'none'"


def test_task_with_target_outside_tenant_allowlist_fails(world: Executors) -> None:
    """A job from before a change of the stage's allowlist fails at its run."""
    world.aws.settings = replace(
        world.aws.settings, reach=encode_targets(AllowedTargets({}, {"*": ["task-*"]}))
    )
    queues = [world.world.add_queue(f"{OTHERS}/{name}") for name in ("task-a", "orders")]
    tasks = [{"type": "sqs", "queue_url": queue.url} for queue in queues]
    allowed, refused = (world.submit(task=task) for task in tasks)
    invoked = world.submit(task={"type": "lambda", "function": "orders"})
    assert execute(world) == {"batchItemFailures": []}
    assert world.status(allowed) is RunStatus.SUCCESS
    for key in (refused, invoked):
        assert world.status(key) is RunStatus.FAILED
        assert "(tasksMayReach)" in world.run(key).detail.error
    assert [len(queue.messages) for queue in queues] == [1, 0]


def test_warm_executor_handles_several_batches(world: Executors) -> None:
    module = function("executor")
    for _ in range(3):
        key = world.submit()
        records = world.records()
        answer = module.handler({"Records": records}, InvocationContext(world.clock, 330))
        assert answer == {"batchItemFailures": []}
        assert world.status(key) is RunStatus.SUCCESS


def test_secret_reaches_task_and_no_row_or_log(world: Executors) -> None:
    world.aws.clients.secretsmanager.create_secret(
        Name="punctual/dev/acme/queue", SecretString="hidden-orders"
    )
    template = world.world.add_queue(f"{OTHERS}/hidden-orders").url.replace(
        "hidden-orders", "{{secret:queue}}"
    )
    good = world.submit(task={"type": "sqs", "queue_url": template})
    bad = world.submit(task={"type": "lambda", "function": "{{secret:queue}} {{secret:queue}}"})
    assert execute(world) == {"batchItemFailures": []}
    assert world.status(good) is RunStatus.SUCCESS
    assert world.status(bad) is RunStatus.FAILED
    rows = [row for table in ("jobs", "runs", "timers", "control") for row in world.aws.rows(table)]
    assert "hidden-orders" not in str(rows)
    assert "hidden-orders" not in str((world.telemetry.infos, world.telemetry.problems))


@pytest.mark.parametrize("service", ["ssm", "secretsmanager"])
def test_outage_of_a_secret_store_is_no_attempt_of_any_task_type(
    world: Executors, service: str
) -> None:
    text = "{{secret:queue}}"
    tasks: list[dict[str, Any]] = [
        {"type": "event", "detail_type": text},
        {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"X-Key": text}},
        {"type": "lambda", "function": text},
        {"type": "sqs", "queue_url": text},
        {"type": "script", "runtime": "bash", "code": ":", "env": {"KEY": text}},
    ]
    keys = [world.submit(task=task, delivery="AT_MOST_ONCE", max_retries=0) for task in tasks]
    operation = {"ssm": "GetParameter", "secretsmanager": "GetSecretValue"}[service]
    client = getattr(world.aws.clients, service)
    with refused(client, operation, 99, "InternalServiceError", 500):
        assert execute(world) == {"batchItemFailures": []}
    runs = [world.run(key).run for key in keys]
    assert {(run.status, run.reason, run.attempt) for run in runs} == {
        (RunStatus.WAITING, Reason.BACKOFF, 1)
    }
    world.clock.set(after(60))
    world.evaluate_due_timers()
    assert execute(world) == {"batchItemFailures": []}
    ended = {world.run(key).run.attempt for key in keys if world.run(key).run.ended_at is not None}
    assert ended == {1}, "the store answers again, so the same attempts end"


def test_dead_letters_handler_ends_run(world: Executors) -> None:
    key = world.submit()
    tick = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}
    assert function("dead_letters").handler(tick, InvocationContext(world.clock, 240)) is None
    assert world.run(key).run.reason is Reason.POISON
    assert world.records() == []


@pytest.mark.parametrize(
    "module", ["executor.handler", "executor.task_runners", "dead_letters.handler"]
)
def test_executor_modules_import_no_heavy_modules(module: str) -> None:
    heavy = ("boto3", "httpx", "httpcore", "pydantic", "punctual.web")
    code = (
        f"import sys, punctual.lambdas.{module}; "
        f"print([one for one in {heavy!r} if one in sys.modules])"
    )
    path = str(ROOT / "layers" / "core" / "python")
    process = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, check=True
    )
    assert process.stdout == b"[]\n"
