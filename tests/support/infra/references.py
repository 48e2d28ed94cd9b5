"""Templates with references replaced by resource names, for readable assertions."""

import re
from typing import Any

from tests.support.infra.observability import followed
from tests.support.infra.synthesis import FULL, STAGES, Synthesis, assembly, full, stage_settings

SHOWN = (*STAGES, "full")
DAY = 86_400
HERE = "arn:<AWS::Partition>:{}:<AWS::Region>:<AWS::AccountId>:"


def synthesis_of(kind: str) -> Synthesis:
    return full() if kind == "full" else assembly(kind)


def stage(synthesis: Synthesis) -> str:
    return synthesis.stacks[0].stack_name.split("-")[1]


def values(synthesis: Synthesis) -> dict[str, Any]:
    settings = stage_settings(stage(synthesis))
    return {**settings, **FULL} if synthesis is full() else settings


def short(synthesis: Synthesis, stack: str, name: str) -> str:
    """Return the short name of a resource, or its logical id."""
    body = synthesis.templates[stack]["Resources"][name]
    properties = body.get("Properties", {})
    match body["Type"]:
        case "AWS::Lambda::Function":
            full_name = properties["FunctionName"]
        case "AWS::SQS::Queue":
            full_name = properties["QueueName"]
        case "AWS::Events::Rule":
            full_name = properties["Name"]
        case "AWS::DynamoDB::Table":
            return re.split("Table", name)[0].lower()
        case "AWS::ApiGatewayV2::Api":
            return "api"
        case _:
            return name
    return str(full_name).split("-", 2)[2]


def named(synthesis: Synthesis, value: Any, stack: str) -> Any:
    """Return a value with a name for each reference, for example `<wake>`."""

    def name(match: re.Match[str]) -> str:
        return f"<{short(synthesis, match[1], match[2])}{match[3] or ''}>"

    def walked(part: Any) -> Any:
        if isinstance(part, str):
            return re.sub(r"<(\w+)\.(\w+)(\.\w+)?>", name, part)
        if isinstance(part, list):
            return [walked(item) for item in part]
        if isinstance(part, dict):
            return {key: walked(item) for key, item in part.items()}
        return part

    return walked(followed(synthesis, value, stack))


def every(synthesis: Synthesis, kind: str) -> list[dict[str, Any]]:
    """Return the properties of all resources of one type, without tags.

    Another test covers tags.
    """
    return [
        {
            key: property_value
            for key, property_value in named(synthesis, body.get("Properties", {}), stack).items()
            if key != "Tags"
        }
        for stack, template in synthesis.templates.items()
        for body in template["Resources"].values()
        if body["Type"] == kind
    ]


def ids(synthesis: Synthesis, kind: str) -> list[str]:
    return [
        name
        for template in synthesis.templates.values()
        for name, body in template["Resources"].items()
        if body["Type"] == kind
    ]


def data_policies(synthesis: Synthesis) -> tuple[str, str]:
    """Return the deletion policy and the replacement policy of a stage's data."""
    return (
        ("RetainExceptOnCreate", "Retain") if stage(synthesis) == "prod" else ("Delete", "Delete")
    )
