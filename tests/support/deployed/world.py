"""A deployment in one process: stacks in moto, real handlers, manual SQS and time."""

import io
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import Any
from unittest import mock

import boto3
from botocore.response import StreamingBody
from moto import mock_aws

from bench.cost.meter import Call, Meter, Unit, WrittenRow, row_key
from punctual.auth.authenticator import admin_hash
from punctual.aws.clients import Clients
from punctual.aws.dynamodb import keys
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.lambdas.runtime import Runtime, cpu_share_of
from punctual.lambdas.ssm_secrets import decode_key
from punctual.lambdas.telemetry import PowertoolsTelemetry
from punctual.settings import Settings
from tests.support.builders import NOON, ManualClock
from tests.support.deployed.actors import Actor, Actors
from tests.support.deployed.clocks import Clock, every
from tests.support.deployed.deployed import ACCOUNT, REGION, Deployed, Rule, deploy
from tests.support.deployed.event_sources import EventSources
from tests.support.deployed.faults import Faults
from tests.support.deployed.functions import Environment
from tests.support.deployed.latency import NONE
from tests.support.deployed.privilege import denied
from tests.support.deployed.sqs import Answer, Queue, Sqs
from tests.support.deployed.stream import Stream, is_expired_row
from tests.support.deployed.template import Stack, synthesised

SCRIPT_FUNCTION_NAME = "-script-"  # in the names of the functions that run scripts
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OVER_TLS = {"aws:SecureTransport": "true"}
TASK_SERVICE = "ecs-tasks.amazonaws.com"


class Watched(Clients):
    """Clients with one Lambda client for all timeouts."""

    def lambda_client(self, _seconds: float) -> Any:
        return super().lambda_client(0)


