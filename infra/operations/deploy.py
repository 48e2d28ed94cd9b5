"""`python -m infra.operations.deploy WHAT STAGE`: deploy, destroy, new token or key."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.app import context
from infra.config.cdk_json import PROJECT_ROOT
from infra.config.stage import Stage, WrongStage, described
from infra.constructs.bucket_emptier import empty
from infra.operations import admin_token, webhook_key
from infra.operations.account import (
    NotReady,
    account_of,
    check_bootstrap,
    check_concurrency,
    parameter,
)
from infra.operations.admin_token import TOKEN_HASH
from infra.operations.first_deployment import (
    FAILED_DEPLOYMENT_PAGE,
    check_logs,
    missing_stacks,
    stack_name,
    unprotected,
)

CDK = PROJECT_ROOT / "node_modules/.bin/cdk"

KEPT_PARAMETERS = {TOKEN_HASH: admin_token.UNSET, "dispatch": "on"}
"""Parameters that are set by hand, with their value in the template.

CloudFormation writes the template value again if another property of the parameter changes.
"""

TOKENS = ".tokens"
"""The folder for tokens of deployments without a terminal; git ignores it."""

CONSOLE_LINKS = (
    ("The dashboard", "Observability", "DashboardLink"),
    ("The saved queries", "Observability", "SavedQueriesLink"),
    ("The outputs of runs", "Data", "OutputsLink"),
)
"""The links that `make deploy` prints: title, stack and output."""

Say = Callable[[str], None]
Run = Callable[[Sequence[str]], int]


def deploy(
    stage: Stage,
    session: Any,
    cdk: Run,
    say: Say,
    extra: Sequence[str] = (),
    terminal: bool = False,
) -> int:
    """Deploy the stage. `terminal` means that a person reads the output, and no log keeps it."""
    account, region = account_of(session)
    missing = _ready(stage, session, account, region, say)
    say(f"Deploying Punctual ({stage.name}) to account {account}, {region}.")
    ssm = session.client("ssm")
    before = {name: parameter(ssm, stage.knobs + name) for name in KEPT_PARAMETERS}
    admin_token.ensure_key(ssm, stage.knobs)
    webhook_key.ensure_key(ssm, stage.knobs)
    outputs = PROJECT_ROOT / "cdk.out" / f"{stage.name}-outputs.json"
    outputs.parent.mkdir(exist_ok=True)
    options = ["--require-approval=never", *_of(stage), *extra]
    failed = _put(stage, missing, cdk, say, outputs, options)
    _restore(ssm, stage, before, say)
    if failed:
        return failed
    token = admin_token.put_first(ssm, stage.knobs)
    if token is not None:
        _hand_out(token, f"{stage.name}-{account}-{region}", say, terminal)
    shown = token if token is not None and terminal else None
    _welcome(stage, json.loads(outputs.read_text()), shown, say)
    return 0


def _ready(stage: Stage, session: Any, account: str, region: str, say: Say) -> tuple[str, ...]:
    """Return the stacks that do not exist yet; raise if their creation would fail."""
    check_bootstrap(session, account, region)
    warnings = (check_concurrency(session, stage, account, region), unheard(stage))
    missing = missing_stacks(session, stage, say)
    check_logs(session, stage, missing)
    for warning in filter(None, warnings):
        say(warning)
    return missing


def _put(
    stage: Stage, missing: Sequence[str], cdk: Run, say: Say, outputs: Path, options: Sequence[str]
) -> int:
    """Deploy all stacks; protect new stacks once all of them exist."""
    new = missing if stage.protected else ()
    failed = cdk(["deploy", "--all", f"--outputs-file={outputs}", *options, *unprotected(new)])
    if failed and missing:
        say(f"What to do about it: {FAILED_DEPLOYMENT_PAGE}")
    if failed or not new:
        return failed
    names = [stack_name(stage, one) for one in new]
    say(f"All stacks stand. Now {', '.join(names)} are protected from deletion.")
    return cdk(["deploy", *names, "--exclusively", *options])


def unheard(stage: Stage) -> str:
    """Return a warning if no address gets the mail of alarms."""
    if not stage.protected or stage.alarm_email is not None:
        return ""
    return (
        f"Warning: `alarmEmail` of {stage.name} is null in cdk.json, so no mail is sent when an "
        "alarm rings, and none about its costs; subscribe to the output AlarmTopic, or set it"
    )


def new_token(stage: Stage, session: Any, say: Say, terminal: bool = False) -> int:
    account, region = account_of(session)
    ssm = session.client("ssm")
    admin_token.standing(ssm, stage.knobs)
    say(f"A new admin token for Punctual ({stage.name}) in account {account}, {region}.")
    token = admin_token.put_new(ssm, stage.knobs)
    _hand_out(token, f"{stage.name}-{account}-{region}", say, terminal)
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
    """Delete the stage with all its data; fail if it is protected."""
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
    # Remove the queues and all stacks that depend on them first: no function may write into a
    # bucket while it is emptied.
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
        if value not in (None, KEPT_PARAMETERS[name], written) and written is not None:
            ssm.put_parameter(Name=stage.knobs + name, Value=value, Type="String", Overwrite=True)
            say(f"{stage.knobs}{name} is again what it was before this deploy.")


def _welcome(
    stage: Stage, outputs: Mapping[str, Mapping[str, str]], token: str | None, say: Say
) -> None:
    """Print the API's address, the links into the AWS console and a first call."""
    api = outputs[f"Punctual-{stage.name}-Api"]
    address = api["Address"]
    say(f"\nThe API: {address}")
    if "DomainPointsTo" in api:
        say(f"Its DNS record must point to {api['DomainPointsTo']}")
    for title, stack, name in CONSOLE_LINKS:
        link = outputs.get(f"Punctual-{stage.name}-{stack}", {}).get(name)
        if link is not None:
            say(f"{title}: {link}")
    shown = token or "$PUNCTUAL_TOKEN"
    say(
        f'\nA first job:\n  curl -s {address}/jobs -H "Authorization: Bearer {shown}" '
        "-H 'Content-Type: application/json' "
        '-d \'{"name": "hello", "schedule_type": "IMMEDIATE"}\''
    )


