"""A stage in the emulator, deployed with the commands of `make deploy` and `make destroy`."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rehearsal.emulator import ACCOUNT, REGION, ROOT, Account
from tests.rehearsal.inventory import Inventory, inventory_of
from tests.rehearsal.progress import Failed, run, run_checked, step
from tests.support.acceptance.contract import a_client, eventually

CDK = "node_modules/.bin/cdk"
STAGE = "rehearsal"
CONTEXT = {"vendorFor": "host"}  # the functions of the emulator run on this machine
KEPT = re.compile(r"The admin token is in (\S+), which")
STACK = re.compile(r"^ *(✅|❌)|: (deploying|destroying)|^[A-Za-z].* removed from its buckets")
CLEAN = "Number of stacks with differences: 0"


class Deployment:
    """A stage and its commands. `tree` is the folder of the release to deploy."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], context: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._context = [f"--context={name}={value}" for name, value in context.items()]

    def bootstrap(self) -> None:
        self._run("bootstrap", ROOT, CDK, "bootstrap", f"aws://{ACCOUNT}/{REGION}", *self._stage())

    def deploy(self, tree: Path = ROOT) -> str | None:
        """Deploy all stacks, and return the admin token if the deploy created one."""
        return token_in(self._run("deploy", tree, *DEPLOY, "deploy", STAGE, *self._context))

    def destroy(self) -> None:
        self._run("destroy", ROOT, *DESTROY)

    def deploy_alone(self, stack: str, tree: Path = ROOT) -> None:
        options = ("--exclusively", "--require-approval=never")
        self._run("deploy", tree, CDK, "deploy", stack_name(stack), *options, *self._stage())

    def destroy_alone(self, stack: str) -> None:
        self._run("destroy", ROOT, *self._gone(stack))

    def refuses_to_go(self, tree: Path, stack: str) -> None:
        """Check that a protected stage refuses `make destroy` and the deletion of one stack."""
        for command, why in (
            (DESTROY, f"stage {STAGE} is protected"),
            (self._gone(stack), "TerminationProtection is enabled"),
        ):
            code, output = self._try("destroy", tree, *command)
            if not code or why not in output:
                raise Failed(f"{code} and not refused because {why!r}:\n{output[-3_000:]}")

    def diff(self, when: str, tree: Path = ROOT) -> None:
        """Check that `cdk diff` shows no difference."""
        with step(f"cdk diff {when}"):
            code, output = self._try(
                "diff", tree, CDK, "diff", "--all", "--no-color", *self._stage()
            )
        if code:
            raise Failed(f"cdk diff failed with {code}:\n{output[-3_000:]}")
        if CLEAN not in output:
            raise Failed(f"cdk diff {when} is not clean:\n{output[-3_000:]}")

    def _gone(self, stack: str) -> list[str]:
        return [CDK, "destroy", stack_name(stack), "--force", *self._stage()]

    def _stage(self) -> list[str]:
        return [f"--context=stage={STAGE}", f"--output=cdk.out/{STAGE}", *self._context]

    def _in(self, tree: Path) -> dict[str, str]:
        return {**self._environment, "PYTHONPATH": f"{tree}:{tree / 'layers/core/python'}"}

    def _run(self, name: str, tree: Path, *command: str) -> str:
        log = self._folder / f"{name}.log"
        return run_checked(
            command, self._in(tree), log, lambda line: bool(STACK.search(line)), tree
        )

    def _try(self, name: str, tree: Path, *command: str) -> tuple[int, str]:
        log = self._folder / f"{name}.log"
        return run(command, self._in(tree), log, lambda _line: False, tree)


DEPLOY = (sys.executable, "-m", "infra.operations.deploy")
DESTROY = (*DEPLOY, "destroy", STAGE, "--yes")


def stack_name(stack: str) -> str:
    """
    >>> stack_name("Execution")
    'Punctual-rehearsal-Execution'
    """
    return f"Punctual-{STAGE}-{stack}"


def token_in(output: str) -> str | None:
    """Return the admin token if the deploy created one, and delete its file."""
    match = KEPT.search(output)
    if match is None:
        return None
    token = Path(match[1]).read_text().strip()
    Path(match[1]).unlink()
    return token


def address(account: Account) -> str:
    """Return the API's address in the emulator. The stack's output has the address of AWS."""
    apis = account.client("apigatewayv2").get_apis()["Items"]
    (api,) = [api for api in apis if api["Name"].startswith(f"punctual-{STAGE}")]
    return f"{account.endpoint}/_aws/execute-api/{api['ApiId']}/v1"


def tell_api_address(account: Account) -> str:
    """Write the API's address in the emulator where executors read it, and return it."""
    url = address(account)
    name = f"/punctual/{STAGE}/api-address"
    account.client("ssm").put_parameter(Name=name, Value=url, Type="String", Overwrite=True)
    return url


def wait_for_tick(url: str) -> None:
    """Wait until the planner has run once. Until then the deployment is down."""
    with a_client(url, None) as http:
        eventually(lambda: http.get("/health").status_code == 200, 90)


def check_destroyed(account: Account, before: Inventory) -> None:
    """Check that a destroy removed all resources of the stage and no others."""
    after = inventory_of(account.client)
    if str(after - before):
        raise Failed(f"make destroy left behind: {after - before}")
    if str(before - after):
        raise Failed(f"make destroy deleted other resources: {before - after}")
