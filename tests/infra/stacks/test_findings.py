"""Findings of the security rules: each has an acknowledgement with one place and a reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, aws_sqs

from infra.app import add_stacks
from infra.iam import Right
from infra.nag_suppressions import NoReason, acknowledge, acknowledge_wildcards
from tests.support.infra.synthesis import (
    ACKNOWLEDGED,
    STAGES,
    Synthesis,
    acknowledged,
    assembly,
    changed,
    full,
)

PACKS = {"AwsSolutions", "Serverless"}
ONE_ROW = "arn:aws:dynamodb:::table/jobs"


@pytest.fixture(scope="module", params=[*STAGES, "full"])
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return full() if request.param == "full" else assembly(request.param)


def packs(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {pack["pluginName"]: pack for pack in report["pluginReports"]}


def test_both_rule_packs_find_no_unanswered_violation(synthesis: Synthesis) -> None:
    packs_found = packs(synthesis.report)
    assert set(packs_found) == PACKS
    assert {name: pack["violations"] for name, pack in packs_found.items()} == {
        name: [] for name in PACKS
    }
    assert {pack["conclusion"] for pack in packs_found.values()} == {"success"}


def test_acknowledged_findings_match_the_list() -> None:
    """Update after an intended change: python -m tests.support.infra.synthesis."""
    assert acknowledged() == ACKNOWLEDGED.read_text()


def test_each_acknowledgement_names_one_place_and_a_reason(synthesis: Synthesis) -> None:
    for pack in packs(synthesis.report).values():
        for finding in pack["suppressedViolations"]:
            stack, *below = finding["acknowledgedAt"].split("/")
            assert below, f"{finding['ruleName']} is let pass in all of {stack}"
            assert len(finding["reason"]) > 15, finding["acknowledgedAt"]
            if "IAM" in finding["ruleName"]:
                assert "[" in finding["ruleName"], "and would let pass whatever a role may do"


def test_stack_that_violates_the_rules_is_refused(tmp_path: Path) -> None:
    app = add_stacks(App(context=changed("dev"), outdir=str(tmp_path), analytics_reporting=False))
    aws_sqs.CfnQueue(Stack(app, "Planted"), "Open")
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    packs_found = packs(json.loads((tmp_path / "validation-report.json").read_text()))
    violations = {name: pack["violations"] for name, pack in packs_found.items()}
    assert {
        name: {finding["ruleName"] for finding in findings} for name, findings in violations.items()
    } == {
        "AwsSolutions": {"AwsSolutions-SQS3", "AwsSolutions-SQS4"},
        "Serverless": {"Serverless-SQSRedrivePolicy"},
    }
    for findings in violations.values():
        places = {
            where["constructPath"]
            for finding in findings
            for where in finding["violatingConstructs"]
        }
        assert places == {"Planted/Open"}


@pytest.mark.parametrize("reason", ["", "  "])
def test_acknowledgement_requires_a_reason(reason: str) -> None:
    with pytest.raises(NoReason, match="Some: no reason is given for AwsSolutions-L1"):
        acknowledge(Stack(App(), "Some"), reason, "AwsSolutions-L1")


def test_wildcard_right_requires_a_reason() -> None:
    role = Stack(App(), "Some")
    wide = Right(("s3:GetObject", "s3:PutObject"), ("arn:aws:s3:::outputs/*",))
    with pytest.raises(NoReason, match=r"s3:GetObject, s3:PutObject on arn:aws:s3:::outputs/\*"):
        acknowledge_wildcards(role, [wide])
    acknowledge_wildcards(role, [wide._replace(wildcard_reason="blobs are named by job")])
    acknowledge_wildcards(
        role, [wide._replace(is_denied=True), Right(("dynamodb:Query",), (ONE_ROW,))]
    )
