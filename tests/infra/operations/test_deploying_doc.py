"""docs/deploying.md describes every setting and names only existing things."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.app import read_context
from infra.config import cdk_json, stage
from infra.stacks.observability.alarm_kinds import KINDS_WITH_OWN_METRICS
from punctual.web.contract import API_CALLS, CLAIM_PATHS
from tests.support.infra.synthesis import DOMAIN, ISSUER, VPC, assembly

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/deploying.md"
TEXT = PAGE.read_text()
RESTORED = {
    **{name: f"{name}-again" for name in ("jobs", "timers", "runs", "control", "audit", "lists")},
    "stream": "arn:aws:dynamodb:eu-central-1:123456789012:table/jobs-again/stream/2026-11-18",
}


def table(heading: str) -> dict[str, list[str]]:
    """Return the cells of a table by the name in the first cell."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]
    return {first.strip("`"): other_cells for first, *other_cells in cells}


def settings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of all settings of a stage, for example `tasksMayReach.queues`."""
    paths: list[str] = []

    class Noting(cdk_json.Fields):
        def take(self, name: str, *more: Any, **options: Any) -> Any:
            paths.append(self._path + name)
            return super().take(name, *more, **options)

    for module in (cdk_json, stage):
        monkeypatch.setattr(module, "Fields", Noting)
    full = {"domain": DOMAIN, "vpc": VPC, "restoredTables": RESTORED, "oidcIssuer": ISSUER}
    stage.read_stage("dev", {"dev": {**read_context()["stages"]["dev"], **full}})
    return paths


def test_every_setting_is_documented_and_every_documented_one_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documented = table("Stages")
    paths = settings(monkeypatch)
    assert {path for path in paths if "." not in path} == set(documented)
    below = [path.split(".") for path in paths if "." in path]
    assert len(below) >= 13
    assert [path for path in below if f"`{path[1]}`" not in documented[path[0]][0]] == []


@pytest.mark.parametrize(("column", "name"), [(1, "dev"), (2, "prod")])
def test_documented_values_match_cdk_json(column: int, name: str) -> None:
    described = read_context()["stages"][name]
    documented = {name: cells[column] for name, cells in table("Stages").items()}
    values = {
        key: json.loads(cell.strip("`")) for key, cell in documented.items() if cell[0] == "`"
    }
    assert values == {key: described[key] for key in values}
    assert set(documented) - set(values) <= {"memory", "reservedConcurrency"}
    sizes = described["memory"].values()
    assert documented["memory"] == f"{min(sizes)} to {max(sizes)}"
    if "reservedConcurrency" not in values:
        total = sum(described["reservedConcurrency"].values())
        assert documented["reservedConcurrency"] == f"{total} in all"
        assert f"`{name}` reserves {total}" in TEXT


def test_alarms_that_need_metrics_are_documented() -> None:
    *first, last = (f"`{kind}`" for kind in KINDS_WITH_OWN_METRICS)
    assert f"{', '.join(first)} and {last} need" in table("Stages")["alarms"][0]


def test_documented_stacks_match_the_templates() -> None:
    documented = table("What stands there then")
    deployed = {stack.stack_name: stack.template["Resources"] for stack in assembly("prod").stacks}
    assert {name.replace("<stage>", "prod") for name in documented} == set(deployed)
    for name, (description,) in documented.items():
        functions = {
            resource["Properties"]["FunctionName"].removeprefix("punctual-prod-")
            for resource in deployed[name.replace("<stage>", "prod")].values()
            if resource["Type"] == "AWS::Lambda::Function"
        }
        names = {*stage.FUNCTION_NAMES, *stage.SCRIPT_FUNCTION_NAMES}
        assert set(re.findall(r"`([a-z-]+)`", description)) & names == functions


def test_documented_parameters_match_the_templates() -> None:
    deployed = {
        resource["Properties"]["Name"].replace("/dev/", "/<stage>/")
        for stack in assembly("dev").stacks
        for resource in stack.template["Resources"].values()
        if resource["Type"] == "AWS::SSM::Parameter"
    }
    others = {"/punctual/<stage>/token-hash", "/punctual/<stage>/api-address"}
    assert deployed == {*table("Knobs"), *others}
    assert all(f"`{name}`" in TEXT for name in others)
    assert "`/punctual/<stage>/token-key`" in TEXT
    assert "`/punctual/<stage>/webhook-key`" in TEXT


def test_documented_outputs_exist() -> None:
    deployed = {
        name for stack in assembly("prod").stacks for name in stack.template.get("Outputs", {})
    }
    assert "AlarmTopic" in deployed
    assert set(re.findall(r"output `(\w+)`", TEXT)) <= {*deployed, "DomainPointsTo"}


def test_documented_public_calls_match_the_contract() -> None:
    public = {call.path for call in API_CALLS if call.is_public}
    assert public - CLAIM_PATHS == {"/health", "/health/live", "/health/ready", "/openapi.json"}
    assert "`/health`, `/health/live`, `/health/ready` and `/openapi.json`" in TEXT


def test_links_have_targets() -> None:
    links = re.findall(r"\]\(([^)#]*)#?([^)]*)\)", TEXT)
    assert len(links) >= 8
    for file, part in links:
        page = (PAGE.parent / file).read_text()
        titles = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
        assert not part or part in {title.lower().replace(" ", "-") for title in titles}


def test_documented_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, flags=re.MULTILINE)) <= set(targets)
