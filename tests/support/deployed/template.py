"""The synthesised stacks, prepared for moto. Unsupported resources are listed and left out."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from aws_cdk import App

from infra.app import add_stacks, read_context

Template = Mapping[str, Any]

# moto lacks these types, or handlers do not use them.
LEFT_OUT = (
    "AWS::ApiGatewayV2::",
    "AWS::CDK::",
    "AWS::CloudWatch::",
    "AWS::KMS::",
    "AWS::Lambda::Alias",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Version",
    "AWS::Logs::QueryDefinition",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::S3::BucketPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::SNS::",
    "Custom::",
)


ORDER = ("Data", "Scheduling", "Containers", "Execution", "Api", "Observability")
OPTIONAL_STACKS = ("Containers",)


class Stack(NamedTuple):
    name: str
    template: Template


@cache
def synthesised(stage: str, with_containers: bool = False) -> Sequence[Stack]:
    """Return every stack of a stage, in order of dependency. No layers are built.

    `with_containers` switches containers on, whatever cdk.json says.
    """
    values = {**read_context(), "stage": stage, "aws:cdk:bundling-stacks": []}
    if with_containers:
        # With a name no image is built, whether this machine has Docker or not.
        settings = {"containers": True, "scriptsImage": "registry.example.com/scripts:1"}
        values["stages"] = {
            **values["stages"],
            stage: {**values["stages"][stage], **settings},
        }
    with TemporaryDirectory(prefix="punctual-synth-") as folder:
        add_stacks(App(context=values, outdir=folder, analytics_reporting=False)).synth()
        templates = {
            path.name.removesuffix(".template.json"): json.loads(path.read_text())
            for path in Path(folder).glob("*.template.json")
        }
    names = [f"Punctual-{stage}-{name}" for name in ORDER]
    missing = {name.rsplit("-", 1)[-1] for name in set(names) - set(templates)}
    assert set(templates) <= set(names)
    assert missing <= set(OPTIONAL_STACKS)
    return [Stack(name, templates[name]) for name in names if name in templates]


def resources(stacks: Sequence[Stack], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return all resources of one type, by stack and logical id."""
    return {
        f"{stack.name}/{name}": resource
        for stack in stacks
        for name, resource in stack.template.get("Resources", {}).items()
        if resource["Type"] == kind
    }


def for_moto(template: Template, outputs: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return a template for moto. `outputs` are those of earlier stacks, by stack and name."""
    resources: dict[str, Any] = template["Resources"]
    gone = {name for name, resource in resources.items() if resource["Type"].startswith(LEFT_OUT)}
    named = {
        name: resource["Properties"]["Name"]
        for name, resource in resources.items()
        if resource["Type"] == "AWS::Events::EventBus"
    }
    context = _Context(outputs, gone, named)
    kept = {
        name: _fitting(_resolved(resource, context))
        for name, resource in resources.items()
        if name not in gone
    }
    told = {
        name: _resolved(output, context) for name, output in template.get("Outputs", {}).items()
    }
    parameters = {
        name: parameter
        for name, parameter in template.get("Parameters", {}).items()
        if name != "BootstrapVersion"
    }
    fitted: dict[str, Any] = {"Resources": kept, "Outputs": told}
    for section, value in (
        ("Parameters", parameters),
        ("Conditions", template.get("Conditions")),
        ("Mappings", template.get("Mappings")),
    ):
        if value:
            fitted[section] = value
    return fitted


class _Context(NamedTuple):
    outputs: Mapping[tuple[str, str], str]
    gone: set[str]
    named: Mapping[str, str]  # moto does not resolve a reference to a bus to its name


def _resolved(value: Any, context: _Context) -> Any:
    """Replace references to other stacks by outputs, and those to left-out resources by names."""
    if isinstance(value, list):
        return [_resolved(item, context) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Fn::GetStackOutput": reference}:
            return context.outputs[reference["StackName"], reference["OutputName"]]
        case {"Ref": name} if name in context.gone:
            return f"left-out-{name}"
        case {"Ref": name} if name in context.named:
            return context.named[name]
        case {"Fn::GetAtt": [name, attribute]} if name in context.gone:
            return f"left-out-{name}-{attribute}"
    resolved = {name: _resolved(item, context) for name, item in value.items()}
    if "DependsOn" in resolved:
        wanted = resolved["DependsOn"]
        names = [wanted] if isinstance(wanted, str) else wanted
        resolved["DependsOn"] = [name for name in names if name not in context.gone]
    return resolved


def _fitting(resource: dict[str, Any]) -> dict[str, Any]:
    """Return a resource that moto accepts.

    Functions run from our folder, and tags become a list.
    """
    properties = dict(resource.get("Properties", {}))
    match resource["Type"]:
        case "AWS::Lambda::Function":
            properties["Code"] = {"ZipFile": "pass"}
            properties.pop("Layers", None)
        case "AWS::SSM::Parameter":
            properties.pop("Tags", None)
        case _:
            return resource
    return {**resource, "Properties": properties}
