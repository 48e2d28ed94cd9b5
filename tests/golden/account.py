"""Writes what a deployment has in store in the middle of its work: python -m tests.golden.account

All rows, objects, messages and changes not yet followed, as this version lays them out. A version
that lays something out anew writes an account of its own beside the former ones.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Set
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.sqs import run_queue as queue
from punctual.aws.sqs import wakeups
from tests.builders import NOON
from tests.life.faults import Killed, Moment, Plan, Refusal
from tests.life.gateway import Gateway
from tests.life.scenes import opened, submitted
from tests.life.stream import plain
from tests.life.world import MINUTE, SECOND, World, a_world

FOLDER = Path(__file__).parent
NAMES = "account_layout_*.json"
QUEUES = ("quick.fifo", "long.fifo", "wake")
LEFT_AT = NOON + 6 * MINUTE
EVENT = {"type": "event", "detail_type": "Paid"}
WORK = {"type": "lambda", "function": "task-work"}
LARGE = {"order": 1, "text": "x" * 9_000}
NEVER_SOON = {"schedule_type": "CRON", "cron_expression": "0 0 29 2 *"}
LINE = 12
TOGETHER = 3
ENDED = ("ended", "ending")  # by the executor that died: one after its swap, one before


# By what reads it: the newest layout of it. Each number is given once.
LAYOUTS = {
    "rows": keys.LAYOUT,
    "timers that share a row": keys.SHARED_TIMERS,
    "ends that share a row": keys.SHARED_ENDS,
    "messages": queue.LAYOUT,
    "wake-ups": wakeups.LAYOUT,
}


def at(seconds: float) -> str:
    return (LEFT_AT + timedelta(seconds=seconds)).isoformat()


def begun(world: World, api: Gateway) -> dict[str, str]:
    """Jobs that have been for a while, by what is told of them."""
    world.work = lambda payload: {"did": payload["order"]}
    once = {"schedule_type": "FUTURE", "task": EVENT}
    minutely = {"schedule_type": "CRON", "cron_expression": "* * * * *", "task": EVENT}
    jobs = {
        "minutely": submitted(api, **minutely),
        **{f"together {n}": submitted(api, **minutely) for n in range(TOGETHER)},
        **{name: submitted(api, **{**once, "task": WORK}, schedule_time=at(-75)) for name in ENDED},
        "interval": submitted(api, schedule_type="INTERVAL", interval_seconds=150, task=EVENT),
        "soon": submitted(api, **once, schedule_time=at(40)),
        "queued": submitted(api, **once, schedule_time=at(-5)),
        "claimed": submitted(api, **once, schedule_time=at(-30)),
        "long": submitted(api, **once, schedule_time=at(45), timeout_seconds=900),
        "large": submitted(api, **{**once, "task": WORK}, schedule_time=at(50), payload=LARGE),
        "paused": submitted(api, **NEVER_SOON, task=EVENT),
        "cancelled": submitted(api, **once, schedule_time=at(3600)),
        "done": submitted(api, schedule_type="IMMEDIATE", task=WORK),
        "in line": submitted(api, **NEVER_SOON, task=EVENT, max_concurrency=1, max_waiting=100),
        "retried": submitted(
            api,
            schedule_type="FUTURE",
            schedule_time=at(-60),
            task=WORK,
            max_retries=3,
            retry={"backoff_seconds": 150},
        ),
    }
    world.run(MINUTE)
    assert api.post(f"/jobs/{jobs['paused']}/pause").status == 200
    assert api.call("DELETE", f"/jobs/{jobs['cancelled']}").status == 200
    return jobs


def dies_ending(world: World, jobs: Set[str]) -> Plan:
    """Right after the swap that ends the first of them; each is claimed by a swap before."""
    swaps = count()

    def dies(moment: Moment) -> BaseException | None:
        swap = moment.role == world.name("executor-quick") and moment.operation == "UpdateItem"
        mine = swap and moment.answered and moment.row in jobs
        return Killed("redeployed") if mine and next(swaps) == len(jobs) else None

    return dies


def left(world: World) -> dict[str, Any]:
    api = opened(world)
    jobs = begun(world, api)
    world.run(LEFT_AT - 80 * SECOND - world.clock())
    world.faults.plan = dies_ending(world, {jobs[name] for name in ENDED})
    world.run(15 * SECOND)

    def fails(moment: Moment) -> Refusal | BaseException | None:
        if moment.role != world.name("executor-quick"):
            return None
        if moment.operation == "Invoke" and not moment.answered:
            return Refusal("TooManyRequestsException", 429)
        claimed = moment.row == jobs["claimed"] and moment.answered
        return Killed("redeployed") if claimed else None

    world.faults.plan = fails
    world.run(45 * SECOND)
    world.faults.plan = None
    world.throttled |= {world.name("executor-quick"), world.name("status")}
    for _ in range(LINE):
        assert api.post(f"/jobs/{jobs['in line']}/runNow").status < 300
    world.run(LEFT_AT - world.clock())
    return {"at": LEFT_AT.isoformat(), "jobs": jobs, **_found(world)}


def _found(world: World) -> dict[str, Any]:
    s3, bucket = world.session.client("s3"), _bucket(world)
    names = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    blobs = {
        name: b64encode(s3.get_object(Bucket=bucket, Key=name)["Body"].read()).decode()
        for name in sorted(names)
    }
    (stream,) = world.streams.values()
    return {
        "tables": {
            table.name: sorted(map(plain, world.rows(table)), key=_place) for table in keys.TABLES
        },
        "blobs": blobs,
        "queues": {short: [one.body for one in world.queue(short).letters] for short in QUEUES},
        "stream": stream.records,
    }


def _bucket(world: World) -> str:
    executor = world.deployed.functions[world.name("executor-quick")]
    return executor.env["PUNCTUAL_BUCKET"]


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row[keys.PK]["S"], row[keys.SK]["S"]


def restored(world: World, account: Mapping[str, Any]) -> None:
    """Put into a new deployment what another has left."""
    for table in keys.TABLES:
        for row in account["tables"][table.name]:
            world.bare.put_item(TableName=world.table(table), Item=_binary(row))
    s3, bucket = world.session.client("s3"), _bucket(world)
    for name, data in account["blobs"].items():
        s3.put_object(Bucket=bucket, Key=name, Body=b64decode(data))
    for short, bodies in account["queues"].items():
        queue = world.queue(short)
        for number, body in enumerate(bodies):
            mark = f"former-{number}"
            fifo = {"MessageGroupId": mark, "MessageDeduplicationId": mark} if queue.fifo else {}
            world.sqs.send(queue, {"MessageBody": body, **fifo})
    (stream,) = world.streams.values()
    (reader,) = stream.readers
    reader.records = list(account["stream"])
    reader.since = [world.clock() for _ in reader.records]
    stream.numbered = 10**6


def _binary(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as boto3 takes it: bytes stand in the file as base64."""
    return {name: _value(value) for name, value in row.items()}


def _value(attribute: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, value),) = attribute.items()
    match kind:
        case "B":
            return {kind: b64decode(value)}
        case "L":
            return {kind: [_value(one) for one in value]}
        case "M":
            return {kind: _binary(value)}
    return {kind: value}


def written(value: Any, depth: int = 0) -> str:
    """JSON with a line for each row, object, message and change."""
    if depth < 3 and isinstance(value, dict) and keys.PK not in value and "eventID" not in value:
        some = (f"{json.dumps(name)}: {written(one, depth + 1)}" for name, one in value.items())
        return "{\n" + ",\n".join(some) + "\n}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(written(one, depth + 1) for one in value) + "\n]"
    return json.dumps(value, sort_keys=True)


def main() -> None:
    with a_world() as world:
        account = left(world)
    file = FOLDER / NAMES.replace("*", str(max(LAYOUTS.values())))
    file.write_text(written(account) + "\n")
    print(f"{file.name}: {file.stat().st_size / 1e3:,.0f} KB")


if __name__ == "__main__":
    main()
