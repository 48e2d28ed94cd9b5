"""`python -m infra.deploy WHAT STAGE`: what the CDK's command line lacks."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra import admin_token, webhook_key
from infra.account import NotReady, account_of, check_bootstrap, parameter
from infra.admin_token import TOKEN_HASH
from infra.app import CDK_JSON, context
from infra.emptying import empty
from infra.stage import Stage, WrongStage, described

ROOT = CDK_JSON.parent
CDK = ROOT / "node_modules/.bin/cdk"

KEPT = {TOKEN_HASH: admin_token.UNSET, "dispatch": "on"}
"""What is set by hand after a deploy, and what the template writes: a change of anything else of
such a parameter makes CloudFormation write its value again."""

Say = Callable[[str], None]
Run = Callable[[Sequence[str]], int]


def deploy(stage: Stage, session: Any, cdk: Run, say: Say, extra: Sequence[str] = ()) -> int:
    account, region = account_of(session)
    check_bootstrap(session, account, region)
    say(f"Deploying Punctual ({stage.name}) to account {account}, {region}.")
    ssm = session.client("ssm")
    before = {name: parameter(ssm, stage.knobs + name) for name in KEPT}
    admin_token.ensure_key(ssm, stage.knobs)
    webhook_key.ensure_key(ssm, stage.knobs)
    outputs = ROOT / "cdk.out" / f"{stage.name}-outputs.json"
    outputs.parent.mkdir(exist_ok=True)
    failed = cdk(
        [
            "deploy",
            "--all",
            "--require-approval=never",
            f"--outputs-file={outputs}",
            *_of(stage),
            *extra,
        ]
    )
    _restore(ssm, stage, before, say)
    if failed:
        return failed
    token = admin_token.put_first(ssm, stage.knobs)
    _welcome(json.loads(outputs.read_text())[f"Punctual-{stage.name}-Api"], token, say)
    return 0


def new_token(stage: Stage, session: Any, say: Say) -> int:
    account, region = account_of(session)
    ssm = session.client("ssm")
    admin_token.standing(ssm, stage.knobs)
    say(f"A new admin token for Punctual ({stage.name}) in account {account}, {region}.")
    _show(admin_token.put_new(ssm, stage.knobs), say)
    say("Within a minute the former token is refused, and this one taken.")
    return 0


def new_webhook_key(stage: Stage, session: Any, say: Say) -> int:
    account, region = account_of(session)
    webhook_key.rotate(session.client("ssm"), stage.knobs)
    say(
        f"Webhooks of Punctual ({stage.name}) in account {account}, {region} are signed with a new "
        "secret within a minute, and with the former one until the next rotation: then give "
        "receivers the new one (GET /webhook-secret, for each tenant)."
    )
    return 0


def destroy(stage: Stage, session: Any, cdk: Run, say: Say, sure: bool) -> int:
    """Everything goes with a stage that is not protected; of one that is, nothing."""
    account, region = account_of(session)
    if stage.protected:
        raise NotReady(
            f"stage {stage.name} is protected: its tables, buckets and stacks refuse to go. "
            "Set `protected` to false in cdk.json and deploy first; then nothing of it stays"
        )
    if not sure:
        raise NotReady(
            f"this deletes every job, run and output of Punctual ({stage.name}) in account "
            f"{account}, {region}, for good. If that is meant: "
            f"make destroy STAGE={stage.name} YES=1"
        )
    # Nothing that runs on may write into a bucket that is being emptied.
    # With the queues goes what depends on them: all but the data.
    failed = cdk(["destroy", f"Punctual-{stage.name}-Scheduling", "--force", *_of(stage)])
    if failed:
        return failed
    removed = empty(session, f"Punctual-{stage.name}-Data")
    say(f"{removed} objects and versions removed from its buckets.")
    failed = cdk(["destroy", "--all", "--force", *_of(stage)])
    if not failed:
        admin_token.forget_key(session.client("ssm"), stage.knobs)
        webhook_key.forget_key(session.client("ssm"), stage.knobs)
        say(f"Nothing of Punctual ({stage.name}) is left in account {account}, {region}.")
    return failed


def _restore(ssm: Any, stage: Stage, before: Mapping[str, str | None], say: Say) -> None:
    for name, value in before.items():
        written = parameter(ssm, stage.knobs + name)
        if value not in (None, KEPT[name], written) and written is not None:
            ssm.put_parameter(Name=stage.knobs + name, Value=value, Type="String", Overwrite=True)
            say(f"{stage.knobs}{name} is again what it was before this deploy.")


def _welcome(outputs: Mapping[str, str], token: str | None, say: Say) -> None:
    address = outputs["Address"]
    say(f"\nThe API: {address}")
    if "DomainPointsTo" in outputs:
        say(f"Its DNS record must point to {outputs['DomainPointsTo']}")
    if token is not None:
        _show(token, say)
    shown = token or "$PUNCTUAL_TOKEN"
    say(
        f"\nA first job:\n  curl -s {address}/jobs -H 'Authorization: Bearer {shown}' "
        "-H 'Content-Type: application/json' "
        '-d \'{"name": "hello", "schedule_type": "IMMEDIATE"}\''
    )


def _show(token: str, say: Say) -> None:
    say(f"The admin token, shown this once: {token}")


def _of(stage: Stage) -> list[str]:
    return [f"--context=stage={stage.name}", f"--output=cdk.out/{stage.name}"]


def _cdk(arguments: Sequence[str]) -> int:
    if not CDK.is_file():
        raise NotReady("the CDK's command line is not installed: run `npm ci`")
    return subprocess.run([str(CDK), *arguments], cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.deploy")
    parser.add_argument("what", choices=("deploy", "token", "webhook-key", "destroy"))
    parser.add_argument("stage")
    parser.add_argument("--yes", action="store_true", help="destroy without asking again")
    known, extra = parser.parse_known_args(arguments)
    try:
        stage = described(known.stage, context()["stages"])
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        if known.what == "deploy":
            return deploy(stage, session, _cdk, print, extra)
        if extra:
            parser.error(f"unknown: {' '.join(extra)}")
        if known.what == "token":
            return new_token(stage, session, print)
        if known.what == "webhook-key":
            return new_webhook_key(stage, session, print)
        return destroy(stage, session, _cdk, print, known.yes)
    except (NotReady, WrongStage) as error:
        print(f"{known.what}: {error}", file=sys.stderr)
    except (BotoCoreError, ClientError) as error:
        print(f"{known.what}: {' '.join(str(error).split())}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
