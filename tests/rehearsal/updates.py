"""Updates while jobs run: all stacks, one stack alone, and one optional stack.

Each update is followed by one back to this release, so that `make destroy` removes this release.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx

from punctual.settings import PRODUCT_VERSION
from tests.rehearsal.deployment import Deployment, stack_name
from tests.rehearsal.emulator import ROOT, Account
from tests.rehearsal.inventory import inventory_of
from tests.rehearsal.progress import Failed, step
from tests.rehearsal.recurring_jobs import Recurring
from tests.rehearsal.release import NEXT, next_release
from tests.support.acceptance.contract import Api, a_client, eventually
from tests.support.acceptance.target import a_target

ALONE = "Execution"
OPTIONAL_STACK = "Observability"
OPTIONAL_KINDS = {"alarm", "dashboard", "key", "stack", "topic"}  # saved queries are not emulated
CALL_INTERVAL_SECONDS = 0.3  # seconds between calls


def change(url: str, token: str, account: Account, deployment: Deployment, folder: Path) -> None:
    """Check that each occurrence has one outcome during all deployments."""
    following = next_release(folder)
    with a_client(url, token) as http, a_target() as target:
        api = Api(http)
        jobs = Recurring(api, target)
        try:
            jobs.running()
            _update(api, deployment, NEXT, following)
            with step("make destroy of a protected stage"):
                deployment.refuses_to_go(following, OPTIONAL_STACK)
            _update(api, deployment, PRODUCT_VERSION, ROOT)
            with _api_available(url, token):
                for version, tree in ((NEXT, following), (PRODUCT_VERSION, ROOT)):
                    with step(f"{ALONE} alone to {version}"):
                        _alone(account, deployment, tree)
                _replace_optional_stack(account, deployment)
            deployment.diff("after all updates")
            for ledger in jobs.end():
                print(f"   {ledger}")
        finally:
            api.clear()


def _update(api: Api, deployment: Deployment, version: str, tree: Path) -> None:
    with step(f"update to {version}"):
        if deployment.deploy(tree) is not None:
            raise Failed("an update made a new admin token")
        eventually(partial(_serves, api, version), 30)
    deployment.diff(f"at {version}", tree)


def _serves(api: Api, version: str) -> bool:
    return bool(api("GET", "/health").json()["version"] == version)


def _alone(account: Account, deployment: Deployment, tree: Path) -> None:
    before = _code(account)
    deployment.deploy_alone(ALONE, tree)
    changed = {name for name, code in _code(account).items() if code != before.get(name)}
    own = _functions_of(account, ALONE)
    if changed != own:
        raise Failed(f"{ALONE} holds {sorted(own)}, and alone it changed {sorted(changed)}")


def _code(account: Account) -> dict[str, list[str]]:
    """Return the code hash and the layers of each function. They change with the code."""
    pages = account.client("lambda").get_paginator("list_functions").paginate()
    return {
        function["FunctionName"]: [
            function["CodeSha256"],
            *(layer["Arn"] for layer in function.get("Layers", [])),
        ]
        for page in pages
        for function in page["Functions"]
    }


def _functions_of(account: Account, stack: str) -> set[str]:
    pages = account.client("cloudformation").get_paginator("list_stack_resources")
    return {
        resource["PhysicalResourceId"]
        for page in pages.paginate(StackName=stack_name(stack))
        for resource in page["StackResourceSummaries"]
        if resource["ResourceType"] == "AWS::Lambda::Function"
    }


def _replace_optional_stack(account: Account, deployment: Deployment) -> None:
    with step(f"{OPTIONAL_STACK} is destroyed"):
        complete = inventory_of(account.client)
        deployment.destroy_alone(OPTIONAL_STACK)
        without = inventory_of(account.client)
    if (complete - without).kinds != OPTIONAL_KINDS or str(without - complete):
        raise Failed(f"{OPTIONAL_STACK} removed: {complete - without}; added: {without - complete}")
    with step(f"{OPTIONAL_STACK} is deployed again"):
        deployment.deploy_alone(OPTIONAL_STACK)
        restored = inventory_of(account.client)
    # The key has another id each time.
    if (complete - restored).kinds - {"key"} or (restored - without).kinds != OPTIONAL_KINDS:
        raise Failed(f"{OPTIONAL_STACK} was created again without: {complete - restored}")


@contextmanager
def _api_available(url: str, token: str) -> Iterator[None]:
    """Call the API during the block, and fail unless every call succeeds."""
    over, answers = threading.Event(), Counter[str]()
    asking = threading.Thread(target=_ask, args=(url, token, over, answers))
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    if set(answers) != {"200"}:
        raise Failed(f"during deployments of single stacks the API answered {dict(answers)}")
    print(f"   the API answered all {answers.total()} calls")


def _ask(url: str, token: str, over: threading.Event, answers: Counter[str]) -> None:
    with a_client(url, token) as http:
        while not over.wait(CALL_INTERVAL_SECONDS):
            try:
                answers[str(http.get("/jobs", params={"limit": 1}).status_code)] += 1
            except httpx.HTTPError as error:
                answers[repr(error)] += 1
