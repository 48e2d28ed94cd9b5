"""Suppressions of cdk-nag findings: each names one finding on one construct, with a reason."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Acknowledgment, Reference, Stack, Token, Tokenization, Validations
from constructs import Construct, IConstruct

from infra.iam import Right


class NoReason(ValueError):
    """Raised for a suppression without a reason."""


def acknowledge(construct: IConstruct, reason: str, *findings: str) -> None:
    """Suppress findings, named as cdk-nag prints them, for example `AwsSolutions-L1`."""
    if not reason.strip():
        raise NoReason(f"{construct.node.path}: no reason is given for {', '.join(findings)}")
    Validations.of(construct).acknowledge(
        *(
            Acknowledgment(id=f"{finding.partition('-')[0]}::{finding}", reason=reason)
            for finding in findings
        )
    )


def acknowledge_wildcards(role: Construct, rights: Sequence[Right]) -> None:
    """Suppress the finding of each resource with a `*`, with the reason of its right."""
    reasons: dict[str, list[str]] = {}
    for right in [entry for entry in rights if not entry.is_denied]:
        for resource in right.resources:
            finding_name = _finding_name(Stack.of(role), resource)
            if "*" in finding_name:
                if not right.wildcard_reason.strip():
                    description = f"{', '.join(right.actions)} on {finding_name}"
                    raise NoReason(f"{role.node.path}: no reason is given for {description}")
                reasons.setdefault(finding_name, []).append(right.wildcard_reason)
    for finding_name, resource_reasons in reasons.items():
        text = "; ".join(sorted(set(resource_reasons)))
        acknowledge(role, text, f"AwsSolutions-IAM5[Resource::{finding_name}]")
    if "*" in reasons:
        acknowledge(role, "; ".join(sorted(set(reasons["*"]))), "Serverless-LambdaStarPermissions")


def _finding_name(stack: Stack, resource: str) -> str:
    """Return a resource as cdk-nag names it."""
    if not Token.is_unresolved(resource):
        return resource
    stack_names = {
        stack.resolve(token)["Fn::GetAtt"][0]: Stack.of(token.target).stack_name
        for token in Tokenization.reverse_string(resource).tokens
        if isinstance(token, Reference) and Stack.of(token.target) is not stack
    }
    value = stack.resolve(resource)
    parts = value["Fn::Join"][1] if "Fn::Join" in value else [value]
    return "".join(
        part if isinstance(part, str) else _finding_part(part, stack_names) for part in parts
    )


def _finding_part(part: Mapping[str, Any], stack_names: Mapping[str, str]) -> str:
    if "Ref" in part:
        return f"<{part['Ref']}>"
    logical_id, attribute = part["Fn::GetAtt"]
    if logical_id not in stack_names:
        return f"<{logical_id}.{attribute}>"
    stack_output = {
        "StackName": stack_names[logical_id],
        "Region": {"Ref": "AWS::Region"},
        "OutputName": _output_name(logical_id, attribute),
    }
    return json.dumps({"Fn::GetStackOutput": stack_output}, separators=(",", ":"))


def _output_name(logical_id: str, attribute: str) -> str:
    """Return the name that CDK gives to an output for another stack.

    >>> _output_name("OutputsBucket9B9CD849", "Arn")
    'PublishOutputFnGetAttOutputsBucket9B9CD849Arn169D9442'
    """
    path = f'Publish/Output{{"Fn::GetAtt":["{logical_id}","{attribute}"]}}'
    digest = hashlib.md5(path.encode(), usedforsecurity=False).hexdigest()[:8].upper()
    return f"PublishOutputFnGetAtt{logical_id}{attribute}{digest}"
