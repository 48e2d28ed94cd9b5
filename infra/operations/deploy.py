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

from infra.app import read_context
from infra.config.cdk_json import PROJECT_ROOT
from infra.config.stage import Stage, WrongStage, read_stage
from infra.constructs.bucket_emptier import empty_buckets
from infra.operations import admin_token, webhook_key
from infra.operations.account import (
    NotReady,
    account_of,
    check_bootstrap,
    check_concurrency,
    delete_parameter,
    delete_parameters_below,
    read_parameter,
)
from infra.operations.first_deployment import (
    FAILED_DEPLOYMENT_PAGE,
    check_log_groups,
    missing_stacks,
    stack_name,
    unprotected_option,
)
from infra.operations.output import Say, one_line
from punctual.lambdas.ssm_secrets import (
    ADMIN_HASH_PARAMETER,
    TOKEN_KEY_PARAMETER,
    UNSET_SECRET,
    WEBHOOK_KEY_PARAMETER,
)

CDK_COMMAND = PROJECT_ROOT / "node_modules/.bin/cdk"

MANUAL_PARAMETERS = {ADMIN_HASH_PARAMETER: UNSET_SECRET, "dispatch": "on"}
"""Parameters that are set by hand, with their value in the template.

CloudFormation writes the template value again if another property of the parameter changes.
"""

TOKENS_FOLDER = ".tokens"
"""The folder for tokens of deployments without a terminal; git ignores it."""

CONSOLE_LINKS = (
    ("The dashboard", "Observability", "DashboardLink"),
    ("The saved queries", "Observability", "SavedQueriesLink"),
    ("The outputs of runs", "Data", "OutputsLink"),
)
"""The links that `make deploy` prints: title, stack and output."""

Run = Callable[[Sequence[str]], int]


def deploy(
    stage: Stage,
    session: Any,
    cdk: Run,
    say: Say,
    extra_options: Sequence[str] = (),
    is_terminal: bool = False,
) -> int:
    """Deploy the stage. `is_terminal` means that a person reads the output, and no log keeps it."""
    account, region = account_of(session)
    missing = _check_ready(stage, session, account, region, say)
    say(f"Deploying Punctual ({stage.name}) to account {account}, {region}.")
    ssm = session.client("ssm")
    values_before = {
        name: read_parameter(ssm, stage.parameter_prefix + name) for name in MANUAL_PARAMETERS
    }
    admin_token.ensure_key(ssm, stage.parameter_prefix)
    webhook_key.ensure_key(ssm, stage.parameter_prefix)
    outputs = PROJECT_ROOT / "cdk.out" / f"{stage.name}-outputs.json"
    outputs.parent.mkdir(exist_ok=True)
    options = ["--require-approval=never", *_stage_options(stage), *extra_options]
    exit_code = _deploy_stacks(stage, missing, cdk, say, outputs, options)
    _restore_parameters(ssm, stage, values_before, say)
    if exit_code:
        return exit_code
    token = admin_token.put_first_token(ssm, stage.parameter_prefix)
    if token is not None:
        _hand_out_token(token, f"{stage.name}-{account}-{region}", say, is_terminal)
    shown_token = token if token is not None and is_terminal else None
    _print_welcome(stage, json.loads(outputs.read_text()), shown_token, say)
    return 0


def _check_ready(
    stage: Stage, session: Any, account: str, region: str, say: Say
) -> tuple[str, ...]:
    """Return the stacks that do not exist yet; raise if their creation would fail."""
    check_bootstrap(session, account, region)
    warnings = (check_concurrency(session, stage, account, region), missing_email_warning(stage))
    missing = missing_stacks(session, stage, say)
    check_log_groups(session, stage, missing)
    for warning in filter(None, warnings):
        say(warning)
    return missing


def _deploy_stacks(
    stage: Stage, missing: Sequence[str], cdk: Run, say: Say, outputs: Path, options: Sequence[str]
) -> int:
    """Deploy all stacks; protect new stacks once all of them exist."""
    new_stacks = missing if stage.protected else ()
    exit_code = cdk(
        ["deploy", "--all", f"--outputs-file={outputs}", *options, *unprotected_option(new_stacks)]
    )
    if exit_code and missing:
        say(f"The deployment failed. See {FAILED_DEPLOYMENT_PAGE}")
    if exit_code or not new_stacks:
        return exit_code
    names = [stack_name(stage, stack) for stack in new_stacks]
    say(f"All stacks exist. Protecting {', '.join(names)} from deletion.")
    return cdk(["deploy", *names, "--exclusively", *options])


def missing_email_warning(stage: Stage) -> str:
    """Return a warning if alarms send no mail."""
    if not stage.protected or stage.alarm_email is not None:
        return ""
    return (
        f"Warning: `alarmEmail` of {stage.name} is null in cdk.json, so alarms and the budget send "
        "no mail. Set it, or subscribe to the output AlarmTopic"
    )


def new_token(stage: Stage, session: Any, say: Say, is_terminal: bool = False) -> int:
    account, region = account_of(session)
    ssm = session.client("ssm")
    admin_token.read_token_hash(ssm, stage.parameter_prefix)
    say(f"A new admin token for Punctual ({stage.name}) in account {account}, {region}.")
    token = admin_token.put_new_token(ssm, stage.parameter_prefix)
    _hand_out_token(token, f"{stage.name}-{account}-{region}", say, is_terminal)
    say("The new token replaces the former one within a minute.")
    return 0


