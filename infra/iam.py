"""What each function may do: exact actions on exact resources, and nothing else anywhere.

Where a resource is `*`, AWS knows no resource for the action, or `why` says what bounds it.
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
    """Some actions on some resources; `why` where a resource is wider than one thing.

    What is `denied` stays so whatever else is granted, by this role or by the resource itself.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str = ""
    denied: bool = False
    rows: tuple[str, ...] = ()  # what a table's partition keys must be like; none: any


@dataclass(frozen=True, slots=True)
class Data:
    """ARNs of what the data stack holds."""

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
    """ARNs of the wake-ups queue and of what is due, by lane and priority."""

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


def _read_blobs(data: Data, *prefixes: str) -> list[Right]:
    return [
        Right(("s3:GetObject",), data.objects(*prefixes), "blobs are named by job"),
        # Else S3 answers 403 instead of 404 where there is none.
        Right(("s3:ListBucket",), (data.bucket,)),
    ]


def consume(queues: Sequence[str]) -> Right:
    """What Lambda does for a function that a queue feeds."""
    return _sqs(queues, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")


def _steps(data: Data, queues: Queues) -> list[Right]:
    """The four steps that change a job, each on its own table or queue."""
    return [
        _dynamodb(data.jobs, "BatchGetItem", "UpdateItem"),
        _dynamodb(data.timers, "BatchWriteItem"),
        _dynamodb(data.runs, "BatchGetItem", "BatchWriteItem", "Query"),
        _dynamodb(data.control, "BatchGetItem"),
        _sqs((queues.wake, *queues.lanes), "SendMessage"),
        # What a holder that died had packed, for the row that a look then writes.
        *_read_blobs(data, OUTPUTS_PREFIX),
    ]


def _places(data: Data) -> Right:
    """To write a head where none is: a new job, or a place that a timer says is taken."""
    return _dynamodb(data.jobs, "PutItem")


def _shared_timers(data: Data) -> Right:
    """To leave rows in which timers of other jobs stay: for who changes several at a time."""
    return _dynamodb(data.timers, "UpdateItem")


def authorizer(data: Data, secrets: Sequence[str]) -> list[Right]:
    """Of the control table only the rows that are found by a token's hash."""
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
        _dynamodb(data.control, "Query")._replace(rows=(LISTS,)),  # how many tokens there are
        _dynamodb(data.audit, "PutItem"),  # what is done to tokens, and reads of webhook secrets
        Right(("ssm:GetParameter",), (token_key, webhook_key)),
        *_read_blobs(data, PAYLOADS_PREFIX),
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
        *_read_blobs(data, *BLOB_PREFIXES),
    ]


def _leases(data: Data, limited: bool) -> list[Right]:
    """Shares of what a tenant may, where the stage has limits."""
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
        Right(("s3:DeleteObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
        _dynamodb(data.timers, "Query"),
        _dynamodb(data.control, "PutItem"),
        # Counts that were wrong.
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
    """`reached` is what the stage lets tasks reach; webhooks are told by one lane alone."""
    signing = () if webhook_key is None else (Right(("ssm:GetParameter",), (webhook_key,)),)
    return [
        *signing,
        *_steps(data, queues),
        *_leases(data, limited),
        consume(lanes),
        _sqs(lanes, "ChangeMessageVisibility"),
        *_read_blobs(data, PAYLOADS_PREFIX),
        # No task that is deployed prints anything: there are no logs to store.
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
        *_read_blobs(data, OUTPUTS_PREFIX),  # what a run left whose history row is not written yet
        Right(("s3:DeleteObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
        Right(("events:PutEvents",), (data.bus,)),
    ]


def task_targets(
    functions: Sequence[str],
    queues: Sequence[str],
    secrets: Sequence[str],
    parameters: Sequence[str],
) -> list[Right]:
    """What `lambda` and `sqs` tasks and placeholders of secrets reach, by ARN."""
    named = "the stage names what tasks may reach"
    wanted = (
        ("lambda:InvokeFunction", functions),
        ("sqs:SendMessage", queues),
        ("secretsmanager:GetSecretValue", secrets),
        ("ssm:GetParameter", parameters),
    )
    return [Right((action,), tuple(arns), named) for action, arns in wanted if arns]


def no_task_reaches(functions: Sequence[str], queues: Sequence[str]) -> list[Right]:
    """What is Punctual's own, whatever a stage, or a policy of that resource, may allow.

    Of the queues only those that executors send nothing to: their runs stand in the others.
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
