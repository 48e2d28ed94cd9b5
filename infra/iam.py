"""The rights of each function: exact actions on exact resources.

A resource is `*` only where AWS has no resource for the action, or `why` names the bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aws_cdk import aws_iam as iam

from punctual.aws.dynamodb.control.counter_keys import BODIES, COUNTED, TOTALS
from punctual.aws.dynamodb.control.limit_keys import QUOTA_ROWS
from punctual.aws.dynamodb.control.token_keys import DOORS, LISTS
from punctual.aws.dynamodb.keys import BEATING, LEFT_BY_RUNS

PAYLOADS_PREFIX = "payloads/"
OUTPUTS_PREFIX = "outputs/"
BLOB_PREFIXES = (PAYLOADS_PREFIX, *LEFT_BY_RUNS)


class Right(NamedTuple):
    """Actions on resources; `why` explains a resource that matches more than one thing.

    `denied` wins over any grant, of this role or of the resource.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str = ""
    denied: bool = False
    rows: tuple[str, ...] = ()  # patterns of partition keys; none: all keys


@dataclass(frozen=True, slots=True)
class Data:
    """ARNs of the resources of the data stack."""

    jobs: str
    timers: str
    runs: str
    control: str
    audit: str
    stream: str
    bucket: str
    bus: str

    def objects(self, *prefixes: str) -> tuple[str, ...]:
        return tuple(f"{self.bucket}/{prefix}*" for prefix in prefixes)


@dataclass(frozen=True, slots=True)
class Queues:
    """ARNs of the queues: wake-ups, due runs and dead letters."""

    wake: str
    lanes: tuple[str, ...]
    dead: tuple[str, ...]


def statements(rights: Sequence[Right]) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            effect=iam.Effect.DENY if right.denied else iam.Effect.ALLOW,
            actions=list(right.actions),
            resources=list(right.resources),
            conditions=_conditions(right),
        )
        for right in rights
    ]


def _conditions(right: Right) -> dict[str, dict[str, list[str]]] | None:
    if not right.rows:
        return None
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(right.rows)}}


def _dynamodb(table: str, *actions: str) -> Right:
    return Right(tuple(f"dynamodb:{action}" for action in actions), (table,))


def _sqs(queues: Sequence[str], *actions: str) -> Right:
    return Right(tuple(f"sqs:{action}" for action in actions), tuple(queues))


def _read_blobs(data: Data, *prefixes: str) -> Right:
    return Right(("s3:GetObject",), data.objects(*prefixes), "blobs are named by job")


def _list_blobs(data: Data) -> Right:
    return Right(("s3:ListBucket",), (data.bucket,))


