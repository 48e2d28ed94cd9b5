"""Rules for all templates: deterministic, tagged, and without unexpected resources."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.infra.synthesis import KEPT, STAGES, assembly, full, listed, synthesise

LINT = "from cfnlint.runner import main; main()"


def test_resources_match_the_list() -> None:
    """Update after an intended change: python -m tests.support.infra.synthesis."""
    assert listed() == KEPT.read_text()


@pytest.mark.parametrize("stage", STAGES)
def test_same_input_yields_the_same_templates(stage: str) -> None:
    assert synthesise(stage).templates == synthesise(stage).templates


@pytest.mark.parametrize("stage", STAGES)
def test_synthesis_performs_no_lookups(stage: str) -> None:
    manifest = assembly(stage).manifest
    assert not manifest.get("missing")
    stacks = [
        artifact for artifact in manifest["artifacts"].values() if "stack" in artifact["type"]
    ]
    assert {stack["environment"] for stack in stacks} == {"aws://unknown-account/unknown-region"}


@pytest.mark.parametrize("stage", STAGES)
def test_stacks_depend_only_on_earlier_ones(stage: str) -> None:
    order = ["Data", "Scheduling", "Execution", "Api", "Observability"]
    for name, template in assembly(stage).templates.items():
        position = order.index(name)
        text = json.dumps(template)
        read = set(re.findall(rf'"StackName": "Punctual-{stage}-(\w+)"', text))
        assert all(order.index(other) < position for other in read)


@pytest.mark.parametrize("stage", STAGES)
def test_templates_name_no_account_or_region(stage: str) -> None:
    for template in assembly(stage).templates.values():
        assert (
            re.findall(r"\b\d{12}\b|[a-z]{2}-[a-z]+-\d\b", json.dumps(template["Resources"])) == []
        )


@pytest.mark.parametrize("stage", STAGES)
def test_visible_resources_have_descriptions(stage: str) -> None:
    described = {
        "AWS::ApiGatewayV2::Api",
        "AWS::ApiGatewayV2::Stage",
        "AWS::Events::EventBus",
        "AWS::Events::Rule",
        "AWS::IAM::Role",
        "AWS::Lambda::Function",
        "AWS::Lambda::LayerVersion",
        "AWS::SSM::Parameter",
    }
    for template in assembly(stage).templates.values():
        assert template["Description"].startswith(f"Punctual ({stage})")
        for name, body in template["Resources"].items():
            if body["Type"] in described:
                assert body["Properties"].get("Description"), name
        assert all(output.get("Description") for output in outputs(template).values())


@pytest.mark.parametrize("stage", STAGES)
def test_all_resources_are_tagged(stage: str) -> None:
    expected = {"application": "punctual", "stage": stage}
    tagged = 0
    for template in assembly(stage).templates.values():
        for body in template["Resources"].values():
            tags: Any = body.get("Properties", {}).get("Tags")
            if isinstance(tags, list):
                tags = {tag["Key"]: tag["Value"] for tag in tags}
            if tags is not None:
                tagged += 1
                assert expected.items() <= tags.items()
    assert tagged > 40


def outputs(template: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs that are meant for people."""
    all_outputs = template.get("Outputs", {}).items()
    return {name: body for name, body in all_outputs if not name.startswith("PublishOutput")}


def test_templates_pass_cfn_lint(tmp_path: Path) -> None:
    for kind, synthesis in (("dev", assembly("dev")), ("full", full())):
        for name, template in synthesis.templates.items():
            (tmp_path / f"{kind}-{name}.json").write_text(json.dumps(template))
    # The CDK itself adds redundant dependencies (W3005).
    answer = subprocess.run(
        [
            *(sys.executable, "-c", LINT, "--regions", "us-east-1"),
            *("--ignore-checks", "W3005", "--template", str(tmp_path / "*.json")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)
