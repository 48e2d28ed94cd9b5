"""The stacks created in moto through CloudFormation, and the wiring read back from moto."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import unquote

from moto.cloudformation.models import Stack as MotoStack
from moto.dynamodb.models import dynamodb_backends
from moto.events.models import events_backends
from moto.s3.models import s3_backends
from moto.sqs.models import sqs_backends

from tests.support.deployed.sqs import Queue, queue_from
from tests.support.deployed.template import Stack, for_moto

REGION = "us-east-1"
ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Function:
    name: str
    arn: str
    handler: str
    role: str
    env: Mapping[str, str]
    memory: int
    timeout: int


@dataclass(frozen=True)
class Source:
    """The event source of a function, a queue or a stream, with its settings."""

    function: str
    arn: str
    batch: int
    partial: bool
    bisect: bool
    retries: int
    age: int
    failed_to: str
    filters: Sequence[Mapping[str, Any]]
    window: timedelta = timedelta(0)


@dataclass(frozen=True)
class Rule:
    name: str
    schedule: str
    pattern: Mapping[str, Any] | None
    bus: str
    targets: Sequence[Mapping[str, Any]]

    def event(self, event_id: str, now: datetime) -> dict[str, Any]:
        """Return the event of this rule for its targets."""
        return {
            "version": "0",
            "id": event_id,
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": ACCOUNT,
            "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{self.name}"],
            "detail": {},
        }


@dataclass(frozen=True)
class Deployed:
    functions: Mapping[str, Function]
    sources: Sequence[Source]
    rules: Sequence[Rule]
    queues: Sequence[Queue]
    streams: Mapping[str, str]  # table names by stream ARN
    policies: Mapping[str, Sequence[Mapping[str, Any]]]  # statements by function name

    def fed_by(self, arn: str) -> Source | None:
        return next((source for source in self.sources if source.arn == arn), None)


class _Kept(NamedTuple):
    """A deployment as it is before its first call, with moto's state by service."""

    deployed: Deployed
    state: Mapping[str, Any]
    parameters: Sequence[Mapping[str, Any]]


_kept: dict[tuple[str, ...], _Kept] = {}  # by the names of the stacks
# The state of the services that handlers and tools see, by account, and moto's region of each.
_STATEFUL: Mapping[str, tuple[Any, str]] = {
    "dynamodb": (dynamodb_backends, REGION),
    "events": (events_backends, REGION),
    "s3": (s3_backends, "aws"),
    "sqs": (sqs_backends, REGION),
}


def deploy(session: Any, stacks: Sequence[Stack]) -> Deployed:
    """Deploy the stacks into moto. Later calls restore the state of the first one."""
    names = tuple(stack.name for stack in stacks)
    if names not in _kept:
        _kept[names] = _first(session, stacks)
    kept = _kept[names]
    for service, state in kept.state.items():
        backends, region = _STATEFUL[service]
        backends[ACCOUNT][region] = _copied(state)
    ssm = session.client("ssm")
    for parameter in kept.parameters:
        ssm.put_parameter(**parameter, Overwrite=True)
    return replace(kept.deployed, queues=deepcopy(kept.deployed.queues))


def _copied(backend: Any) -> Any:
    """Copy the state of a service. Queues hold locks, but only their names and attributes count."""
    if not hasattr(backend, "queues"):
        return deepcopy(backend)
    copied = copy(backend)
    copied.queues = copy(backend.queues)
    return copied


def _first(session: Any, stacks: Sequence[Stack]) -> _Kept:
    # JSON parsing takes a third less time than YAML parsing here.
    with mock.patch.object(MotoStack, "parse_template", staticmethod(json.loads)):
        _create(session.client("cloudformation"), stacks)
    deployed = read_back(session)
    _stop_rules()
    _quiet()
    pages = session.client("ssm").get_paginator("get_parameters_by_path")
    return _Kept(
        deployed,
        {
            service: _copied(backends[ACCOUNT][region])
            for service, (backends, region) in _STATEFUL.items()
        },
        [
            {name: parameter[name] for name in ("Name", "Value", "Type")}
            for page in pages.paginate(Path="/", Recursive=True)
            for parameter in page["Parameters"]
            if not parameter["Name"].startswith("/aws/")
        ],
    )


def _create(formation: Any, stacks: Sequence[Stack]) -> None:
    outputs: dict[tuple[str, str], str] = {}
    for stack in stacks:
        template = for_moto(stack.template, outputs)
        formation.create_stack(
            StackName=stack.name,
            TemplateBody=json.dumps(template),
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )
        (description,) = formation.describe_stacks(StackName=stack.name)["Stacks"]
        assert description["StackStatus"] == "CREATE_COMPLETE", description
        for output in description.get("Outputs", []):
            outputs[stack.name, output["OutputKey"]] = output["OutputValue"]


