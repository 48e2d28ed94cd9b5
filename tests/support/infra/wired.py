"""Templates with references replaced by resource names, for readable assertions."""

import re
from typing import Any

from infra.app import read_context
from tests.support.infra.observed import followed
from tests.support.infra.synthesised import FULL, STAGES, Made, assembly, full

SHOWN = (*STAGES, "full")
DAY = 86_400
HERE = "arn:<AWS::Partition>:{}:<AWS::Region>:<AWS::AccountId>:"


def shown(kind: str) -> Made:
    return full() if kind == "full" else assembly(kind)


def stage(made: Made) -> str:
    return made.stacks[0].stack_name.split("-")[1]


def values(made: Made) -> dict[str, Any]:
    found: dict[str, Any] = read_context()["stages"][stage(made)]
    return {**found, **FULL} if made is full() else found


def short(made: Made, stack: str, name: str) -> str:
    """Return the short name of a resource, or its logical id."""
    body = made.templates[stack]["Resources"][name]
    properties = body.get("Properties", {})
    match body["Type"]:
        case "AWS::Lambda::Function":
            told = properties["FunctionName"]
        case "AWS::SQS::Queue":
            told = properties["QueueName"]
        case "AWS::Events::Rule":
            told = properties["Name"]
        case "AWS::DynamoDB::Table":
            return re.split("Table", name)[0].lower()
        case "AWS::ApiGatewayV2::Api":
            return "api"
        case _:
            return name
    return str(told).split("-", 2)[2]


def named(made: Made, value: Any, stack: str) -> Any:
    """Return a value with a name for each reference, for example `<wake>`."""

    def name(found: re.Match[str]) -> str:
        return f"<{short(made, found[1], found[2])}{found[3] or ''}>"

    def walked(one: Any) -> Any:
        if isinstance(one, str):
            return re.sub(r"<(\w+)\.(\w+)(\.\w+)?>", name, one)
        if isinstance(one, list):
            return [walked(each) for each in one]
        if isinstance(one, dict):
            return {key: walked(each) for key, each in one.items()}
        return one

    return walked(followed(made, value, stack))


def every(made: Made, kind: str) -> list[dict[str, Any]]:
    """Return the properties of all resources of one type, without tags.

    Another test covers tags.
    """
    return [
        {
            key: one
            for key, one in named(made, body.get("Properties", {}), stack).items()
            if key != "Tags"
        }
        for stack, template in made.templates.items()
        for body in template["Resources"].values()
        if body["Type"] == kind
    ]


def ids(made: Made, kind: str) -> list[str]:
    return [
        name
        for template in made.templates.values()
        for name, body in template["Resources"].items()
        if body["Type"] == kind
    ]


def kept(made: Made) -> tuple[str, str]:
    """Return the deletion policy and the replacement policy of a stage's data."""
    return ("RetainExceptOnCreate", "Retain") if stage(made) == "prod" else ("Delete", "Delete")
