"""The deployment from GitHub: its workflow, and the rights of its role."""

import fnmatch
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.app import read_context
from infra.operations.account import BOOTSTRAP_PARAMETER
from infra.operations.deploy import deploy
from tests.infra.operations.test_deploy import (
    Cdk,
    Printed,
    as_the_template_says,
    put,
    session,
    stage,
)

__all__ = ["session"]  # a fixture
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/deploy-from-github.md").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/deploy.yml").read_text())
JOB = WORKFLOW["jobs"]["deploy"]


def step(action: str) -> dict[str, Any]:
    (match,) = [
        candidate for candidate in JOB["steps"] if candidate.get("uses", "").startswith(action)
    ]
    return dict(match["with"])


def file(name: str) -> Any:
    match = re.search(rf"```json file={name}\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def test_credentials_use_oidc_without_access_keys() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read", "id-token": "write"}
    inputs = step("aws-actions/configure-aws-credentials")
    assert inputs["role-to-assume"] == "${{ vars.AWS_ROLE }}"
    assert inputs["aws-region"] == "${{ vars.AWS_REGION }}"
    text = (ROOT / ".github/workflows/deploy.yml").read_text()
    assert "secrets." not in text
    assert "access-key" not in text


def test_deployment_uses_node_22_as_the_project_allows() -> None:
    assert step("actions/setup-node")["node-version"] == "22"
    package = json.loads((ROOT / "package.json").read_text())
    assert package["engines"]["node"] == "^20.0.0 || ^22.0.0"


def test_stage_is_deployed_in_the_environment_of_its_name() -> None:
    inputs = WORKFLOW[True]["workflow_dispatch"]["inputs"]["stage"]  # YAML reads `on` as true
    assert set(inputs["options"]) <= set(read_context()["stages"])
    assert JOB["environment"] == "${{ inputs.stage }}"
    (run,) = [candidate for candidate in JOB["steps"] if "run" in candidate]
    assert run["run"] == 'make deploy STAGE="$STAGE"'
    assert run["env"] == {"STAGE": "${{ inputs.stage }}"}  # never interpolated into a shell command
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is False


def test_only_one_environment_of_one_repository_may_assume_the_role() -> None:
    (statement,) = file("trust.json")["Statement"]
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    issuer = "token.actions.githubusercontent.com"
    assert statement["Principal"]["Federated"].endswith(f":oidc-provider/{issuer}")
    assert statement["Condition"] == {
        "StringEquals": {
            f"{issuer}:aud": "sts.amazonaws.com",
            f"{issuer}:sub": "repo:OWNER/REPOSITORY:environment:prod",
        }
    }


@contextmanager
def called(session: Any) -> Iterator[set[str]]:
    """Collect the IAM actions of all boto3 calls."""
    actions: set[str] = set()
    make = session.client

    def client(name: str) -> Any:
        new_client = make(name)
        prefix = {"cloudformation": "cloudformation", "logs": "logs"}.get(name, name)

        def note(model: Any, **_: Any) -> None:
            actions.add(f"{prefix}:{model.name}")

        new_client.meta.events.register("provide-client-params.*.*", note)
        return new_client

    session.client = client
    yield actions


def test_role_has_exactly_the_rights_that_a_deployment_uses(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    with called(session) as used:
        assert deploy(stage(), session, Cdk(as_the_template_says(session)), Printed()) == 0
    allowed = {
        action
        for statement in file("rights.json")["Statement"]
        for action in (
            statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        )
    }
    free = {"sts:GetCallerIdentity"}  # needs no right
    # A stand-in answers the first. The CDK uses the others, also for a failed stack.
    unseen = {
        "lambda:GetAccountSettings",
        "sts:AssumeRole",
        "cloudformation:UpdateTerminationProtection",
    }
    assert used - free == allowed - unseen


@pytest.mark.parametrize("name", ["/punctual/prod/token-key", "/punctual/prod/webhook-key"])
def test_role_may_write_only_parameters_of_its_stage(name: str) -> None:
    resources = [
        statement["Resource"].rpartition(":parameter")[2]
        for statement in file("rights.json")["Statement"]
        if "ssm:PutParameter" in statement["Action"]
    ]
    assert [fnmatch.fnmatch(name, pattern) for pattern in resources] == [True]
    assert not fnmatch.fnmatch(name.replace("prod", "dev"), resources[0])
