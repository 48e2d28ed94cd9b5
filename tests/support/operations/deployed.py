"""Operations of a deployment: each action, a lost message, a failed slice, a row left behind."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.lists.operation_rows import RUNNING_OPERATIONS_PARTITION, to_running_row
from punctual.aws.dynamodb.lists.operations import MAX_CREATION_TIME
from punctual.domain.operations.operation import OPERATION_RETENTION, Operation, OperationAction
from tests.support.builders import an_id
from tests.support.deployed.faults import Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import (
    call_of,
    inject_fault,
    queue_fields,
    without_executors,
)
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

TAG = {"tag": ["team:data"]}
HOURLY = {"schedule_type": "CRON", "cron_expression": "30 * * * *"}
LARGE_PAYLOAD = {"text": "x" * 90_000}


class Operations:
    """The operations of one tenant, over the API."""

    def __init__(self, world: World, api: Gateway) -> None:
        self._world = world
        self.api = api

    def submit_jobs(self, count: int, **fields: Any) -> list[str]:
        """Submit jobs with the tag, and wait until the list of jobs shows them."""
        task = {"type": "event", "detail_type": "Paid"}
        tagged = {**HOURLY, "tags": {"team": "data"}, "task": task, **fields}
        jobs = [submit_job(self.api, **tagged) for _ in range(count)]
        self._world.run(5 * SECOND)
        return jobs

    def preview(self, action: str, filter_json: Mapping[str, Any]) -> int:
        body = {"action": action, "filter": filter_json, "dry_run": True}
        return int(self.api.post("/jobs/bulk", body).json["matched"])

    def begin(
        self, action: str, filter_json: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        """Begin an operation, without time for its first slice."""
        body = {"action": action, "filter": TAG if filter_json is None else filter_json, **fields}
        answer = self.api.post("/jobs/bulk", body)
        assert answer.status == 202, answer
        return str(answer.json["operation_id"])

    def carry_out(
        self, action: str, filter_json: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        operation = self.begin(action, filter_json, **fields)
        self._world.run(5 * SECOND)
        return operation

    def cancel(self, operation: str) -> str:
        return str(self.api.post(f"/operations/{operation}/cancel").json["status"])

    def progress(self, operation: str) -> tuple[str, int, int]:
        """Return the status, and how many jobs or runs were acted on, and were not."""
        found = self.api.get(f"/operations/{operation}").json
        return found["status"], found["done"], found["failed"]


def play_operations(world: World, api: Gateway) -> None:
    operations = Operations(world, api)
    for fields in queue_fields(world):  # their runs go through each queue
        operations.submit_jobs(1, **fields)
    failing = {"tags": {"team": "web"}, "task": {"type": "http", "url": "https://192.0.2.1/"}}
    operations.submit_jobs(1, **failing, cron_expression="* * * * *", max_retries=0)
    web, failed = {"tag": ["team:web"]}, {"tag": ["team:web"], "status": ["FAILED"]}
    assert operations.preview("pause", TAG) == len(queue_fields(world))
    done = [
        operations.carry_out("run_now", web, payload=LARGE_PAYLOAD),
        operations.carry_out("pause", web),
        operations.carry_out("resume", web),  # the next run is due within a minute
        operations.carry_out("retry", failed),  # with the payload of the failed run
    ]
    throttled = call_of(world, "operations", "UpdateItem", answered=False)
    with inject_fault(world, throttled, Refusal("ThrottlingException"), times=20):
        paused = operations.begin("pause")
        world.run(2 * SECOND)
    world.run(MINUTE)
    done.append(paused)
    done.append(operations.begin("resume", {"paused_by": paused}))
    world.queue("operations").messages.clear()
    world.run(4 * MINUTE)
    stopped = operations.begin("cancel")
    assert operations.cancel(stopped) == "CANCELLED"
    world.run(5 * SECOND)
    with without_executors(world):
        done.append(operations.carry_out("run_now"))
        done.append(operations.carry_out("cancel"))
    done.append(operations.carry_out("cancel", web))
    assert [operations.progress(operation)[::2] for operation in done] == [("DONE", 0)] * len(done)
    assert operations.progress(stopped) == ("CANCELLED", 0, 0)
    assert api.get("/operations").json["operations"][0]["operation_id"] == done[-1]
    _leave_running_row(world)
    world.run(2 * MINUTE)
    assert running_rows(world) == []


def running_rows(world: World) -> list[dict[str, Any]]:
    rows = world.rows(keys.JOBS_TABLE)
    return [row for row in rows if row[keys.PK]["S"] == RUNNING_OPERATIONS_PARTITION]


def _leave_running_row(world: World) -> None:
    """Put the row of a request that crashed before it stored its operation."""
    begun_at = world.clock() - MAX_CREATION_TIME - timedelta(minutes=1)
    operation = Operation(
        *("default", an_id(1), OperationAction.PAUSE, TAG, 1, begun_at),
        expires_at=begun_at + OPERATION_RETENTION,
    )
    row = to_running_row(operation, "never-stored", begun_at)
    world.bare.put_item(TableName=world.table(keys.JOBS_TABLE), Item=row)
