"""Grants of policies that no call used, and grants that cover more than one resource."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.cost.meter import short_table_name
from tests.support.deployed.privilege import Right, Statement, listed, matches


class Grant(NamedTuple):
    """One action on one resource, as a policy states it."""

    role: str
    action: str
    resource: str
    rows: str = ""  # pattern of partition keys in a table; empty for any


class Named(NamedTuple):
    """A grant with names that are equal on every stage."""

    function: str
    action: str
    resource: str


def grants(role: str, statements: Sequence[Statement]) -> list[Grant]:
    return [
        Grant(role, action, resource, rows)
        for statement in statements
        if statement["Effect"] == "Allow"
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        for rows in _rows(statement)
    ]


def _rows(statement: Statement) -> list[str]:
    wanted = statement.get("Condition", {}).get("ForAllValues:StringLike", {})
    return listed(wanted.get("dynamodb:LeadingKeys", ""))


def unused(granted: Iterable[Grant], rights: Iterable[Right]) -> list[Grant]:
    """Return the grants that no call needed."""
    by_role = defaultdict(set)
    for right in rights:
        by_role[right.role].add(right)
    return [
        grant
        for grant in granted
        if not any(_serves(grant, right) for right in by_role[grant.role])
    ]


def _serves(grant: Grant, right: Right) -> bool:
    return (
        matches(grant.action, right.action, fold=True)
        and matches(grant.resource, right.resource)
        and (not grant.rows or matches(grant.rows, right.rows))
    )


def named(grant: Grant, stage: str) -> Named:
    """Return a grant without its stage.

    >>> table = "arn:aws:dynamodb:eu-west-1:1:table/Punctual-dev-Data-ControlTable7-X"
    >>> named(Grant("punctual-dev-planner", "dynamodb:PutItem", table, "#token#*"), "dev").resource
    'control, rows #token#*'
    >>> queue, blobs = "arn:aws:sqs:eu-west-1:1:punctual-dev-wake", "arn:aws:s3:::b/outputs/*"
    >>> [named(Grant("punctual-dev-poller", "a:b", arn), "dev").resource for arn in (queue, blobs)]
    ['wake', 'outputs/*']
    >>> role = "arn:aws:iam::1:role/Punctual-dev-Containers-TaskRole30-MTZ65B"
    >>> named(Grant("punctual-dev-executor", "iam:PassRole", role), "dev").resource
    'role/Punctual-dev-Containers-TaskRole30'
    """
    prefix = f"punctual-{stage}-"
    resource = _what(grant.resource).replace(prefix, "").replace(f"/{stage}/", "/STAGE/")
    resource = resource.replace(f"punctual-{stage}", "punctual-STAGE")
    rows = f", rows {grant.rows}" if grant.rows else ""
    return Named(grant.role.removeprefix(prefix), grant.action, resource + rows)


def _what(resource: str) -> str:
    """Return the distinguishing part of an ARN."""
    if ":table/" in resource:
        table, *inside = resource.split("/")[1:3]
        return short_table_name(table) + (f", its {inside[0]}" if inside else "")
    if resource.startswith("arn:aws:s3:::"):
        _, _, prefix = resource.partition("/")
        return prefix or "the bucket"
    if resource == "*":
        return resource
    service, _, _, name = resource.removeprefix("arn:aws:").split(":", 3)
    if service == "iam":  # CloudFormation ends the name of a role with random letters
        return name.rpartition("-")[0]
    return {"logs": "its log group, " + name.rpartition(":")[2]}.get(service, name)


def is_wide(grant: Grant) -> bool:
    """Return True if a grant has a wildcard.

    >>> is_wide(Grant("f", "s3:GetObject", "arn:aws:s3:::bucket/a"))
    False
    >>> is_wide(Grant("f", "s3:Get*", "arn:aws:s3:::bucket/a")), is_wide(Grant("f", "a:b", "*"))
    (True, True)
    """
    return "*" in grant.action or "*" in grant.resource