def consume(queues: Sequence[str]) -> Right:
    """Return the rights that Lambda needs to feed a function from a queue."""
    return _sqs(queues, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")


def _steps(data: Data, queues: Queues) -> list[Right]:
    """Return the rights of the four steps that change a job."""
    return [
        _dynamodb(data.jobs, "BatchGetItem", "UpdateItem"),
        _dynamodb(data.timers, "BatchWriteItem"),
        _dynamodb(data.runs, "BatchGetItem", "BatchWriteItem", "Query"),
        _dynamodb(data.control, "BatchGetItem"),
        _sqs((queues.wake, *queues.lanes), "SendMessage"),
    ]


def _places(data: Data) -> Right:
    """Return the right to put a job state where none exists."""
    return _dynamodb(data.jobs, "PutItem")


def _shared_timers(data: Data) -> Right:
    """Return the right to remove timers from shared rows."""
    return _dynamodb(data.timers, "UpdateItem")


def authorizer(data: Data, secrets: Sequence[str]) -> list[Right]:
    """Return rights on the token rows of the control table only."""
    return [
        Right(("ssm:GetParameter",), tuple(secrets)),
        _dynamodb(data.control, "GetItem", "UpdateItem")._replace(rows=(f"{DOORS}*",)),
    ]


def job_service(data: Data, queues: Queues, token_key: str, webhook_key: str) -> list[Right]:
    return [
        *_steps(data, queues),
        _places(data),
        _shared_timers(data),
        _dynamodb(data.jobs, "BatchWriteItem"),
        _dynamodb(data.control, "PutItem", "UpdateItem"),
        _dynamodb(data.control, "Query")._replace(rows=(LISTS,)),  # the number of tokens
        _dynamodb(data.audit, "PutItem"),  # changes of tokens, and reads of webhook secrets
        Right(("ssm:GetParameter",), (token_key, webhook_key)),
        _read_blobs(data, PAYLOADS_PREFIX),
        Right(("s3:PutObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
    ]


def job_search(data: Data, limited: bool) -> list[Right]:
    return [
        *_leases(data, limited),
        _dynamodb(data.jobs, "BatchGetItem", "Query"),
        _dynamodb(f"{data.jobs}/index/{BEATING}", "Query"),
        _dynamodb(data.runs, "BatchGetItem", "Query"),
        _dynamodb(data.control, "BatchGetItem", "Query"),
        _dynamodb(data.audit, "Query"),
        _read_blobs(data, *BLOB_PREFIXES),
        _list_blobs(data),  # without this right S3 answers 403 instead of 404 for a missing object
    ]


def _leases(data: Data, limited: bool) -> list[Right]:
    """Return the rights on quota rows, in a stage with limits."""
    return [_dynamodb(data.control, "PutItem")._replace(rows=(QUOTA_ROWS,))] if limited else []


def planner(data: Data, queues: Queues, knobs: Sequence[str]) -> list[Right]:
    return [
        _dynamodb(data.control, "BatchGetItem", "PutItem", "UpdateItem"),
        _dynamodb(data.timers, "Query"),
        _sqs((queues.wake,), "SendMessage"),
        Right(("ssm:GetParameters",), tuple(knobs)),
    ]


def poller(data: Data, queues: Queues) -> list[Right]:
    return [
        *_steps(data, queues),
        _places(data),
        _shared_timers(data),
        consume((queues.wake,)),
        _dynamodb(data.control, "UpdateItem"),
        _dynamodb(data.timers, "Query"),
    ]


def reconciler(data: Data, queues: Queues) -> list[Right]:
    return [
        *_steps(data, queues),
        _places(data),
        _shared_timers(data),
        _dynamodb(data.jobs, "Scan"),
        _dynamodb(data.jobs, "BatchWriteItem", "Query")._replace(rows=BODIES),
        _list_blobs(data),  # payloads of deleted jobs
        Right(("s3:DeleteObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
        _dynamodb(data.timers, "Query"),
        _dynamodb(data.control, "PutItem"),
        # Corrections of counts.
        _dynamodb(data.control, "UpdateItem")._replace(rows=TOTALS),
        _dynamodb(data.control, "Query")._replace(rows=COUNTED),
    ]


def executor(
    data: Data,
    queues: Queues,
    lanes: Sequence[str],
    reached: Sequence[Right],
    limited: bool,
    webhook_key: str | None,
) -> list[Right]:
    """Return the executor's rights; `reached` are those on the targets of tasks."""
    signing = () if webhook_key is None else (Right(("ssm:GetParameter",), (webhook_key,)),)
    return [
        *signing,
        *_steps(data, queues),
        *_leases(data, limited),
        consume(lanes),
        _sqs(lanes, "ChangeMessageVisibility"),
        _read_blobs(data, PAYLOADS_PREFIX),
        # Tasks on AWS print nothing, so there are no logs to store.
        Right(("s3:PutObject",), data.objects(OUTPUTS_PREFIX), "blobs are named by job"),
        Right(("events:PutEvents",), (data.bus,)),
        *reached,
    ]


def dead_letters(data: Data, queues: Queues) -> list[Right]:
    return [
        *_steps(data, queues),
        _shared_timers(data),
        _sqs(queues.dead, "ReceiveMessage", "DeleteMessage"),
    ]


def status(data: Data, failed: str) -> list[Right]:
    return [
        Right(
            ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
            (data.stream,),
        ),
        Right(("dynamodb:ListStreams",), ("*",), "AWS lists the streams of all tables or none"),
        _sqs((failed,), "SendMessage"),
        _dynamodb(data.jobs, "BatchGetItem", "BatchWriteItem", "Query"),
        _dynamodb(data.runs, "BatchGetItem", "Query"),
        _dynamodb(data.control, "BatchWriteItem", "UpdateItem"),
        _dynamodb(data.control, "PutItem", "Query")._replace(rows=COUNTED),
        _dynamodb(data.audit, "PutItem"),
        Right(("s3:DeleteObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
        Right(("events:PutEvents",), (data.bus,)),
    ]


def task_targets(
    functions: Sequence[str],
    queues: Sequence[str],
    secrets: Sequence[str],
    parameters: Sequence[str],
) -> list[Right]:
    """Return the rights on the targets of `lambda` and `sqs` tasks, and on secrets."""
    named = "the stage names what tasks may reach"
    wanted = (
        ("lambda:InvokeFunction", functions),
        ("sqs:SendMessage", queues),
        ("secretsmanager:GetSecretValue", secrets),
        ("ssm:GetParameter", parameters),
    )
    return [Right((action,), tuple(arns), named) for action, arns in wanted if arns]


def no_task_reaches(functions: Sequence[str], queues: Sequence[str]) -> list[Right]:
    """Deny tasks the functions and queues of Punctual, whatever other policies allow.

    Executors send to the queues of due runs, so only the other queues are denied.
    """
    return [
        Right(("lambda:InvokeFunction",), tuple(functions), denied=True),
        Right(("sqs:SendMessage",), tuple(queues), denied=True),
    ]


def logging(log_group: str) -> Right:
    return Right(("logs:CreateLogStream", "logs:PutLogEvents"), (log_group,))


def tracing() -> Right:
    return Right(
        ("xray:PutTraceSegments", "xray:PutTelemetryRecords"), ("*",), "X-Ray has no resources"
    )


def networking() -> Right:
    actions = (
        "CreateNetworkInterface",
        "DeleteNetworkInterface",
        "DescribeNetworkInterfaces",
        "DescribeSubnets",
        "AssignPrivateIpAddresses",
        "UnassignPrivateIpAddresses",
    )
    return Right(
        tuple(f"ec2:{action}" for action in actions),
        ("*",),
        "Lambda asks for these on every interface before it makes its own",
    )
