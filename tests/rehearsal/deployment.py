"""The pinned CDK command line against an emulator: bootstrap, deploy, destroy."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rehearsal.emulator import ACCOUNT, REGION, ROOT

CDK = ROOT / "node_modules" / ".bin" / "cdk"
WITHIN = 600.0


class Failed(RuntimeError):
    """A command did not do what the rehearsal asked of it."""


class Deployment:
    """One stage's stacks; `folder` keeps what the command line writes."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], context: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._context = [f"--context={name}={value}" for name, value in context.items()]

    def bootstrap(self) -> None:
        self._cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}")

    def deploy(self) -> dict[str, dict[str, str]]:
        """Its outputs by stack."""
        outputs = self._folder / "outputs.json"
        self._cdk(
            "deploy", "--all", "--require-approval=never", f"--outputs-file={outputs}", "--no-color"
        )
        found: dict[str, dict[str, str]] = json.loads(outputs.read_text())
        return found

    def diff(self) -> str:
        return self._cdk("diff", "--all", "--no-color", "--fail=false")

    def destroy(self) -> None:
        self._cdk("destroy", "--all", "--force", "--no-color")

    def _cdk(self, command: str, *arguments: str) -> str:
        work = f"--output={self._folder / 'cdk.out'}"
        return run(
            [str(CDK), command, *self._context, work, *arguments],
            self._environment,
            self._folder / f"{command}.log",
        )


def run(command: Sequence[str], environment: Mapping[str, str], log: Path) -> str:
    """What it said, on both streams, which `log` keeps too."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[1]} took over {WITHIN:.0f} s") from error
    said = done.stdout.decode(errors="replace")
    log.write_text(said)
    if done.returncode:
        raise Failed(f"{' '.join(command[:2])} failed; {log} ends:\n{said[-3_000:]}")
    return said