class World(EventSources):
    def __init__(
        self, session: Any, stacks: Sequence[Stack], stage: str, now: datetime, tick_second: float
    ) -> None:
        super().__init__()
        self.stage = stage
        self.stacks = stacks
        self.clock = ManualClock(now)
        self.session = session
        self.bare = session.client("dynamodb")
        self.deployed: Deployed = deploy(session, stacks)
        self.latency = NONE
        self.sqs = Sqs(self.clock, self.deployed.queues, lambda: self.latency.delivery())
        self.meter = Meter(self.bare)
        self.actors = Actors(self.clock, self.meter)
        self.faults = Faults(lambda: self.meter.role)
        self.clients = Watched(session)
        self.environments: dict[str, list[Environment]] = {
            name: [] for name in self.deployed.functions
        }
        self._started: list[Environment] = []
        self.streams = {arn: Stream(arn) for arn in self.deployed.streams}
        self.failures: list[tuple[str, BaseException]] = []
        self.work: Callable[[Any], Any] = lambda payload: {"did": payload["order"]}
        self.run_script: Callable[[Any], Any] = lambda _event: {"output": "", "log": ""}
        self.script_events: list[Any] = []  # for detached runners, which no function starts here
        self._numbers = count(1)
        self.job_numbers = count(1)  # of names, so that sizes do not depend on other worlds
        self.ticks = True
        self.throttled: set[str] = set()  # functions that Lambda does not start
        self.throttles_scripts = False
        first = now.replace(second=0, microsecond=0) + timedelta(seconds=tick_second)
        self.clocks = [
            Clock(short, every(self.rule(short)), first) for short in ("planner", "dead-letters")
        ]
        self.clients.add_observer(self._watch)

    def _watch(self, client: Any) -> None:
        """Let the clock, the faults and the meter see each call of a client."""
        service = client.meta.service_model.service_name
        client.meta.events.register_first("before-parameter-build.*.*", self._takes_time)
        self.faults.watch(client)
        self.meter.watch(client)
        if service == "sqs":
            self.sqs.answer(client)
        if service == "lambda":
            client.meta.events.register_last("before-call.lambda.Invoke", self._worked)

    # Replacements for the environment of a function

    def runtime(self, service: str, env: Mapping[str, str]) -> Runtime:
        settings = Settings.from_env(env)
        return Runtime(
            settings,
            PowertoolsTelemetry(service, settings.stage, settings.metrics),
            clients=self.clients,
            clock=self.clock,
            steady=self.clock.monotonic,
            make_id=self.new_id,
            pause=self.actors.pause,
            cpu_share=cpu_share_of(env),
            pool=ThreadPool(1),
            retry_policy=RetryPolicy(self.actors.pause, seed="test"),
        )

    def new_id(self) -> str:
        return sortable_id(self.clock(), (next(self._numbers) << 6).to_bytes(10, "big"))

    def _takes_time(self, **_: Any) -> None:
        actor = self.actors.mine()
        if actor is not None:
            memory = actor.environment.function.memory
            self.actors.spend(actor, self.latency.call(actor.name, memory))

    def put_token(self, token: str) -> None:
        """Store the token and the keys, as `make deploy` does after the stacks exist."""
        key = b64encode(bytes(range(32))).decode()
        self.put_knob("token-key", key, "SecureString")
        self.put_knob("token-hash", admin_hash(decode_key(key), token))
        self.put_knob("webhook-key", b64encode(bytes(range(32, 64))).decode(), "SecureString")

    def put_dispatch(self, value: str) -> None:
        """Switch dispatch as an operator does."""
        self.put_knob("dispatch", value)

    def put_knob(self, name: str, value: str, kind: str = "String") -> None:
        self.session.client("ssm").put_parameter(
            Name=f"/punctual/{self.stage}/{name}", Value=value, Type=kind, Overwrite=True
        )

    def client(self, service: str) -> Any:
        if service == "lambda":
            return self.clients.lambda_client(0)
        return getattr(self.clients, service)

    def _worked(self, params: Mapping[str, Any], **_: Any) -> Any:
        """Call `work` for every function that a job of type `lambda` invokes.

        `run_script` answers for the functions of scripts. Events for detached runners are kept.
        """
        if SCRIPT_FUNCTION_NAME in params["url_path"]:
            return self._run_script(params)
        result = self.work(json.loads(params["body"] or b"null"))
        answer = result if isinstance(result, bytes) else json.dumps(result).encode()
        body = StreamingBody(io.BytesIO(answer), len(answer))
        return Answer(200), {"StatusCode": 200, "Payload": body}

    def _run_script(self, params: Mapping[str, Any]) -> Any:
        event = json.loads(params["body"])
        assert params["headers"]["X-Amz-Tenant-Id"], "an environment serves one tenant"
        if self.throttles_scripts:
            return Answer(429), {"Error": {"Code": "TooManyRequestsException", "Message": ""}}
        if params["headers"]["X-Amz-Invocation-Type"] == "Event":
            self.script_events.append(event)
            answer, status = b"", 202
        else:
            outcome = {"format": 1, "status": "SUCCESS", **self.run_script(event)}
            answer, status = json.dumps(outcome).encode(), 200
        body = StreamingBody(io.BytesIO(answer), len(answer))
        return Answer(status), {"StatusCode": status, "Payload": body}

    # Events

    def name(self, short: str) -> str:
        return f"punctual-{self.stage}-{short}"

    def queue(self, short: str) -> Queue:
        return next(
            queue
            for queue in self.deployed.queues
            if queue.name == f"punctual-{self.stage}-{short}"
        )

    def feeding(self, short: str) -> list[Queue]:
        """Return the queues of a function. A lane has one for each priority, or one for all."""
        arns = [
            source.arn for source in self.deployed.sources if source.function == self.name(short)
        ]
        return [self.sqs.by_arn[arn] for arn in arns if arn in self.sqs.by_arn]

    def lane(self, lane: str) -> Queue:
        """Return the lane's queue for normal priority."""
        names = (self.name(f"{lane}.fifo"), self.name(f"{lane}-normal.fifo"))
        return next(queue for queue in self.deployed.queues if queue.name in names)

    def invoke(self, name: str, event: Any) -> Any:
        """Call a function and return its answer, or None if it crashed or failed."""
        actor = self.start(name, event, lambda _: None)
        while not actor.over:
            self._until(actor.wake_at or self.clock.now)
        return actor.answer

    def start(self, name: str, event: Any, done: Callable[[Actor], None]) -> Actor:
        environment = self._free(name)
        self.meter.add_billed_item(name, Unit.REQUEST, name)
        logged = len(environment.log)

        def over(actor: Actor) -> None:
            if isinstance(actor.error, (AssertionError, KeyboardInterrupt)):
                raise actor.error
            if actor.error is not None:
                environment.die()
                self.failures.append((name, actor.error))
            waited = (self.clock.now - actor.began).total_seconds() - actor.called
            if waited > 0:
                gigabytes = environment.function.memory / 1024
                self.meter.add_billed_item(name, Unit.GB_SECOND, "waiting", gigabytes * waited)
            size = sum(len(line.encode()) + 1 for line in environment.log[logged:])
            self.meter.add_billed_item(name, Unit.LOG_BYTE, name, size)
            self._logs(name)
            done(actor)

        first = timedelta() if environment.invocations else self.latency.start(name)
        return self.actors.begin(environment, event, over, first)

    def set_variables(self, **variables: str) -> None:
        """Set variables of all functions, as another configuration of the stage would."""
        functions = {
            name: replace(function, env={**function.env, **variables})
            for name, function in self.deployed.functions.items()
        }
        self.deployed = replace(self.deployed, functions=functions)

    def deploy_again(self) -> None:
        """Replace all idle environments.

        Busy ones finish their invocation and are not used again.
        """
        for name, pool in self.environments.items():
            self.environments[name] = [environment for environment in pool if environment.busy]

    def _free(self, name: str) -> Environment:
        """Return an idle warm environment or a new one. Lambda runs one invocation in each."""
        pool = self.environments[name]
        deployed = self.deployed.functions[name]
        environment = next(
            (
                environment
                for environment in pool
                if not environment.busy and environment.function is deployed
            ),
            None,
        )
        if environment is None:
            environment = Environment(deployed)
            pool.append(environment)
            self._started.append(environment)
        return environment

    def _logs(self, name: str) -> None:
        for operation in ("CreateLogStream", "PutLogEvents"):
            params = {"logGroupName": f"/aws/lambda/{name}"}
            self.meter.add(Call(name, "logs", operation, params, {}, by_lambda=True))

    def rule(self, short: str) -> Rule:
        """Return the rule that starts the function by time."""
        target = f":{self.name(short)}"
        rules = [rule for rule in self.deployed.rules if rule.targets[0]["Arn"].endswith(target)]
        return rules[0]

    def tick(self, short: str = "planner") -> None:
        """Fire the rule of a scheduled function. A failure is retried as the rule says."""
        name = self.name(short)
        if name in self.throttled:
            return  # EventBridge retries until the next one is due
        rule = self.rule(short)
        (target,) = [target for target in rule.targets if target["Arn"].endswith(f":{name}")]
        event = (
            json.loads(target["Input"])
            if "Input" in target
            else rule.event(self.new_id(), self.clock())
        )
        tries = [target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 2)]

        def done(actor: Actor) -> None:
            if actor.error is not None and tries[0]:
                tries[0] -= 1
                self.start(name, event, done)

        self.start(name, event, done)

    # Time

    def run(self, for_: timedelta) -> None:
        """Advance the clock with a tick each minute, and deliver everything at its time."""
        self._until(self.clock.now + for_)

    def _until(self, end: datetime) -> None:
        while True:
            for clock in self.clocks if self.ticks else ():
                if clock.rings(self.clock.now):
                    self.tick(clock.short)
            self.pump()
            if self.clock.now >= end:
                return
            later = (
                *(clock.at for clock in self.clocks if self.ticks),
                self.sqs.next_at(self.clock.now),
                self._stream_at(),
                self.actors.next_at(),
            )
            self.clock.set(min([end, *(at for at in later if at is not None)]))

    def expire(self, table: keys.Table) -> int:
        """Delete expired rows as DynamoDB's TTL does, with stream records that name TTL."""
        name = self.table(table)
        arn = next(arn for arn, streamed in self.deployed.streams.items() if streamed == name)
        rows = [row for row in self.rows(table) if is_expired_row(row, self.clock())]
        for row in rows:
            key = row_key(row)
            self.bare.delete_item(TableName=name, Key=key.item())
            self.streams[arn].append(WrittenRow(name, key, row, None), self.clock(), by_expiry=True)
        return len(rows)

    def add_queue(self, url: str) -> Queue:
        """Add an external queue for tasks."""
        arn = f"arn:aws:sqs:{REGION}:123456789012:{url.rsplit('/', 1)[-1]}"
        queue = Queue(url.rsplit("/", 1)[-1], url, arn, MINUTE / 2, timedelta(days=4))
        self.sqs.add(queue)
        return queue

    # Results

    def table(self, table: keys.Table) -> str:
        """Return the physical name of a table."""
        names: list[str] = self.bare.list_tables()["TableNames"]
        return next(name for name in names if table.name in name.lower())

    def rows(self, table: keys.Table) -> list[dict[str, Any]]:
        pages = self.bare.get_paginator("scan").paginate(TableName=self.table(table))
        return [dict(row) for page in pages for row in page["Items"]]

    def ended(self) -> list[dict[str, Any]]:
        """Return the history rows, one for each run that ended."""
        return [
            row for row in self.rows(keys.HISTORY_TABLE) if row[keys.SK]["S"].startswith("run#")
        ]

    def object(self, key: str) -> bytes:
        """Return the content of an object, from the only bucket with this key."""
        s3 = self.session.client("s3")
        (bucket,) = [
            bucket["Name"]
            for bucket in s3.list_buckets()["Buckets"]
            if s3.list_objects_v2(Bucket=bucket["Name"], Prefix=key).get("KeyCount")
        ]
        data: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return data

    def payloads(self) -> list[str]:
        """Return the names of large payloads in the bucket."""
        buckets = self.clients.s3.list_buckets()["Buckets"]
        return [
            item["Key"]
            for bucket in buckets
            for item in self.clients.s3.list_objects_v2(
                Bucket=bucket["Name"], Prefix="payloads/"
            ).get("Contents", [])
        ]

    def published(self) -> list[Mapping[str, Any]]:
        """Return all published events, in order."""
        return [
            entry
            for call in self.meter.calls
            if call.operation == "PutEvents" and not call.error
            for entry in call.params["Entries"]
        ]

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the log lines of the functions."""
        lines = [line for environment in self._started for line in environment.log]
        return [json.loads(line) for line in lines if line.startswith("{")]


def conditions(stage: str) -> dict[str, str]:
    """Return the values that the conditions of policies are compared with."""
    cluster = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/punctual-{stage}"
    return {**OVER_TLS, "ecs:cluster": cluster, "iam:PassedToService": TASK_SERVICE}


@cache
def _session() -> Any:
    return boto3.Session(region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")


@contextmanager
def a_world(
    stage: str = "dev",
    now: datetime = NOON,
    tick_second: float = 23,
    with_containers: bool = False,
) -> Iterator[World]:
    """Yield a deployment. It fails at its end if a function called more than its policies grant.

    `tick_second` is the second of the planner's tick. EventBridge counts from the rule's creation.
    """
    stacks = synthesised(stage, with_containers)
    create = Clients._create

    def create_client(clients: Clients, service: str, *timeout: int) -> Any:
        """Return a client of the world, so that clients without a runtime are metered too."""
        if isinstance(clients, Watched):
            return create(clients, service, *timeout)
        return world.client(service)

    with mock_aws():
        world = World(_session(), stacks, stage, now, tick_second)
        with (
            mock.patch.object(
                Runtime, "from_env", lambda service: world.runtime(service, os.environ)
            ),
            mock.patch.object(Clients, "_create", create_client),
            mock.patch(
                "moto.s3.models.utcnow", side_effect=lambda: world.clock().replace(tzinfo=None)
            ),
        ):
            try:
                yield world
            finally:
                world.actors.close()
        # The check is needed, because a function may continue silently after an AccessDenied.
        refused = [
            f"{right.role} may not {right.action} on {right.resource} {right.rows}".rstrip()
            for right in denied(world.meter.calls, world.deployed.policies, conditions(world.stage))
        ]
        assert refused == [], "\n".join(refused)
