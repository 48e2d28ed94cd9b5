"""A deployment in one process: the stacks in moto, the real handlers, SQS and time by hand."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import Any
from unittest import mock

import boto3
from botocore.response import StreamingBody
from moto import mock_aws

from bench.meter import Call, Meter, Unit, Written, keys_of
from punctual.aws import keys
from punctual.aws.calls import Patience
from punctual.aws.clients import Clients
from punctual.aws.crew import Crew
from punctual.domain.placement import sortable_id
from punctual.local.clock import ManualClock
from punctual.serverless.runtime import Runtime
from punctual.serverless.telling import PowertoolsTelling
from punctual.settings import Settings
from tests.builders import NOON
from tests.life.actors import Actor, Actors
from tests.life.deployed import REGION, Deployed, Rule, Source, deploy
from tests.life.faults import Faults
from tests.life.functions import Environment
from tests.life.sqs import Answer, Letter, Queue, Sqs, record
from tests.life.stream import Stream, is_expired_row
from tests.life.template import Stack, synthesised

SERVICES = ("dynamodb", "sqs", "s3", "events", "ssm", "awslambda", "secretsmanager")
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class World:
    def __init__(
        self, session: Any, stacks: Sequence[Stack], stage: str, now: datetime, tick_second: int
    ) -> None:
        self.stage = stage
        self.stacks = stacks
        self.clock = ManualClock(now)
        self.session = session
        self.bare = session.client("dynamodb")
        self.deployed: Deployed = deploy(session, stacks)
        self.sqs = Sqs(self.clock, self.deployed.queues)
        self.meter = Meter(self.bare)
        self.actors = Actors(self.clock, self.meter)
        self.faults = Faults(lambda: self.meter.role)
        self.clients = Clients(session)
        self.environments: dict[str, list[Environment]] = {
            name: [] for name in self.deployed.functions
        }
        self._born: list[Environment] = []
        self.streams = {arn: Stream(arn) for arn in self.deployed.streams}
        self.failures: list[tuple[str, BaseException]] = []
        self.work: Callable[[Any], Any] = lambda payload: {"did": payload["order"]}
        self._numbers = count(1)
        self._streamed = 0
        self.ticks = True
        self.throttled: set[str] = set()  # functions of which Lambda starts none
        self.tick_at = now.replace(second=tick_second, microsecond=0)
        for service in SERVICES:
            client = getattr(self.clients, service)
            self.faults.watch(client)
            self.meter.watch(client)
            if service == "sqs":
                self.sqs.answer(client)
            if service == "awslambda":
                client.meta.events.register_last("before-call.lambda.Invoke", self._worked)

    # What stands in for the outside of a function

    def runtime(self, service: str, env: Mapping[str, str]) -> Runtime:
        settings = Settings.from_env(env)
        return Runtime(
            settings,
            PowertoolsTelling(service, settings.stage, settings.metrics),
            clients=self.clients,
            clock=self.clock,
            steady=self.clock.monotonic,
            make_id=self.new_id,
            pause=self.actors.pause,
            crew=Crew(1),
            patience=Patience(self.actors.pause, seed="test"),
        )

    def new_id(self) -> str:
        return sortable_id(self.clock(), (next(self._numbers) << 6).to_bytes(10, "big"))

    def put_token(self, token: str) -> None:
        """What `make deploy` does once the stacks stand."""
        self.put_knob("token-hash", hashlib.sha256(token.encode()).hexdigest())

    def put_dispatch(self, value: str) -> None:
        """What an operator does to stop everything, or to go on."""
        self.put_knob("dispatch", value)

    def put_knob(self, name: str, value: str) -> None:
        self.session.client("ssm").put_parameter(
            Name=f"/punctual/{self.stage}/{name}", Value=value, Type="String", Overwrite=True
        )

    def client(self, service: str) -> Any:
        return getattr(self.clients, "awslambda" if service == "lambda" else service)

    def _worked(self, params: Mapping[str, Any], **_: Any) -> Any:
        """The function that a job of type `lambda` invokes is `work`, whatever its name."""
        answer = json.dumps(self.work(json.loads(params["body"] or b"null"))).encode()
        body = StreamingBody(io.BytesIO(answer), len(answer))
        return Answer(200), {"StatusCode": 200, "Payload": body}

    # Events

    def name(self, short: str) -> str:
        return f"punctual-{self.stage}-{short}"

    def queue(self, short: str) -> Queue:
        return next(
            one for one in self.deployed.queues if one.name == f"punctual-{self.stage}-{short}"
        )

    def invoke(self, name: str, event: Any) -> Any:
        """Call a function and wait for its answer; None where it died or failed."""
        actor = self._start(name, event, lambda _: None)
        while not actor.over:
            self._until(actor.wake_at or self.clock.now)
        return actor.answer

    def _start(self, name: str, event: Any, done: Callable[[Actor], None]) -> Actor:
        environment = self._free(name)
        self.meter.spend(name, Unit.REQUEST, name)
        logged = len(environment.log)

        def over(actor: Actor) -> None:
            if isinstance(actor.error, (AssertionError, KeyboardInterrupt)):
                raise actor.error
            if actor.error is not None:
                environment.die()
                self.failures.append((name, actor.error))
            waited = (self.clock.now - actor.began).total_seconds()
            if waited:
                gigabytes = environment.function.memory / 1024
                self.meter.spend(name, Unit.GB_SECOND, "waiting", gigabytes * waited)
            size = sum(len(line.encode()) + 1 for line in environment.log[logged:])
            self.meter.spend(name, Unit.LOG_BYTE, name, size)
            self._logs(name)
            done(actor)

        return self.actors.begin(environment, event, over)

    def deploy_again(self) -> None:
        """No environment outlives a deploy: those at work end what they began, others are new."""
        for name, pool in self.environments.items():
            self.environments[name] = [one for one in pool if one.busy]

    def _free(self, name: str) -> Environment:
        """A warm environment that nothing runs in, or a new one: Lambda shares none."""
        pool = self.environments[name]
        found = next((one for one in pool if not one.busy), None)
        if found is None:
            found = Environment(self.deployed.functions[name])
            pool.append(found)
            self._born.append(found)
        return found

    def _logs(self, name: str) -> None:
        for operation in ("CreateLogStream", "PutLogEvents"):
            params = {"logGroupName": f"/aws/lambda/{name}"}
            self.meter.add(Call(name, "logs", operation, params, {}))

    def rules(self, target: str) -> list[Rule]:
        return [
            rule
            for rule in self.deployed.rules
            if any(one["Arn"].endswith(f":{target}") for one in rule.targets)
        ]

    def tick(self, short: str = "planner") -> None:
        """The rule of a scheduled function fires; what failed is tried again as the rule says."""
        name = self.name(short)
        if name in self.throttled:
            return  # EventBridge tries for a minute, and by then the next tick is due
        (rule,) = self.rules(name)
        (target,) = [one for one in rule.targets if one["Arn"].endswith(f":{name}")]
        event = json.loads(target["Input"]) if "Input" in target else self._scheduled(rule)
        tries = [target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 2)]

        def done(actor: Actor) -> None:
            if actor.error is not None and tries[0]:
                tries[0] -= 1
                self._start(name, event, done)

        self._start(name, event, done)

    def _scheduled(self, rule: Rule) -> dict[str, Any]:
        return {
            "version": "0",
            "id": self.new_id(),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": "123456789012",
            "time": self.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [f"arn:aws:events:{REGION}:123456789012:rule/{rule.name}"],
            "detail": {},
        }

    # Moving what waits

    def pump(self) -> None:
        """Hand out all that can be handed out now."""
        while self.actors.wake() + self._pump_queues() + self._pump_streams():
            pass

    def _pump_queues(self) -> int:
        moved = 0
        for queue in self.deployed.queues:
            source = self.deployed.fed_by(queue.arn)
            if source is None:
                continue
            letters = self.sqs.receive(queue, source.batch)
            if letters:
                moved += 1
                self.deliver(source, queue, letters)
        return moved

    def deliver(self, source: Source, queue: Queue, letters: Sequence[Letter]) -> None:
        """One batch to the function; what it does not report as failed is deleted."""
        self._polled(source.function, queue, "ReceiveMessage")
        if source.function in self.throttled:
            return  # Lambda does not start it: the messages come back when they are seen again
        event = {"Records": [record(queue, one, REGION) for one in letters]}
        receipts = {one.id: one.receipt for one in letters}

        def done(actor: Actor) -> None:
            if actor.error is not None:
                return
            again = _failed(actor.answer) if source.partial else []
            assert set(again) <= receipts.keys(), "only what was handed out can fail"
            gone = [one for one in letters if one.id not in again]
            if gone:
                self._polled(source.function, queue, "DeleteMessageBatch")
                held = [one for one in gone if one.receipt == receipts[one.id]]
                self.sqs.delete(queue, held)

        self._start(source.function, event, done)

    def _polled(self, function: str, queue: Queue, operation: str) -> None:
        """Lambda's poller works with the function's rights, and on the account's bill."""
        unit = Unit.FIFO if queue.fifo else Unit.SQS
        params = {"QueueUrl": queue.url}
        units = {(unit, f"{queue.name}: {operation}"): 1.0}
        self.meter.add(Call(function, "sqs", operation, params, units))

    def _pump_streams(self) -> int:
        self._gather()
        return sum(self._hand_out(self.deployed.fed_by(arn), arn) for arn in self.streams)

    def _gather(self) -> None:
        """What was written since goes into the streams."""
        tables = {table: arn for arn, table in self.deployed.streams.items()}
        for call in self.meter.calls[self._streamed :]:
            for one in call.writes:
                if one.table in tables:
                    self.streams[tables[one.table]].append(one, self.clock())
        self._streamed = len(self.meter.calls)

    def _stream_at(self) -> datetime | None:
        """When the first batch that is gathered now is handed out."""
        sources = [(stream, self.deployed.fed_by(arn)) for arn, stream in self.streams.items()]
        moments = [
            stream.due_at(source)
            for stream, source in sources
            if source and stream.records and not stream.busy
            if source.function not in self.throttled
        ]
        return min(moments, default=None)

    def _hand_out(self, source: Source | None, arn: str) -> int:
        """One batch at a time, for its records are in order."""
        stream = self.streams[arn]
        if source is None:
            stream.done(len(stream.records))
            return 0
        held = stream.busy or source.function in self.throttled
        batch = [] if held else stream.batch(source)
        if not batch or stream.due_at(source) > self.clock():
            return 0
        for operation in ("DescribeStream", "GetShardIterator", "GetRecords"):
            self.meter.add(Call(source.function, "dynamodb", operation, {"StreamArn": arn}, {}))
        stream.busy = True

        def done(actor: Actor) -> None:
            stream.busy = False
            wrong = _failed(actor.answer) if source.partial and actor.error is None else []
            if actor.error is None and not wrong:
                stream.done(len(batch))
                return
            numbers = [one["dynamodb"]["SequenceNumber"] for one in batch]
            handled = min(numbers.index(one) for one in wrong) if wrong else 0
            given_up = stream.failed(source, len(batch), handled)
            if given_up:
                self._give_up(source, given_up)

        self._start(source.function, {"Records": batch}, done)
        return 1

    def _give_up(self, source: Source, records: Sequence[Mapping[str, Any]]) -> None:
        """Where they are, not what they are: that is all the on-failure queue is told."""
        queue = self.sqs.by_arn[source.failed_to]
        numbers = [one["dynamodb"]["SequenceNumber"] for one in records]
        body = {
            "requestContext": {
                "functionArn": source.function,
                "condition": "RetryAttemptsExhausted",
            },
            "DDBStreamBatchInfo": {
                "startSequenceNumber": numbers[0],
                "endSequenceNumber": numbers[-1],
                "batchSize": len(numbers),
                "streamArn": source.arn,
            },
        }
        params = {"QueueUrl": queue.url, "MessageBody": json.dumps(body)}
        self.meter.add(Call(source.function, "sqs", "SendMessage", params, {}))
        self.sqs.send(queue, params)

    # Time

    def run(self, for_: timedelta) -> None:
        """Let time go by: a tick each minute, and whatever comes due handed out at its moment."""
        self._until(self.clock.now + for_)

    def _until(self, end: datetime) -> None:
        while True:
            if self.ticks and self.tick_at <= self.clock.now:
                self.tick_at = self._minute(self.tick_at)
                self.tick()
            self.pump()
            if self.clock.now >= end:
                return
            later = (
                self.tick_at if self.ticks else None,
                self.sqs.next_at(self.clock.now),
                self._stream_at(),
                self.actors.next_at(),
            )
            self.clock.set(min([end, *(at for at in later if at is not None)]))

    def _minute(self, last: datetime) -> datetime:
        """The next tick: those of an outage do not come all at once."""
        return last + MINUTE * ((self.clock.now - last) // MINUTE + 1)

    def expire(self, table: keys.Table) -> int:
        """What DynamoDB's TTL removes, and tells in the stream as its own doing."""
        name = self.table(table)
        arn = next(arn for arn, streamed in self.deployed.streams.items() if streamed == name)
        rows = [row for row in self.rows(table) if is_expired_row(row, self.clock())]
        for row in rows:
            key = keys_of(row)
            self.bare.delete_item(TableName=name, Key=key.item())
            self.streams[arn].append(Written(name, key, row, None), self.clock(), by_expiry=True)
        return len(rows)

    def add_queue(self, url: str) -> None:
        """A queue of somebody else's, for tasks to send to."""
        arn = f"arn:aws:sqs:{REGION}:123456789012:{url.rsplit('/', 1)[-1]}"
        self.sqs.add(Queue(url.rsplit("/", 1)[-1], url, arn, MINUTE / 2, timedelta(days=4)))

    # What there is to see

    def table(self, table: keys.Table) -> str:
        """Its physical name."""
        names: list[str] = self.bare.list_tables()["TableNames"]
        return next(name for name in names if table.name in name.lower())

    def rows(self, table: keys.Table) -> list[dict[str, Any]]:
        pages = self.bare.get_paginator("scan").paginate(TableName=self.table(table))
        return [dict(row) for page in pages for row in page["Items"]]

    def ended(self) -> list[dict[str, Any]]:
        """The lines of history: one a run that ended."""
        return [row for row in self.rows(keys.HISTORY) if row[keys.SK]["S"].startswith("run#")]

    def published(self) -> list[Mapping[str, Any]]:
        """All that was put on the bus, in order."""
        return [
            entry
            for call in self.meter.calls
            if call.operation == "PutEvents" and not call.error
            for entry in call.params["Entries"]
        ]

    def told(self) -> list[dict[str, Any]]:
        """What the functions logged."""
        lines = [line for one in self._born for line in one.log]
        return [json.loads(line) for line in lines if line.startswith("{")]


@cache
def _session() -> Any:
    return boto3.Session(region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")


@contextmanager
def a_world(stage: str = "dev", now: datetime = NOON, tick_second: int = 23) -> Iterator[World]:
    """`tick_second`: EventBridge counts a minute's rate from whenever the rule was made."""
    stacks = synthesised(stage)
    with mock_aws():
        world = World(_session(), stacks, stage, now, tick_second)
        with (
            mock.patch.object(
                Runtime, "from_env", lambda service: world.runtime(service, os.environ)
            ),
            # Who asks for nothing but a client gets one that is watched, too.
            mock.patch.object(Clients, "_client", lambda _, service: world.client(service)),
        ):
            try:
                yield world
            finally:
                world.actors.close()


def _failed(answer: Any) -> list[str]:
    return [one["itemIdentifier"] for one in (answer or {}).get("batchItemFailures", [])]
