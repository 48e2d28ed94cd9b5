"""Recovery: a first deployment that fails, and a restore to an earlier time.

The commands are those of docs/runbook.md, in a separate checkout. The stage is protected and
reserves executions as `prod` does.
"""

import json
import re
from pathlib import Path

from tests.rehearsal.acceptance import Accepted
from tests.rehearsal.deployment import (
    CDK,
    STAGE,
    check_destroyed,
    stack_name,
    tell_api_address,
    token_in,
    wait_for_tick,
)
from tests.rehearsal.emulator import ROOT, Account
from tests.rehearsal.inventory import inventory_of
from tests.rehearsal.progress import Failed, step
from tests.rehearsal.release import Described, checkout, describe
from tests.rehearsal.restore_check import RestoreCheck, back_up
from tests.rehearsal.runbook import Person, printed
from tests.support.acceptance.contract import Api, a_client
from tests.support.acceptance.target import a_target

STACKS = ("Data", "Scheduling", "Execution", "Api", "Observability")
FORMER_LOG_GROUP = f"/aws/lambda/punctual-{STAGE}-job-search"
LOWER = re.compile(rf"`concurrencyPercent` of {STAGE} to (\d+) in cdk.json")
CONTEXT = "--context=vendorFor=host"
DEPLOY = "make deploy STAGE=$STAGE"


def recover(account: Account, folder: Path) -> Accepted:
    tree = checkout(folder / "checkout")
    describe(tree, _like_prod)
    person = Person(account, tree, folder / "typed.log", {"STAGE": STAGE, "CDK": CONTEXT})
    before = inventory_of(account.client)
    token = _first_deployment(account, person, tree)
    url = tell_api_address(account)
    with step("the first tick"):
        wait_for_tick(url)
    with a_client(url, token) as http, a_target() as target:
        api = Api(http)
        moment = RestoreCheck(account, api, target)
        with step("jobs before the restore time, and changes after it"):
            moment.before()
            at = back_up(account)
            moment.after()
        _restore(account, person, moment, f"{at:%Y-%m-%dT%H:%M:%SZ}")
        with step("jobs, runs and schedules of that time exist and run"):
            moment.is_back()
        api.clear()
    _remove(account, person, tree)
    check_destroyed(account, before)
    return Accepted("recovered a failed first deployment, restored an earlier time", {})


def _like_prod(stage: Described) -> None:
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    names = ("lanes", "reservedConcurrency", "claimThrottle")
    stage.update(protected=True, **{name: stages["prod"][name] for name in names})


def _first_deployment(account: Account, person: Person, tree: Path) -> str:
    """Return the admin token."""
    stacks, export, events, deploy, *_ = printed("A first deployment that failed")
    with step("a first deployment that fails at the limit of the account"):
        person.is_refused(f"{CDK} deploy --all --require-approval=never {_stage()}")
        rows = [line.split("\t") for line in person.types(stacks).splitlines()]
        (stack,) = [name for name, state in rows if state == "ROLLBACK_COMPLETE"]
        person.exports(export, stack)
        _expect("below its minimum value of [100]", person.types(events))
    with step("make deploy names the setting to lower and the former log groups"):
        account.client("logs").create_log_group(logGroupName=FORMER_LOG_GROUP)
        refused = person.is_refused(deploy, "has a limit of 400")
        (percent,) = LOWER.findall(refused)
        describe(tree, lambda stage: stage.update(concurrencyPercent=int(percent)))
        opened = f"{stack} was never complete. Its protection from deletion is removed."
        refused = person.is_refused(deploy, opened, "log groups of an earlier stage")
        for line in re.findall(r"^ +(aws logs delete-log-group .*)$", refused, re.MULTILINE):
            person.types(line)
    with step("make deploy creates the failed stack again, and protects all"):
        output = person.types(deploy)
        _expect(f"{stack} could not be created before (ROLLBACK_COMPLETE)", output)
        _all_protected(account)
    token = token_in(output)
    if token is None:
        raise Failed("the first deploy made no admin token")
    return token


def _all_protected(account: Account) -> None:
    client = account.client("cloudformation")
    for stack in STACKS:
        (description,) = client.describe_stacks(StackName=stack_name(stack))["Stacks"]
        if not description["EnableTerminationProtection"]:
            raise Failed(f"{stack_name(stack)} is not protected from deletion")
    for table in _tables(account):
        description = account.client("dynamodb").describe_table(TableName=table)["Table"]
        if not description["DeletionProtectionEnabled"]:
            raise Failed(f"{table} is not protected from deletion")


def _restore(account: Account, person: Person, moment: RestoreCheck, at: str) -> None:
    export, restore, deploy, resume = printed("Restore to one moment")
    former = _tables(account)
    person.exports(export, at)
    with step("make restore"):
        person.types(restore)
        moment.is_closed()
    with step("make deploy with the restored tables"):
        person.types(deploy)
        moment.is_closed()
    with step("make resume"):
        person.types(resume)
    if not former < _tables(account):
        raise Failed("a protected stage lost its former tables")


def _remove(account: Account, person: Person, tree: Path) -> None:
    """Remove the stage and its restored tables."""
    off, delete = printed("A first deployment that failed")[-2:]
    with step("make destroy, and the tables outside the stacks"):
        describe(tree, lambda stage: stage.update(protected=False))
        person.types(DEPLOY)
        person.types("make destroy STAGE=$STAGE YES=1")
        for table in sorted(_tables(account)):
            person.exports("export TABLE=", table)
            person.types(off)
            person.types(delete)


def _tables(account: Account) -> set[str]:
    return set(account.client("dynamodb").list_tables()["TableNames"])


def _stage() -> str:
    return f"--context=stage={STAGE} --output=cdk.out/{STAGE} {CONTEXT}"


def _expect(part: str, output: str) -> None:
    if part not in output:
        raise Failed(f"{part!r} is missing in the output:\n{output[-3_000:]}")