def _hand_out(token: str, whose: str, say: Say, terminal: bool) -> None:
    """Show the token at a terminal, or else write it to a file: others can read a log."""
    if terminal:
        say(f"The admin token, shown this once: {token}")
        return
    path = PROJECT_ROOT / TOKENS / whose
    admin_token.keep(path, token)
    say(
        f"The admin token is in {path}, which only you may read: put it where you keep secrets, "
        "and delete the file. Where this machine is gone by then, as in CI, type `make token` at "
        "a terminal."
    )


def at_terminal(environment: Mapping[str, str]) -> bool:
    """Return whether a person reads the output. Some CI systems attach a terminal to their logs."""
    return sys.stdout.isatty() and not environment.get("CI")


def _of(stage: Stage) -> list[str]:
    return [f"--context=stage={stage.name}", f"--output=cdk.out/{stage.name}"]


def _cdk(arguments: Sequence[str]) -> int:
    if not CDK.is_file():
        raise NotReady("the CDK's command line is not installed: run `npm ci`")
    return subprocess.run([str(CDK), *arguments], cwd=PROJECT_ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.operations.deploy")
    parser.add_argument("what", choices=("deploy", "token", "webhook-key", "destroy"))
    parser.add_argument("stage")
    parser.add_argument("--yes", action="store_true", help="destroy without asking again")
    known, extra = parser.parse_known_args(arguments)
    try:
        stage = described(known.stage, context()["stages"])
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        if known.what == "deploy":
            return deploy(stage, session, _cdk, print, extra, at_terminal(os.environ))
        if extra:
            parser.error(f"unknown: {' '.join(extra)}")
        if known.what == "token":
            return new_token(stage, session, print, at_terminal(os.environ))
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
