"""`make rehearse`: deploy to an emulator of AWS, run the acceptance suite, destroy.

A successful rehearsal is necessary but not sufficient, because the emulator is less strict than
AWS.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rehearsal.acceptance import PAGES, SUITE, Accepted, accept, merged
from tests.rehearsal.cors_check import check_cors
from tests.rehearsal.deployment import (
    CONTEXT,
    Deployment,
    check_destroyed,
    tell_api_address,
    wait_for_tick,
)
from tests.rehearsal.emulator import FOLDER, Account, emulator
from tests.rehearsal.inventory import Inventory, inventory_of
from tests.rehearsal.progress import Failed, step
from tests.rehearsal.recovery import recover
from tests.rehearsal.role_check import check_roles, script_keys
from tests.rehearsal.targets import put_targets
from tests.rehearsal.updates import change

UNTICKED = [
    f"{SUITE}/access/test_audit.py",
    f"{SUITE}/access/test_problems.py",
    f"{SUITE}/access/test_tokens.py",
    f"{SUITE}/access/test_raw_requests.py",
    f"{SUITE}/jobs/test_job_errors.py",
]
TICKED = [SUITE, *(f"--ignore={name}" for name in UNTICKED)]
# These take a minute, so they run once, where scripts hold no more than on AWS.
ONLY_WITH_ROLES = [
    f"{SUITE}/runs/test_followed_logs.py",
    f"{SUITE}/runs/test_hostile_scripts.py",
    f"{SUITE}/runs/test_one_job_file.py",
    f"{SUITE}/runs/test_script_cancel.py",
    f"{SUITE}/runs/test_scripts.py",
]
TICKED_WITHOUT_ROLES = [*TICKED, *(f"--ignore={name}" for name in ONLY_WITH_ROLES)]


@dataclass(frozen=True)
class Pass:
    """One deployment and its removal, checked against the whole contract.

    `more` adds all further checks. With `recovers`, the first deployment fails, and the stage is
    restored to an earlier time.
    """

    name: str
    what: str
    options: Mapping[str, str] = field(default_factory=dict)
    more: bool = False
    recovers: bool = False


PASSES = (
    Pass("whole", "all checks, with all rights", more=True),
    Pass("roles", "each function under its own role", {"AUTH": "true"}),
    Pass(
        "recovery",
        "a failed first deployment, and a restore to an earlier time",
        {"AUTH": "true", "LAMBDA_ACCOUNT_CONCURRENCY": "400"},
        recovers=True,
    ),
)


def deployed(account: Account, deployment: Deployment, before: Inventory) -> str:
    """Deploy the stage, and return the admin token."""
    with step("make deploy"):
        token = deployment.deploy()
    if token is None:
        raise Failed("the first deploy made no admin token")
    unlisted = (inventory_of(account.client) - before).missing
    if unlisted:
        raise Failed(f"no resource found of these kinds: {', '.join(unlisted)}")
    deployment.diff("after a deploy")
    return token


def rehearse(rehearsal_pass: Pass, folder: Path) -> Accepted:
    chosen = os.environ.get("T", "").split()
    has_roles = "AUTH" in rehearsal_pass.options
    with emulator(folder, rehearsal_pass.options) as account:
        os.environ["PUNCTUAL_AUTHORITY"] = str(account.authority)  # the CA of our own calls
        deployment = Deployment(folder, account.environment, CONTEXT)
        with step("cdk bootstrap"):
            deployment.bootstrap()
        if has_roles:
            check_roles(account)
        if rehearsal_pass.recovers:
            return recover(account, folder)
        environment = {**account.environment, **put_targets(account)}
        before = inventory_of(account.client)
        token = deployed(account, deployment, before)
        if has_roles:
            environment |= script_keys(account)
        url = tell_api_address(account)
        with step("a page of another origin"):
            check_cors(url, token)
        results: list[Accepted] = []
        if not chosen:
            with step(f"acceptance tests without ticks against {url}"):
                results.append(accept(url, token, environment, UNTICKED, folder, "early"))
        with step("the first tick"):
            wait_for_tick(url)
        with step(f"acceptance against {url}"):
            ticked = TICKED if has_roles else TICKED_WITHOUT_ROLES
            results.append(accept(url, token, environment, chosen or ticked, folder))
        if rehearsal_pass.more and not chosen:
            with step("commands of the pages"):
                accept(url, token, environment, [PAGES], folder, "docs")
        if rehearsal_pass.more:
            change(url, token, account, deployment, folder)
        with step("make destroy"):
            deployment.destroy()
        check_destroyed(account, before)
        return merged(results)


def exit_on_signal(number: int, _frame: object) -> None:
    sys.exit(128 + number)  # leaves all contexts, which stops the emulator


def processor() -> float:
    """Return the CPU seconds of ended child processes. Other programs do not affect them."""
    spent = os.times()
    return spent.children_user + spent.children_system


def main(chosen: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, exit_on_signal)
    names = [rehearsal_pass.name for rehearsal_pass in PASSES]
    if not set(chosen) <= set(names):
        print(f"unknown pass; choose from {', '.join(names)}", file=sys.stderr)
        return 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    summaries: list[str] = []
    for rehearsal_pass in PASSES:
        if (chosen and rehearsal_pass.name not in chosen) or (
            rehearsal_pass.recovers and os.environ.get("T")
        ):
            continue
        folder = FOLDER / rehearsal_pass.name
        folder.mkdir(parents=True)
        began, worked = time.monotonic(), processor()
        print(f"== rehearsal: {rehearsal_pass.what}", flush=True)
        try:
            result = rehearse(rehearsal_pass, folder)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
        duration, worked = time.monotonic() - began, processor() - worked
        summaries.append(
            f"== rehearsed {rehearsal_pass.what}: {result.summary}; {duration:.0f} s in all, "
            f"{worked:.0f} s of processor"
        )
        summaries += [f"   {count} skipped: {why}" for why, count in result.skipped.items()]
    print("\n".join(summaries))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
