"""The rights of each function: exact actions on exact resources.

A resource is `*` only where AWS has no resource for the action, or `wildcard_reason` names the
bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aws_cdk import aws_iam as iam

from punctual.aws.dynamodb.control import counters
from punctual.aws.dynamodb.control.artifacts import (
    ARTIFACT_KEY_PATTERN,
    ARTIFACT_USES_KEY_PATTERN,
)
from punctual.aws.dynamodb.control.limits import QUOTA_ROW_KEY_PATTERN
from punctual.aws.dynamodb.control.tokens import TOKEN_KEY_PREFIX, TOKEN_LIST_KEY_PATTERN
from punctual.aws.dynamodb.keys import NAME_KEY_PATTERN, RUN_OBJECT_PREFIXES
from punctual.aws.dynamodb.lists.keys import ListKind, list_key_pattern
from punctual.aws.dynamodb.lists.operation_rows import (
    OPERATIONS_KEY_PATTERN,
    RUNNING_OPERATIONS_PARTITION,
)
from punctual.aws.secret_store import SECRET_LIST_KEY_PATTERN
from punctual.domain.artifacts import ARTIFACT_PREFIX

PAYLOADS_PREFIX = "payloads/"
OUTPUTS_PREFIX, LOGS_PREFIX = RUN_OBJECT_PREFIXES
ARTIFACT_KEY_PATTERNS = (ARTIFACT_KEY_PATTERN, ARTIFACT_USES_KEY_PATTERN)
BLOB_PREFIXES = (PAYLOADS_PREFIX, *RUN_OBJECT_PREFIXES)


class Right(NamedTuple):
    """Actions on resources; `wildcard_reason` explains a resource that matches more than one thing.

    `is_denied` wins over any grant, of this role or of the resource.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    wildcard_reason: str = ""
    is_denied: bool = False
    key_patterns: tuple[str, ...] = ()  # patterns of partition keys; none: all keys
    equals: tuple[tuple[str, str], ...] = ()  # condition keys that must have these values


@dataclass(frozen=True, slots=True)
class DataArns:
    """ARNs of the resources of the data stack."""

    jobs: str
    timers: str
    runs: str
    control: str
    audit: str
    lists: str
    stream: str
    bucket: str
    bus: str

    def objects(self, *prefixes: str) -> tuple[str, ...]:
        return tuple(f"{self.bucket}/{prefix}*" for prefix in prefixes)


@dataclass(frozen=True, slots=True)
class QueueArns:
    """ARNs of the queues: wake-ups, operations, due runs and dead letters."""

    wake_up: str
    operations: str
    lanes: tuple[str, ...]
    dead_letters: tuple[str, ...]


def statements(rights: Sequence[Right]) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            effect=iam.Effect.DENY if right.is_denied else iam.Effect.ALLOW,
            actions=list(right.actions),
            resources=list(right.resources),
            conditions=_conditions(right),
        )
        for right in rights
    ]


def _conditions(right: Right) -> dict[str, dict[str, list[str]]] | None:
    conditions: dict[str, dict[str, list[str]]] = {}
    if right.key_patterns:
        patterns = {"dynamodb:LeadingKeys": list(right.key_patterns)}
        conditions["ForAllValues:StringLike"] = patterns
    if right.equals:
        conditions["StringEquals"] = {name: [value] for name, value in right.equals}
    return conditions or None


def dynamodb(table: str, *actions: str) -> Right:
    return Right(tuple(f"dynamodb:{action}" for action in actions), (table,))


def _sqs(queues: Sequence[str], *actions: str) -> Right:
    return Right(tuple(f"sqs:{action}" for action in actions), tuple(queues))


def read_blobs(data: DataArns, *prefixes: str) -> Right:
    return Right(("s3:GetObject",), data.objects(*prefixes), "blobs are named by job")


def _list_blobs(data: DataArns) -> Right:
    return Right(("s3:ListBucket",), (data.bucket,))