def _quiet() -> None:
    """Remove the event source mappings, because moto would invoke functions without a runtime."""
    for table in dynamodb_backends[ACCOUNT][REGION].tables.values():
        table.lambda_event_source_mappings.clear()


def _stop_rules() -> None:
    """Remove the targets of rules. moto cannot deliver events to functions; a test does."""
    for bus in events_backends[ACCOUNT][REGION].event_buses.values():
        for rule in bus.rules.values():
            rule.targets.clear()


def read_back(session: Any) -> Deployed:
    functions = {function.name: function for function in _functions(session.client("lambda"))}
    dynamodb = session.client("dynamodb")
    streams = {}
    for name in dynamodb.list_tables()["TableNames"]:
        table = dynamodb.describe_table(TableName=name)["Table"]
        if "LatestStreamArn" in table:
            streams[table["LatestStreamArn"]] = name
    sqs, iam = session.client("sqs"), session.client("iam")
    return Deployed(
        functions=functions,
        sources=_sources(session.client("lambda")),
        rules=_rules(session.client("events")),
        queues=[
            queue_from(
                url,
                sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"],
            )
            for url in sqs.list_queues().get("QueueUrls", [])
        ],
        streams=streams,
        policies={
            function.name: _statements(iam, function.role) for function in functions.values()
        },
    )


def _functions(client: Any) -> list[Function]:
    return [
        Function(
            name=function["FunctionName"],
            arn=function["FunctionArn"],
            handler=function["Handler"],
            role=function["Role"].rsplit("/", 1)[-1],
            env=function.get("Environment", {}).get("Variables", {}),
            memory=function["MemorySize"],
            timeout=function["Timeout"],
        )
        for function in client.list_functions()["Functions"]
    ]


def _sources(client: Any) -> list[Source]:
    return [
        Source(
            function=mapping["FunctionArn"].rsplit(":", 1)[-1],
            arn=mapping["EventSourceArn"],
            batch=mapping["BatchSize"],
            partial="ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", []),
            bisect=mapping.get("BisectBatchOnFunctionError", False),
            retries=mapping.get("MaximumRetryAttempts", -1),
            age=mapping.get("MaximumRecordAgeInSeconds", -1),
            failed_to=mapping.get("DestinationConfig", {})
            .get("OnFailure", {})
            .get("Destination", ""),
            filters=[
                json.loads(source_filter["Pattern"])
                for source_filter in mapping.get("FilterCriteria", {}).get("Filters", [])
            ],
            window=timedelta(seconds=mapping.get("MaximumBatchingWindowInSeconds", 0)),
        )
        for mapping in client.list_event_source_mappings()["EventSourceMappings"]
    ]


def _rules(client: Any) -> list[Rule]:
    rules = []
    for bus in client.list_event_buses()["EventBuses"]:
        for rule in client.list_rules(EventBusName=bus["Name"])["Rules"]:
            targets = client.list_targets_by_rule(Rule=rule["Name"], EventBusName=bus["Name"])
            pattern = rule.get("EventPattern")
            rules.append(
                Rule(
                    rule["Name"],
                    rule.get("ScheduleExpression", ""),
                    json.loads(pattern) if pattern else None,
                    bus["Name"],
                    targets["Targets"],
                )
            )
    return rules


def _statements(iam: Any, role: str) -> list[Mapping[str, Any]]:
    """Return the statements of a role, from its inline policies and our attached policies."""
    documents = [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        policy = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]
        version = iam.get_policy_version(
            PolicyArn=attached["PolicyArn"], VersionId=policy["DefaultVersionId"]
        )
        documents.append(version["PolicyVersion"]["Document"])
    return [
        {
            **statement,
            "Resource": [_as_given(resource) for resource in _list(statement["Resource"])],
        }
        for document in documents
        for statement in _list(_parsed(document)["Statement"])
    ]


def _as_given(resource: str) -> str:
    """Add the streams to the ARN of a log group.

    CloudFormation's ARN has them, and moto's does not.
    """
    return re.sub(r"(:log-group:[^:*]+)$", r"\1:*", resource)


def _parsed(document: Any) -> Mapping[str, Any]:
    """Parse a policy.

    moto returns inline policies as Python literals and other policies as JSON.
    """
    if not isinstance(document, str):
        return dict(document)
    text = unquote(document)
    parsed: Mapping[str, Any] = (
        ast.literal_eval(text) if text.startswith("{'") else json.loads(text)
    )
    return parsed


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
