"""A stage put into the emulator by the commands that `make deploy` and `make destroy` run."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rehearsal.emulator import ACCOUNT, REGION, ROOT
from tests.rehearsal.progress import Failed, checked, run

CDK = "node_modules/.bin/cdk"
STAGE = "rehearsal"
TOKEN = re.compile(r"\bpnc_[A-Za-z0-9_-]{43,}")
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
        said = self._run("deploy", tree, *DEPLOY, "deploy", STAGE, *self._context)
        shown = TOKEN.search(said)
        return shown and shown[0]

    def destroy(self) -> None:
        self._run("destroy", ROOT, *DEPLOY, "destroy", STAGE, "--yes")

    def diff(self, tree: Path = ROOT) -> str:
        """Nothing, or what would change."""
        command = [CDK, "diff", "--all", "--no-color", *self._stage()]
        code, said = run(
            command, self._in(tree), self._folder / "diff.log", lambda _line: False, tree
        )
        if code:
            raise Failed(f"cdk diff failed with {code}:\n{said[-3_000:]}")
        return "" if CLEAN in said else said

    def _stage(self) -> list[str]:
        return [f"--context=stage={STAGE}", f"--output=cdk.out/{STAGE}", *self._context]

    def _in(self, tree: Path) -> dict[str, str]:
        return {**self._environment, "PYTHONPATH": f"{tree}:{tree / 'layers/core/python'}"}

    def _run(self, name: str, tree: Path, *command: str) -> str:
        log = self._folder / f"{name}.log"
        return checked(command, self._in(tree), log, lambda line: bool(STACK.search(line)), tree)


DEPLOY = (sys.executable, "-m", "infra.deploy")
