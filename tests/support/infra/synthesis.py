"""A stage's templates, synthesised once a test run. As a program it prints the stored lists."""

import json
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from aws_cdk import App
from aws_cdk.assertions import Template

from infra.app import add_stacks, read_context
from infra.config.stage import SCRIPT_FUNCTION_NAMES

STAGES = ("dev", "prod")
KEPT = Path(__file__).with_name("resources.txt")
ACKNOWLEDGED = Path(__file__).with_name("acknowledged.txt")
NO_LAYERS: list[str] = []  # no bundling, so neither pip nor bytecode is needed

VPC = {"subnets": ["subnet-0a1b2c3d"], "securityGroups": ["sg-0a1b2c3d"]}
DOMAIN = {
    "name": "jobs.example.com",
    "certificateArn": "arn:aws:acm:eu-central-1:123456789012:certificate/"
    "01234567-89ab-cdef-0123-456789abcdef",
}
ISSUER = {
    "issuer": "https://id.example.com/realms/a",
    "audience": "punctual",
    "tenantClaim": "https://example.com/tenant",
    "clientId": "punctual-pages",
}
FULL = {
    "vpc": VPC,
    "domain": DOMAIN,
    "corsOrigins": ["https://app.example.com"],
    "oidcIssuer": ISSUER,
    "alarmEmail": "on-call@example.com",
    "budgetDollars": 50,
    "apiMetrics": True,
    "tracing": True,
}


class Resource(NamedTuple):
    """One resource of a template, with its logical id."""

    name: str
    type: str
    body: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.body.get("Properties", {})
        return properties


def changed(stage: str, unprotected: str = "", **values: Any) -> dict[str, Any]:
    """Return the context with some fields of the stage replaced."""
    context = read_context()
    context["stages"][stage] = {**context["stages"][stage], **values}
    chosen = {"stage": stage, "unprotected": unprotected}
    return {**context, **chosen, "aws:cdk:bundling-stacks": NO_LAYERS}


def stage_settings(stage: str) -> dict[str, Any]:
    """Return the settings of the stage in cdk.json."""
    settings: dict[str, Any] = read_context()["stages"][stage]
    return settings


class Stack(NamedTuple):
    stack_name: str
    template: dict[str, Any]
    assets: dict[str, Any]  # files and images that go along


class Synthesis(NamedTuple):
    """The files of a synthesis. They are read from disk, because jsii takes a second a template."""

    manifest: dict[str, Any]
    stacks: tuple[Stack, ...]  # in order of dependency
    report: dict[str, Any]  # of the security rules

    @property
    def templates(self) -> dict[str, dict[str, Any]]:
        """Return the templates by the last part of the stack's name."""
        return {stack.stack_name.rsplit("-", 1)[1]: stack.template for stack in self.stacks}


def synthesise(stage: str, **values: Any) -> Synthesis:
    """Synthesise a stage. A violation of the security rules raises."""
    with tempfile.TemporaryDirectory(prefix="punctual-synth-") as outdir:
        app = App(context=changed(stage, **values), outdir=outdir, analytics_reporting=False)
        names = [stack.stack_name for stack in add_stacks(app).synth().stacks]
        stacks = tuple(
            Stack(
                name,
                json.loads((Path(outdir) / f"{name}.template.json").read_text()),
                json.loads((Path(outdir) / f"{name}.assets.json").read_text()),
            )
            for name in names
        )
        return Synthesis(
            json.loads((Path(outdir) / "manifest.json").read_text()),
            stacks,
            json.loads((Path(outdir) / "validation-report.json").read_text()),
        )


@cache
def assembly(stage: str) -> Synthesis:
    return synthesise(stage)


@cache
def full() -> Synthesis:
    """Return the prod stage with all optional features."""
    return synthesise("prod", **FULL)


def docker_images(synthesis: Synthesis) -> list[dict[str, Any]]:
    """Return the images that a deployment builds."""
    return [image for stack in synthesis.stacks for image in stack.assets["dockerImages"].values()]


def templates(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return synthesis.templates


def template(synthesis: Synthesis, stack: str) -> Template:
    return Template.from_json(synthesis.templates[stack])


def resources(synthesis: Synthesis, kind: str, *stacks: str) -> list[Resource]:
    """Return all resources of one type, of some stacks or of all."""
    return [
        Resource(name, body["Type"], body)
        for stack, template in synthesis.templates.items()
        if not stacks or stack in stacks
        for name, body in template["Resources"].items()
        if body["Type"] == kind
    ]


def functions(synthesis: Synthesis) -> dict[str, Resource]:
    """Return our own functions by name without the stage. Those for scripts stand apart."""
    return {
        name: function
        for name, function in _all_functions(synthesis).items()
        if name not in SCRIPT_FUNCTION_NAMES
    }


def script_functions(synthesis: Synthesis) -> dict[str, Resource]:
    """Return the functions that run scripts, by name without the stage."""
    return {
        name: function
        for name, function in _all_functions(synthesis).items()
        if name in SCRIPT_FUNCTION_NAMES
    }


def _all_functions(synthesis: Synthesis) -> dict[str, Resource]:
    return {
        function.properties["FunctionName"].split("-", 2)[2]: function
        for function in resources(synthesis, "AWS::Lambda::Function")
    }


def listed() -> str:
    """Return all logical ids. A changed id means that the resource is replaced."""
    lines = [
        f"Punctual-{stage}-{stack} {body['Type']} {name}"
        for stage in STAGES
        for stack, template in assembly(stage).templates.items()
        for name, body in template["Resources"].items()
    ]
    return "\n".join(sorted(lines)) + "\n"


def acknowledged() -> str:
    """Return all suppressed violations with place, reason and stages.

    `full` is the full prod stage.
    """
    syntheses = {**{stage: assembly(stage) for stage in STAGES}, "full": full()}
    kinds_by_line: dict[str, list[str]] = {}
    for kind, synthesis in syntheses.items():
        for pack in synthesis.report["pluginReports"]:
            for line in {_answer(violation) for violation in pack["suppressedViolations"]}:
                kinds_by_line.setdefault(line, []).append(kind)
    return "".join(
        f"{line} ({', '.join(kinds)})\n" for line, kinds in sorted(kinds_by_line.items())
    )


def _answer(violation: Mapping[str, Any]) -> str:
    """Return a line that is equal on all stages, with short names for other stacks' resources."""
    line = f"{violation['acknowledgedAt']} {violation['ruleName']}: {violation['reason']}"
    line = re.sub(
        r'\{"Fn::GetStackOutput":.*?"OutputName":"PublishOutputFn(\w+)"\}\}?', r"<\1>", line
    )
    return re.sub(r"(?<=unctual[-/])(dev|prod)", "<stage>", line)


if __name__ == "__main__":
    KEPT.write_text(listed())
    ACKNOWLEDGED.write_text(acknowledged())
