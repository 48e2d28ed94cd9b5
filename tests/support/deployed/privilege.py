"""Find the rights that a call needs, and check them against a role's policies by IAM's rules.

Available emulators deny batches that AWS allows, so this module does not use their enforcement.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from bench.cost.meter import Call
from tests.support.deployed.deployed import ACCOUNT, REGION

Statement = Mapping[str, Any]
MISSING = frozenset({"NoSuchKey", "404", "NotFound"})


class Right(NamedTuple):
    role: str
    action: str
    resource: str
    rows: str = ""  # the partition key in a table, if the call names one


class Rule(NamedTuple):
    """The actions of an operation, and the reason they differ from its name."""

    actions: tuple[str, ...]
    why: str = ""


RULES: Mapping[tuple[str, str], Rule] = {
    ("sqs", "SendMessageBatch"): Rule(("sqs:SendMessage",), "batches have no action of their own"),
    ("sqs", "DeleteMessageBatch"): Rule(("sqs:DeleteMessage",), "as above"),
    ("sqs", "ChangeMessageVisibilityBatch"): Rule(("sqs:ChangeMessageVisibility",), "as above"),
    ("dynamodb", "TransactGetItems"): Rule(("dynamodb:GetItem",), "transactions have none either"),
    ("s3", "HeadObject"): Rule(("s3:GetObject",), "reading the head of an object is reading it"),
    ("s3", "DeleteObjects"): Rule(("s3:DeleteObject",), "on each of the objects"),
    ("s3", "ListObjectsV2"): Rule(("s3:ListBucket",), "on the bucket"),
    ("lambda", "Invoke"): Rule(("lambda:InvokeFunction",), "the action is not called as the call"),
}
"""BatchGetItem and BatchWriteItem have actions of their own, and need no other."""

PASSED_ROLES = ("taskRoleArn", "executionRoleArn")

TRANSACTED = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
"""TransactWriteItems needs the right of each operation in it."""


def arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def needed(call: Call) -> list[Right]:
    """Return the rights that AWS requires for this call."""
    if call.service == "billing":
        return []
    if call.operation == "TransactWriteItems":
        return [
            Right(
                call.role,
                TRANSACTED[kind],
                arn("dynamodb", f"table/{write['TableName']}"),
                _rows(write),
            )
            for action in call.params["TransactItems"]
            for kind, write in action.items()
        ]
    if call.operation == "BatchGetItem":
        return [
            Right(
                call.role,
                "dynamodb:BatchGetItem",
                arn("dynamodb", f"table/{table}"),
                str(key["pk"]["S"]),
            )
            for table, wanted in call.params["RequestItems"].items()
            for key in wanted["Keys"]
        ]
    if call.operation == "BatchWriteItem":
        return [
            Right(call.role, "dynamodb:BatchWriteItem", arn("dynamodb", f"table/{table}"), row)
            for table, requests in call.params["RequestItems"].items()
            for row in {_written(request) for request in requests} or {""}
        ]
    rule = RULES.get((call.service, call.operation))
    actions = rule.actions if rule else (f"{call.service}:{call.operation}",)
    if call.operation == "RegisterTaskDefinition":  # ECS takes over these roles
        passed = [Right(call.role, "iam:PassRole", call.params[name]) for name in PASSED_ROLES]
        return [Right(call.role, "ecs:RegisterTaskDefinition", "*"), *passed]
    rows = _rows(call.params) if call.service == "dynamodb" else ""
    rights = [
        Right(call.role, action, resource, rows)
        for action in actions
        for resource in _resources(call)
    ]
    if call.service == "s3" and call.error in MISSING:
        # Without this right AWS answers 403 for a missing object, not 404.
        bucket = f"arn:aws:s3:::{call.params['Bucket']}"
        rights.append(Right(call.role, "s3:ListBucket", bucket))
    return rights


def _written(request: Mapping[str, Any]) -> str:
    """Return the partition key of a row that a batch puts or deletes."""
    put = request.get("PutRequest", {}).get("Item")
    return str((put or request["DeleteRequest"]["Key"])["pk"]["S"])


def _rows(params: Mapping[str, Any]) -> str:
    """Return the partition key that a call or a query names."""
    key = params.get("Key") or params.get("Item")
    if key and "pk" in key:
        return str(key["pk"]["S"])
    return str(params.get("ExpressionAttributeValues", {}).get(":pk", {}).get("S", ""))


def _resources(call: Call) -> list[str]:
    return RESOURCES[call.service](call.params)


def _dynamodb(params: Mapping[str, Any]) -> list[str]:
    if "StreamArn" in params:
        return [params["StreamArn"]]
    if "IndexName" in params:  # the index is read, not the table
        return [arn("dynamodb", f"table/{params['TableName']}/index/{params['IndexName']}")]
    tables = [params["TableName"]] if "TableName" in params else list(params["RequestItems"])
    return [arn("dynamodb", f"table/{table}") for table in tables]


def _s3(params: Mapping[str, Any]) -> list[str]:
    bucket = f"arn:aws:s3:::{params['Bucket']}"
    if "Delete" in params:
        return [f"{bucket}/{entry['Key']}" for entry in params["Delete"]["Objects"]]
    return [f"{bucket}/{params['Key']}"] if "Key" in params else [bucket]


def _ssm(params: Mapping[str, Any]) -> list[str]:
    names = params.get("Names") or [params.get("Name") or params["Path"]]
    return [arn("ssm", f"parameter/{name.strip('/')}") for name in names]


def _secrets(params: Mapping[str, Any]) -> list[str]:
    name = params["SecretId"]
    return [name if name.startswith("arn:") else arn("secretsmanager", f"secret:{name}-AbCdEf")]


def _ecs(params: Mapping[str, Any]) -> list[str]:
    if "clientToken" in params:  # a start
        return [params["taskDefinition"]]
    return list(params.get("tasks", [])) or [params.get("task", "*")]


def _function(params: Mapping[str, Any]) -> list[str]:
    name = params["FunctionName"]
    return [name if name.startswith("arn:") else arn("lambda", f"function:{name}")]


def _events(params: Mapping[str, Any]) -> list[str]:
    names = {entry.get("EventBusName", "default") for entry in params["Entries"]}
    return [
        name if name.startswith("arn:") else arn("events", f"event-bus/{name}") for name in names
    ]


RESOURCES: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "dynamodb": _dynamodb,
    "ecs": _ecs,
    "events": _events,
    "lambda": _function,
    "logs": lambda params: [arn("logs", f"log-group:{params['logGroupName']}:log-stream:one")],
    "s3": _s3,
    "secretsmanager": _secrets,
    "sqs": lambda params: [arn("sqs", params["QueueUrl"].rsplit("/", 1)[-1])],
    "ssm": _ssm,
    "xray": lambda _: ["*"],
}


def allowed(right: Right, statements: Sequence[Statement], about: Mapping[str, str]) -> bool:
    """Return True if a statement allows the right and none denies it.

    `about` holds condition values.
    """
    speaking = [
        statement
        for statement in statements
        if _speaks(statement, right) and _holds(statement, right, about)
    ]
    effects = {statement["Effect"] for statement in speaking}
    return "Allow" in effects and "Deny" not in effects


def denied(
    calls: Iterable[Call], policies: Mapping[str, Sequence[Statement]], about: Mapping[str, str]
) -> list[Right]:
    """Return the rights that functions used but lack. Callers without a policy are ignored."""
    rights = {right for call in calls if call.role in policies for right in needed(call)}
    return sorted(right for right in rights if not allowed(right, policies[right.role], about))


def _speaks(statement: Statement, right: Right) -> bool:
    for word in ("NotAction", "NotResource", "Principal"):
        if word in statement:
            raise NotImplementedError(f"a statement with {word}: {statement}")
    actions = listed(statement["Action"])
    return any(matches(pattern, right.action, fold=True) for pattern in actions) and any(
        matches(item, right.resource) for item in listed(statement["Resource"])
    )


def _holds(statement: Statement, right: Right, about: Mapping[str, str]) -> bool:
    for operator, wanted in statement.get("Condition", {}).items():
        if operator == "ForAllValues:StringLike" and list(wanted) == ["dynamodb:LeadingKeys"]:
            (patterns,) = wanted.values()
            if not any(matches(item, right.rows) for item in listed(patterns)):
                return False
            continue
        if operator not in ("StringEquals", "StringLike", "ArnLike", "ArnEquals", "Bool"):
            raise NotImplementedError(f"a condition {operator}: {statement}")
        for key, values in wanted.items():
            given = about.get(key)
            if given is None or not any(matches(str(item), given) for item in listed(values)):
                return False
    return True


@lru_cache(maxsize=4096)
def _pattern(pattern: str, fold: bool) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.IGNORECASE | re.DOTALL if fold else re.DOTALL)


def matches(pattern: str, text: str, fold: bool = False) -> bool:
    """Return True if a text matches a policy's pattern.

    >>> matches("dynamodb:Batch*", "dynamodb:batchGetItem", fold=True), matches("a", "ab")
    (True, False)
    """
    return _pattern(pattern, fold).fullmatch(text) is not None


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