def consume_queues(queues: Sequence[str]) -> Right:
    """Return the rights that Lambda needs to feed a function from a queue."""
    return _sqs(queues, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")


def change_job(data: DataArns, queues: QueueArns) -> list[Right]:
    """Return the rights of the four steps that change a job."""
    return [
        dynamodb(data.jobs, "BatchGetItem", "UpdateItem"),
        dynamodb(data.timers, "BatchWriteItem"),
        dynamodb(data.runs, "BatchGetItem", "BatchWriteItem", "Query"),
        dynamodb(data.control, "BatchGetItem"),
        _sqs((queues.wake_up, *queues.lanes), "SendMessage"),
    ]


def _create_job_state(data: DataArns) -> Right:
    """Return the right to put a job state where none exists, and the row of its name."""
    return dynamodb(data.jobs, "PutItem")


def _operation_rows(data: DataArns, *actions: str) -> Right:
    """Return the right on the rows of operations, without their items, in the table of jobs."""
    return dynamodb(data.jobs, *actions)._replace(key_patterns=(OPERATIONS_KEY_PATTERN,))


def _running_operation_rows(data: DataArns, *actions: str) -> Right:
    """Return the right on the rows that list the running operations of all tenants."""
    return dynamodb(data.jobs, *actions)._replace(key_patterns=(RUNNING_OPERATIONS_PARTITION,))


def _change_shared_timers(data: DataArns) -> Right:
    """Return the right to remove timers from shared rows."""
    return dynamodb(data.timers, "UpdateItem")


def authorizer(data: DataArns, secrets: Sequence[str]) -> list[Right]:
    """Return rights on the token rows of the control table only."""
    return [
        Right(("ssm:GetParameter",), tuple(secrets)),
        control_rows(data, f"{TOKEN_KEY_PREFIX}*", "GetItem", "UpdateItem"),
    ]


def job_service(
    data: DataArns, queues: QueueArns, token_key: str, webhook_key: str, secrets: Sequence[str]
) -> list[Right]:
    """Return rights that store the secrets of tasks and read none of them."""
    return [
        *change_job(data, queues),
        _create_job_state(data),
        _change_shared_timers(data),
        dynamodb(data.jobs, "DeleteItem")._replace(key_patterns=(NAME_KEY_PATTERN,)),
        _list_rows(data, ListKind.JOB_COUNTS, "BatchGetItem"),
        dynamodb(data.jobs, "BatchWriteItem"),
        _running_operation_rows(data, "Query"),  # how many operations of the tenant run
        _list_rows(data, ListKind.JOBS, "Query"),  # the jobs and runs that an operation matches
        _list_rows(data, ListKind.RUNS, "Query"),
        _sqs((queues.operations,), "SendMessage"),
        dynamodb(data.control, "PutItem", "UpdateItem"),
        dynamodb(data.control, "Query")._replace(
            key_patterns=(TOKEN_LIST_KEY_PATTERN, SECRET_LIST_KEY_PATTERN, *ARTIFACT_KEY_PATTERNS)
        ),  # the lists of tokens, secrets and artifacts, and the jobs that use an artifact
        dynamodb(data.control, "DeleteItem")._replace(key_patterns=(SECRET_LIST_KEY_PATTERN,)),
        Right(("ssm:PutParameter", "ssm:DeleteParameter"), tuple(secrets), "tenants name secrets"),
        control_rows(data, ARTIFACT_USES_KEY_PATTERN, "BatchWriteItem"),
        _list_rows(data, ListKind.FAILURES, "BatchGetItem", "PutItem"),
        dynamodb(data.audit, "PutItem"),  # changes of tokens, and reads of webhook secrets
        Right(("ssm:GetParameter",), (token_key, webhook_key)),
        read_blobs(data, PAYLOADS_PREFIX, ARTIFACT_PREFIX),
        _list_blobs(data),  # without this right S3 answers 403 instead of 404 for a missing object
        # A presigned upload of an artifact has the rights of its signer.
        Right(
            ("s3:PutObject",),
            data.objects(PAYLOADS_PREFIX, ARTIFACT_PREFIX),
            "blobs are named by job or content",
        ),
    ]


def job_search(data: DataArns, has_limits: bool) -> list[Right]:
    return [
        *_write_quota_rows(data, has_limits),
        dynamodb(data.jobs, "BatchGetItem"),
        _operation_rows(data, "Query"),
        dynamodb(data.runs, "BatchGetItem", "Query"),
        dynamodb(data.control, "BatchGetItem", "Query"),
        dynamodb(data.audit, "Query"),
        dynamodb(data.lists, "BatchGetItem", "Query"),
        read_blobs(data, *BLOB_PREFIXES, ARTIFACT_PREFIX),
        _list_blobs(data),  # without this right S3 answers 403 instead of 404 for a missing object
    ]


def claims(data: DataArns, queues: QueueArns, token_key: str) -> list[Right]:
    """Return the rights to renew and finish runs, and to store what external executors send."""
    return [
        *change_job(data, queues),
        Right(("ssm:GetParameter",), (token_key,)),
        read_blobs(data, *RUN_OBJECT_PREFIXES),
        _list_blobs(data),  # the parts of a log
        # A presigned upload of an output has the rights of its signer.
        Right(
            ("s3:DeleteObject", "s3:PutObject"),
            data.objects(*RUN_OBJECT_PREFIXES),
            "blobs are named by job",
        ),
    ]


def _write_quota_rows(data: DataArns, has_quotas: bool) -> list[Right]:
    """Return the rights on quota rows, in a stage that has some."""
    return (
        [dynamodb(data.control, "PutItem")._replace(key_patterns=(QUOTA_ROW_KEY_PATTERN,))]
        if has_quotas
        else []
    )


def planner(data: DataArns, queues: QueueArns, parameters: Sequence[str]) -> list[Right]:
    return [
        dynamodb(data.control, "BatchGetItem", "PutItem", "UpdateItem"),
        dynamodb(data.timers, "Query"),
        _sqs((queues.wake_up, queues.operations), "SendMessage"),
        # Operations of lost messages.
        _running_operation_rows(data, "DeleteItem", "Query"),
        _operation_rows(data, "BatchGetItem"),
        Right(("ssm:GetParameters",), tuple(parameters)),
    ]


def operations(data: DataArns, queues: QueueArns, has_limits: bool) -> list[Right]:
    """Return the rights to change many jobs, and to record how far an operation is."""
    return [
        *change_job(data, queues),
        *_write_quota_rows(data, has_limits),
        _change_shared_timers(data),
        consume_queues((queues.operations,)),
        _sqs((queues.operations,), "SendMessage"),
        _running_operation_rows(data, "BatchWriteItem"),
        dynamodb(data.jobs, "DeleteItem")._replace(key_patterns=(NAME_KEY_PATTERN,)),
        read_blobs(data, PAYLOADS_PREFIX),
        Right(("s3:PutObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
    ]


def poller(data: DataArns, queues: QueueArns) -> list[Right]:
    return [
        *change_job(data, queues),
        _create_job_state(data),
        _change_shared_timers(data),
        consume_queues((queues.wake_up,)),
        dynamodb(data.control, "UpdateItem"),
        dynamodb(data.timers, "Query"),
    ]


def reconciler(data: DataArns, queues: QueueArns) -> list[Right]:
    return [
        *change_job(data, queues),
        _create_job_state(data),
        _change_shared_timers(data),
        dynamodb(data.jobs, "DeleteItem")._replace(key_patterns=(NAME_KEY_PATTERN,)),
        dynamodb(data.jobs, "BatchWriteItem", "Query", "Scan"),
        _list_rows(data, ListKind.JOBS, "BatchGetItem", "Query", "UpdateItem"),
        _list_rows(data, ListKind.JOB_COUNTS, "BatchGetItem", "PutItem", "UpdateItem"),
        _list_blobs(data),  # payloads of deleted jobs, and artifacts
        read_blobs(data, ARTIFACT_PREFIX),
        Right(
            ("s3:DeleteObject",),
            data.objects(PAYLOADS_PREFIX, ARTIFACT_PREFIX),
            "blobs are named by job or content",
        ),
        dynamodb(data.timers, "Query"),
        _list_rows(data, ListKind.RUNS, "BatchWriteItem"),
        dynamodb(data.control, "PutItem"),
        # Corrections of counts, and the cleanup of artifacts.
        *_count(data),
        control_rows(data, counters.FOLDED_KEY_PATTERN, "Query"),
        control_rows(data, ARTIFACT_KEY_PATTERN, "UpdateItem"),
        control_rows(data, ARTIFACT_USES_KEY_PATTERN, "BatchWriteItem", "Query"),
    ]


def executor(
    data: DataArns,
    queues: QueueArns,
    lane_queues: Sequence[str],
    target_rights: Sequence[Right],
    has_quotas: bool,
    webhook_key: str | None,
) -> list[Right]:
    """Return the executor's rights; `target_rights` are those on the targets of tasks."""
    webhook_key_rights = (
        () if webhook_key is None else (Right(("ssm:GetParameter",), (webhook_key,)),)
    )
    return [
        *webhook_key_rights,
        *change_job(data, queues),
        *_write_quota_rows(data, has_quotas),
        consume_queues(lane_queues),
        _sqs(lane_queues, "ChangeMessageVisibility"),
        read_blobs(data, PAYLOADS_PREFIX),
        Right(("s3:PutObject",), data.objects(OUTPUTS_PREFIX), "blobs are named by job"),
        Right(("events:PutEvents",), (data.bus,)),
        *target_rights,
    ]


def dead_letters(data: DataArns, queues: QueueArns) -> list[Right]:
    return [
        *change_job(data, queues),
        _change_shared_timers(data),
        _sqs(queues.dead_letters, "ReceiveMessage", "DeleteMessage"),
    ]


def status(data: DataArns, failure_queue: str, has_quotas: bool) -> list[Right]:
    return [
        # The places of claims that end.
        *(
            [control_rows(data, QUOTA_ROW_KEY_PATTERN, "BatchGetItem", "PutItem")]
            if has_quotas
            else []
        ),
        Right(
            ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
            (data.stream,),
        ),
        Right(("dynamodb:ListStreams",), ("*",), "AWS lists the streams of all tables or none"),
        _sqs((failure_queue,), "SendMessage"),
        dynamodb(data.jobs, "BatchGetItem", "BatchWriteItem", "Query"),
        _list_rows(data, ListKind.JOBS, "BatchGetItem", "UpdateItem"),
        _list_rows(data, ListKind.JOB_COUNTS, "BatchGetItem", "PutItem", "UpdateItem"),
        _list_rows(data, ListKind.FAILURES, "BatchGetItem", "PutItem"),
        dynamodb(data.runs, "BatchGetItem", "Query"),
        *_count(data),
        dynamodb(data.audit, "PutItem"),
        *(_list_rows(data, kind, "BatchWriteItem") for kind in (ListKind.RUNS, ListKind.FEED)),
        Right(("s3:DeleteObject",), data.objects(PAYLOADS_PREFIX), "blobs are named by job"),
        Right(("events:PutEvents",), (data.bus,)),
    ]


def _count(data: DataArns) -> list[Right]:
    """Return the rights to count changes, and to fold them."""
    return [
        control_rows(data, counters.COUNT_LOG_KEY_PATTERN, "BatchWriteItem", "Query"),
        control_rows(data, counters.FOLDED_KEY_PATTERN, "BatchGetItem", "PutItem"),
        control_rows(data, counters.UNFOLDED_KEY_PATTERN, "BatchWriteItem", "DeleteItem", "Query"),
        control_rows(data, counters.TOTALS_KEY_PATTERN, "UpdateItem"),
    ]


def control_rows(data: DataArns, pattern: str, *actions: str) -> Right:
    return dynamodb(data.control, *actions)._replace(key_patterns=(pattern,))


def _list_rows(data: DataArns, kind: ListKind, *actions: str) -> Right:
    return dynamodb(data.lists, *actions)._replace(key_patterns=(list_key_pattern(kind),))


def task_targets(
    functions: Sequence[str],
    queues: Sequence[str],
    secrets: Sequence[str],
    parameters: Sequence[str],
) -> list[Right]:
    """Return the rights on the targets of `lambda` and `sqs` tasks, and on secrets."""
    reason = "the stage lists the targets of tasks"
    arns_by_action = (
        ("lambda:InvokeFunction", functions),
        ("sqs:SendMessage", queues),
        ("secretsmanager:GetSecretValue", secrets),
        ("ssm:GetParameter", parameters),
    )
    return [Right((action,), tuple(arns), reason) for action, arns in arns_by_action if arns]


def executor_of_scripts(
    data: DataArns, functions: Sequence[str], claim_parameters: Sequence[str]
) -> list[Right]:
    """Return the rights to run scripts, in the functions of this stage only.

    `claim_parameters` are the token key and the address of the API, for the runners.
    """
    return [
        Right(("lambda:InvokeFunction",), tuple(functions)),
        Right(("ssm:GetParameter",), tuple(claim_parameters)),
        # A link to an artifact has the rights of its signer. The parts of a log become one blob.
        # The head of an output says which claim has uploaded it.
        read_blobs(data, ARTIFACT_PREFIX, LOGS_PREFIX, OUTPUTS_PREFIX),
        _list_blobs(data),  # the parts of a log that a lost attempt has left
        Right(
            ("s3:DeleteObject", "s3:PutObject"),
            data.objects(LOGS_PREFIX),
            "blobs are named by job",
        ),
    ]


def deny_own_targets(functions: Sequence[str], queues: Sequence[str]) -> list[Right]:
    """Deny tasks the functions and queues of Punctual, whatever other policies allow.

    Executors send to the queues of due runs, so only the other queues are denied.
    """
    return [
        Right(("lambda:InvokeFunction",), tuple(functions), is_denied=True),
        Right(("sqs:SendMessage",), tuple(queues), is_denied=True),
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
        "Lambda requires these on every interface before it creates its own",
    )