def new_webhook_key(stage: Stage, session: Any, say: Say) -> int:
    account, region = account_of(session)
    webhook_key.rotate_key(session.client("ssm"), stage.parameter_prefix)
    say(
        f"Webhooks of Punctual ({stage.name}) in account {account}, {region} are signed with a new "
        "secret within a minute, and also with the former one until the next rotation. Give "
        "receivers the new secret before then (GET /webhook-secret, for each tenant)."
    )
    return 0


def destroy(stage: Stage, session: Any, cdk: Run, say: Say, is_confirmed: bool) -> int:
    """Delete the stage with all its data; fail if it is protected."""
    account, region = account_of(session)
    if stage.protected:
        raise NotReady(
            f"stage {stage.name} is protected, so its tables, buckets and stacks cannot be "
            "deleted. Set `protected` to false in cdk.json and deploy first"
        )
    if not is_confirmed:
        raise NotReady(
            "this permanently deletes every job, run, output and secret of Punctual "
            f"({stage.name}) in account {account}, {region}. To confirm: "
            f"make destroy STAGE={stage.name} YES=1"
        )
    # Remove the queues and all stacks that depend on them first, so that no function writes into
    # a bucket while it is emptied.
    exit_code = cdk(
        ["destroy", f"Punctual-{stage.name}-Scheduling", "--force", *_stage_options(stage)]
    )
    if exit_code:
        return exit_code
    removed_count = empty_buckets(session, f"Punctual-{stage.name}-Data")
    say(f"{removed_count} objects and versions removed from the buckets.")
    exit_code = cdk(["destroy", "--all", "--force", *_stage_options(stage)])
    if not exit_code:
        ssm = session.client("ssm")
        for name in (TOKEN_KEY_PARAMETER, WEBHOOK_KEY_PARAMETER):
            delete_parameter(ssm, stage.parameter_prefix + name)
        secret_count = delete_parameters_below(ssm, f"{stage.parameter_prefix}secrets")
        say(f"{secret_count} secrets of jobs removed.")
        say(f"Nothing of Punctual ({stage.name}) is left in account {account}, {region}.")
    return exit_code


def _restore_parameters(
    ssm: Any, stage: Stage, values_before: Mapping[str, str | None], say: Say
) -> None:
    for name, value in values_before.items():
        present_value = read_parameter(ssm, stage.parameter_prefix + name)
        if (
            value not in (None, MANUAL_PARAMETERS[name], present_value)
            and present_value is not None
        ):
            ssm.put_parameter(
                Name=stage.parameter_prefix + name, Value=value, Type="String", Overwrite=True
            )
            say(f"{stage.parameter_prefix}{name} has its value from before this deployment again.")


def _print_welcome(
    stage: Stage, outputs: Mapping[str, Mapping[str, str]], token: str | None, say: Say
) -> None:
    """Print the API's address, the links into the AWS console and a first call."""
    api_outputs = outputs[f"Punctual-{stage.name}-Api"]
    address = api_outputs["Address"]
    say(f"\nThe API: {address}")
    if "DomainPointsTo" in api_outputs:
        say(f"The DNS record of the API must point to {api_outputs['DomainPointsTo']}")
    for title, stack, name in CONSOLE_LINKS:
        link = outputs.get(f"Punctual-{stage.name}-{stack}", {}).get(name)
        if link is not None:
            say(f"{title}: {link}")
    token_text = token or "$PUNCTUAL_TOKEN"
    say(
        f'\nA first job:\n  curl -s {address}/jobs -H "Authorization: Bearer {token_text}" '
        "-H 'Content-Type: application/json' "
        '-d \'{"name": "hello", "schedule_type": "IMMEDIATE"}\''
    )


def _hand_out_token(token: str, file_name: str, say: Say, is_terminal: bool) -> None:
    """Show the token at a terminal, or write it to a file, because others can read a log."""
    if is_terminal:
        say(f"The admin token (shown only once): {token}")
        return
    path = PROJECT_ROOT / TOKENS_FOLDER / file_name
    admin_token.write_token_file(path, token)
    say(
        f"The admin token is in {path}, which only you can read. Move it to a secret store and "
        "delete the file. If the file is lost, as in CI, run `make token` at a terminal."
    )


def is_at_terminal(environment: Mapping[str, str]) -> bool:
    """Return whether a person reads the output. Some CI systems attach a terminal to their logs."""
    return sys.stdout.isatty() and not environment.get("CI")


def _stage_options(stage: Stage) -> list[str]:
    return [f"--context=stage={stage.name}", f"--output=cdk.out/{stage.name}"]


def _run_cdk(arguments: Sequence[str]) -> int:
    if not CDK_COMMAND.is_file():
        raise NotReady("the CDK's command line is not installed. Run `npm ci`")
    return subprocess.run([str(CDK_COMMAND), *arguments], cwd=PROJECT_ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.operations.deploy")
    parser.add_argument("what", choices=("deploy", "token", "webhook-key", "destroy"))
    parser.add_argument("stage")
    parser.add_argument("--yes", action="store_true", help="destroy without confirmation")
    options, extra = parser.parse_known_args(arguments)
    try:
        stage = read_stage(options.stage, read_context()["stages"])
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        if options.what == "deploy":
            return deploy(stage, session, _run_cdk, print, extra, is_at_terminal(os.environ))
        if extra:
            parser.error(f"unknown arguments: {' '.join(extra)}")
        if options.what == "token":
            return new_token(stage, session, print, is_at_terminal(os.environ))
        if options.what == "webhook-key":
            return new_webhook_key(stage, session, print)
        return destroy(stage, session, _run_cdk, print, options.yes)
    except (NotReady, WrongStage) as error:
        print(f"{options.what}: {error}", file=sys.stderr)
    except (BotoCoreError, ClientError) as error:
        print(f"{options.what}: {one_line(error)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
