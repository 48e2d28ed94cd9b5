"""A deployment in one process: the stacks in moto, the real handlers, SQS and time by hand."""

import hashlib
import io
import json
import os
import threading
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

from bench.meter import Call, Meter, Unit
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
from tests.life.deployed import REGION, Deployed, Rule, Source, deploy
from tests.life.faults import Faults
from tests.life.functions import Environment
from tests.life.sqs import Answer, Letter, Queue, Sqs, record
from tests.life.stream import Stream
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
        self.faults = Faults(lambda: self.meter.role)
        self.clients = Clients(session)
        self.environments: dict[str, list[Environment]] = {
            name: [Environment(function)] for name, function in self.deployed.functions.items()
        }
        self.streams = {arn: Stream(arn) for arn in self.deployed.streams}
        self.failures: list[tuple[str, BaseException]] = []
        self.work: Callable[[Any], Any] = lambda payload: {"did": payload["text"][:40]}
        self._numbers = count(1)
        self._streamed = 0
        self.ticks = True
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
            pause=self.pause,
            crew=Crew(1),
            patience=Patience(self.pause, seed="test", tries=3),
        )

    def new_id(self) -> str:
        return sortable_id(self.clock(), (next(self._numbers) << 6).to_bytes(10, "big"))

    def put_token(self, token: str) -> None:
        """What `make deploy` does once the stacks stand."""
        self.session.client("ssm").put_parameter(
            Name=f"/punctual/{self.stage}/token-hash",
            Value=hashlib.sha256(token.encode()).hexdigest(),
            Type="String",
            Overwrite=True,
        )

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
        """Call a function as AWS does; None where it died or failed."""
        environment = self._free(name)
        began = self.clock.now
        timeout = environment.function.timeout

        def left() -> float:
            return timeout - (self.clock.now - began).total_seconds()

        self.meter.spend(name, Unit.REQUEST, name)
        logged = len(environment.log)
        with self.meter.acting(name):
            try:
                return environment.call(event, left)
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, AssertionError)):
                    raise
                environment.die()
                self.failures.append((name, error))
                return None
            finally:
                assert left() >= 0, f"{name} took longer than its timeout"
                waited = timeout - left()
                if waited:
                    gigabytes = environment.function.memory / 1024
                    self.meter.spend(name, Unit.GB_SECOND, "waiting", gigabytes * waited)
                size = sum(len(line.encode()) + 1 for line in environment.log[logged:])
                self.meter.spend(name, Unit.LOG_BYTE, name, size)
                self._logs(name)

    def _free(self, name: str) -> Environment:
        """A warm environment that nothing runs in, or a new one: Lambda shares none."""
        pool = self.environments[name]
        found = next((one for one in pool if not one.busy), None)
        if found is None:
            found = Environment(self.deployed.functions[name])
            pool.append(found)
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

    def tick(self, short: str = "planner") -> Any:
        """The rule of a scheduled function fires; what failed is tried again as the rule says."""
        name = self.name(short)
        (rule,) = self.rules(name)
        (target,) = [one for one in rule.targets if one["Arn"].endswith(f":{name}")]
        event = json.loads(target["Input"]) if "Input" in target else self._scheduled(rule)
        for _ in range(1 + target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 2)):
            failed = len(self.failures)
            answer = self.invoke(name, event)
            if len(self.failures) == failed:
                return answer
        return None

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

    def pump(self) -> int:
        """Hand out all that can be handed out now; how many batches that were."""
        batches = 0
        while True:
            moved = self._pump_queues() + self._pump_streams()
            if not moved:
                return batches
            batches += moved

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
        event = {"Records": [record(queue, one, REGION) for one in letters]}
        failed = len(self.failures)
        answer = self.invoke(source.function, event)
        if len(self.failures) > failed:
            return
        again = (
            {one["itemIdentifier"] for one in (answer or {}).get("batchItemFailures", [])}
            if source.partial
            else set()
        )
        assert again <= {one.id for one in letters}, "only what was handed out can fail"
        done = [one for one in letters if one.id not in again]
        if done:
            self._polled(source.function, queue, "DeleteMessageBatch")
            self.sqs.delete(queue, done)

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
        moments = [stream.due_at(source) for stream, source in sources if source and stream.records]
        return min(moments, default=None)

    def _hand_out(self, source: Source | None, arn: str) -> int:
        stream = self.streams[arn]
        if source is None:
            stream.records.clear()
            return 0
        batch = stream.batch(source)
        if not batch or stream.due_at(source) > self.clock():
            return 0
        self.meter.add(Call(source.function, "dynamodb", "GetRecords", {"StreamArn": arn}, {}))
        failed = len(self.failures)
        answer = self.invoke(source.function, {"Records": batch})
        numbers = [one["dynamodb"]["SequenceNumber"] for one in batch]
        if len(self.failures) > failed:
            handled = 0
        else:
            wrong = [one["itemIdentifier"] for one in (answer or {}).get("batchItemFailures", [])]
            if not wrong or not source.partial:
                stream.done(len(batch))
                return 1
            handled = min(numbers.index(one) for one in wrong)
        given_up = stream.failed(source, len(batch), handled)
        if given_up:
            self._give_up(source, given_up)
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

    def pause(self, seconds: float) -> None:
        """A function waits, and the world goes on beside it."""
        until = self.clock.now + timedelta(seconds=seconds)
        if threading.current_thread() is threading.main_thread():
            self._until(until)
        else:
            self.clock.set(max(until, self.clock.now))

    def _until(self, end: datetime) -> None:
        while True:
            while self.ticks and self.tick_at <= self.clock.now:
                self.tick_at += MINUTE
                self.tick()
            self.pump()
            if self.clock.now >= end:
                return
            moments = [end, self.tick_at] if self.ticks else [end]
            later = (self.sqs.next_at(self.clock.now), self._stream_at())
            self.clock.set(min([*moments, *(at for at in later if at is not None)]))

    # What there is to see

    def rows(self, table: keys.Table) -> list[dict[str, Any]]:
        name = next(
            one for one in self.bare.list_tables()["TableNames"] if table.name in one.lower()
        )
        found: list[dict[str, Any]] = self.bare.scan(TableName=name)["Items"]
        return found

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
        lines = [line for pool in self.environments.values() for one in pool for line in one.log]
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
        with mock.patch.object(
            Runtime, "from_env", lambda service: world.runtime(service, os.environ)
        ):
            yield world
