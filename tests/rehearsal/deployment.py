"""A stage put into the emulator by the commands that `make deploy` and `make destroy` run."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rehearsal.emulator import ACCOUNT, REGION, ROOT, Account
from tests.rehearsal.left_behind import Standing, standing
from tests.rehearsal.progress import Failed, checked, run, step
from tests.support.acceptance.contract import a_client, eventually

CDK = "node_modules/.bin/cdk"
STAGE = "rehearsal"
KEPT = re.compile(r"The admin token is in (\S+), which")
STACK = re.compile(r"^ *(✅|❌)|: (deploying|destroying)|^[A-Za-z].* removed from its buckets")
CLEAN = "Number of stacks with differences: 0"


class Deployment:
    """`tree` is where the code to deploy is: this one, or another release."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], context: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._context = [f"--context={name}={value}" for name, value in context.items()]

    def bootstrap(self) -> None:
        self._run("bootstrap", ROOT, CDK, "bootstrap", f"aws://{ACCOUNT}/{REGION}", *self._stage())

    def deploy(self, tree: Path = ROOT) -> str | None:
        """The admin token, if this deploy made one."""
        return token_in(self._run("deploy", tree, *DEPLOY, "deploy", STAGE, *self._context))

    def destroy(self) -> None:
        self._run("destroy", ROOT, *DESTROY)

    def deploy_alone(self, stack: str, tree: Path = ROOT) -> None:
        options = ("--exclusively", "--require-approval=never")
        self._run("deploy", tree, CDK, "deploy", whole_name(stack), *options, *self._stage())

    def destroy_alone(self, stack: str) -> None:
        self._run("destroy", ROOT, *self._gone(stack))

    def refuses_to_go(self, tree: Path, stack: str) -> None:
        """Of a stage that is protected: neither all of it, nor a stack by the CDK's own hand."""
        for command, why in (
            (DESTROY, f"stage {STAGE} is protected"),
            (self._gone(stack), "TerminationProtection is enabled"),
        ):
            code, said = self._try("destroy", tree, *command)
            if not code or why not in said:
                raise Failed(f"{code} and not refused because {why!r}:\n{said[-3_000:]}")

    def diff(self, when: str, tree: Path = ROOT) -> None:
        """A template that says something else without a change of ours would be noise."""
        with step(f"cdk diff {when}"):
            code, said = self._try("diff", tree, CDK, "diff", "--all", "--no-color", *self._stage())
        if code:
            raise Failed(f"cdk diff failed with {code}:\n{said[-3_000:]}")
        if CLEAN not in said:
            raise Failed(f"cdk diff {when} is not clean:\n{said[-3_000:]}")

    def _gone(self, stack: str) -> list[str]:
        return [CDK, "destroy", whole_name(stack), "--force", *self._stage()]

    def _stage(self) -> list[str]:
        return [f"--context=stage={STAGE}", f"--output=cdk.out/{STAGE}", *self._context]

    def _in(self, tree: Path) -> dict[str, str]:
        return {**self._environment, "PYTHONPATH": f"{tree}:{tree / 'layers/core/python'}"}

    def _run(self, name: str, tree: Path, *command: str) -> str:
        log = self._folder / f"{name}.log"
        return checked(command, self._in(tree), log, lambda line: bool(STACK.search(line)), tree)

    def _try(self, name: str, tree: Path, *command: str) -> tuple[int, str]:
        log = self._folder / f"{name}.log"
        return run(command, self._in(tree), log, lambda _line: False, tree)


DEPLOY = (sys.executable, "-m", "infra.operations.deploy")
DESTROY = (*DEPLOY, "destroy", STAGE, "--yes")


def whole_name(stack: str) -> str:
    """
    >>> whole_name("Execution")
    'Punctual-rehearsal-Execution'
    """
    return f"Punctual-{STAGE}-{stack}"


def token_in(said: str) -> str | None:
    """The admin token, if this deploy made one; it is taken out of the file that keeps it."""
    kept = KEPT.search(said)
    if kept is None:
        return None
    token = Path(kept[1]).read_text().strip()
    Path(kept[1]).unlink()
    return token


def address(account: Account) -> str:
    """Where this emulator serves the HTTP API; the stack's output names AWS's own address."""
    apis = account.client("apigatewayv2").get_apis()["Items"]
    (api,) = [api for api in apis if api["Name"].startswith(f"punctual-{STAGE}")]
    return f"{account.endpoint}/_aws/execute-api/{api['ApiId']}/v1"


def ticking(url: str) -> None:
    """A deployment is down until its planner has been seen, a minute at most."""
    with a_client(url, None) as http:
        eventually(lambda: http.get("/health").status_code == 200, 90)


def destroyed(account: Account, before: Standing) -> None:
    """Nothing of the stage stands any more, and all that stood before it."""
    after = standing(account.client)
    if str(after - before):
        raise Failed(f"make destroy left behind: {after - before}")
    if str(before - after):
        raise Failed(f"make destroy took what was never its own: {before - after}")
