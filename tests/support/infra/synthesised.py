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
    found = read_context()
    found["stages"][stage] = {**found["stages"][stage], **values}
    chosen = {"stage": stage, "unprotected": unprotected}
    return {**found, **chosen, "aws:cdk:bundling-stacks": NO_LAYERS}


class Stack(NamedTuple):
    stack_name: str
    template: dict[str, Any]


class Made(NamedTuple):
    """The files of a synthesis. They are read from disk, because jsii takes a second a template."""

    manifest: dict[str, Any]
    stacks: tuple[Stack, ...]  # in order of dependency
    report: dict[str, Any]  # of the security rules

    @property
    def templates(self) -> dict[str, dict[str, Any]]:
        """Return the templates by the last part of the stack's name."""
        return {one.stack_name.rsplit("-", 1)[1]: one.template for one in self.stacks}


def synthesise(stage: str, **values: Any) -> Made:
    """Synthesise a stage. A violation of the security rules raises."""
    with tempfile.TemporaryDirectory(prefix="punctual-synth-") as outdir:
        app = App(context=changed(stage, **values), outdir=outdir, analytics_reporting=False)
        names = [one.stack_name for one in add_stacks(app).synth().stacks]
        stacks = tuple(
            Stack(name, json.loads((Path(outdir) / f"{name}.template.json").read_text()))
            for name in names
        )
        return Made(
            json.loads((Path(outdir) / "manifest.json").read_text()),
            stacks,
            json.loads((Path(outdir) / "validation-report.json").read_text()),
        )


@cache
def assembly(stage: str) -> Made:
    return synthesise(stage)


@cache
def full() -> Made:
    """Return the prod stage with all optional features."""
    return synthesise("prod", **FULL)


def templates(made: Made) -> dict[str, dict[str, Any]]:
    return made.templates


def template(made: Made, stack: str) -> Template:
    return Template.from_json(made.templates[stack])


def resources(made: Made, kind: str, *stacks: str) -> list[Resource]:
    """Return all resources of one type, of some stacks or of all."""
    return [
        Resource(name, body["Type"], body)
        for stack, one in made.templates.items()
        if not stacks or stack in stacks
        for name, body in one["Resources"].items()
        if body["Type"] == kind
    ]


def functions(made: Made) -> dict[str, Resource]:
    """Return the functions by name without the stage."""
    return {
        one.properties["FunctionName"].split("-", 2)[2]: one
        for one in resources(made, "AWS::Lambda::Function")
    }


def listed() -> str:
    """Return all logical ids. A changed id means that the resource is replaced."""
    lines = [
        f"Punctual-{stage}-{stack} {body['Type']} {name}"
        for stage in STAGES
        for stack, one in assembly(stage).templates.items()
        for name, body in one["Resources"].items()
    ]
    return "\n".join(sorted(lines)) + "\n"


def acknowledged() -> str:
    """Return all suppressed violations with place, reason and stages.

    `full` is the full prod stage.
    """
    made = {**{stage: assembly(stage) for stage in STAGES}, "full": full()}
    found: dict[str, list[str]] = {}
    for kind, each in made.items():
        for pack in each.report["pluginReports"]:
            for line in {_answer(one) for one in pack["suppressedViolations"]}:
                found.setdefault(line, []).append(kind)
    return "".join(f"{line} ({', '.join(kinds)})\n" for line, kinds in sorted(found.items()))


def _answer(one: Mapping[str, Any]) -> str:
    """Return a line that is equal on all stages, with short names for other stacks' resources."""
    line = f"{one['acknowledgedAt']} {one['ruleName']}: {one['reason']}"
    line = re.sub(
        r'\{"Fn::GetStackOutput":.*?"OutputName":"PublishOutputFn(\w+)"\}\}?', r"<\1>", line
    )
    return re.sub(r"(?<=unctual[-/])(dev|prod)", "<stage>", line)


if __name__ == "__main__":
    KEPT.write_text(listed())
    ACKNOWLEDGED.write_text(acknowledged())
