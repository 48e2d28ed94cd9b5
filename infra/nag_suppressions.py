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


def acknowledge_wide(role: Construct, rights: Sequence[Right]) -> None:
    """Suppress the finding of each resource with a `*`, with the reason of its right."""
    reasons: dict[str, list[str]] = {}
    for right in [one for one in rights if not one.denied]:
        for resource in right.resources:
            shown = _shown(Stack.of(role), resource)
            if "*" in shown:
                if not right.why.strip():
                    what = f"{', '.join(right.actions)} on {shown}"
                    raise NoReason(f"{role.node.path}: no reason is given for {what}")
                reasons.setdefault(shown, []).append(right.why)
    for shown, why in reasons.items():
        text = "; ".join(sorted(set(why)))
        acknowledge(role, text, f"AwsSolutions-IAM5[Resource::{shown}]")
    if "*" in reasons:
        acknowledge(role, "; ".join(sorted(set(reasons["*"]))), "Serverless-LambdaStarPermissions")


def _shown(stack: Stack, resource: str) -> str:
    """Return a resource as cdk-nag names it."""
    if not Token.is_unresolved(resource):
        return resource
    producers = {
        stack.resolve(token)["Fn::GetAtt"][0]: Stack.of(token.target).stack_name
        for token in Tokenization.reverse_string(resource).tokens
        if isinstance(token, Reference) and Stack.of(token.target) is not stack
    }
    value = stack.resolve(resource)
    parts = value["Fn::Join"][1] if "Fn::Join" in value else [value]
    return "".join(part if isinstance(part, str) else _part(part, producers) for part in parts)


def _part(part: Mapping[str, Any], producers: Mapping[str, str]) -> str:
    if "Ref" in part:
        return f"<{part['Ref']}>"
    logical, attribute = part["Fn::GetAtt"]
    if logical not in producers:
        return f"<{logical}.{attribute}>"
    read = {
        "StackName": producers[logical],
        "Region": {"Ref": "AWS::Region"},
        "OutputName": _output(logical, attribute),
    }
    return json.dumps({"Fn::GetStackOutput": read}, separators=(",", ":"))


def _output(logical: str, attribute: str) -> str:
    """Return the name that CDK gives to an output for another stack.

    >>> _output("OutputsBucket9B9CD849", "Arn")
    'PublishOutputFnGetAttOutputsBucket9B9CD849Arn169D9442'
    """
    path = f'Publish/Output{{"Fn::GetAtt":["{logical}","{attribute}"]}}'
    digest = hashlib.md5(path.encode(), usedforsecurity=False).hexdigest()[:8].upper()
    return f"PublishOutputFnGetAtt{logical}{attribute}{digest}"
