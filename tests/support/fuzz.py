"""Run generated calls against the local node for `make fuzz`.

The node is a process on loopback with a temporary folder, and it requires tokens. Its tasks do
nothing (`tests/support/fuzz_node.py`).
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

ROOT = Path(__file__).parents[2]
CAMPAIGN = ("--max-examples", "10", "--max-time", "300")
WANTED = 10_000
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/v1")
_CASES = re.compile(r"^\s+([\d,]+) generated", re.MULTILINE)


class Node(NamedTuple):
    address: str
    token: str
    log: Path

    def faults(self) -> list[str]:
        """Return the internal errors in the node's log."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if "_failed" in line and "attempt_failed" not in line]


class Campaign(NamedTuple):
    cases: int
    code: int
    output: str
    faults: list[str]


@contextmanager
def a_node(folder: Path, program: str = "tests.support.fuzz_node") -> Iterator[Node]:
    """Yield a node that requires tokens, with the token of its first admin."""
    env = {
        **os.environ,
        "PUNCTUAL_AUTH": "on",
        "PUNCTUAL_PORT": "0",
        "PUNCTUAL_DATA": str(folder / "data"),
    }
    log = folder / "node.log"
    with log.open("w") as log_file:
        command = [sys.executable, "-m", program]
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log_file, text=True
        )
    assert process.stdout is not None
    try:
        address = ""
        for line in process.stdout:
            if ready := _ADDRESS.search(line):
                address = ready[0]
                break
        assert address, "the node did not start"
        token = (folder / "data" / "admin-token").read_text().strip()
        yield Node(address, token, log)
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def campaign(options: Sequence[str]) -> Campaign:
    """Run schemathesis with `schemathesis.toml`, and return its result with its output."""
    with tempfile.TemporaryDirectory() as folder, a_node(Path(folder)) as node:
        whoami = httpx.get(
            f"{node.address}/whoami",
            headers={"Authorization": f"Bearer {node.token}"},
            trust_env=False,
        )
        env = {
            **os.environ,
            "PUNCTUAL_TOKEN": node.token,
            "PUNCTUAL_TOKEN_ID": whoami.json()["token_id"],
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"]
        command += ["run", f"{node.address}/openapi.json", *options]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        match = _CASES.search(done.stdout)
        cases = int(match[1].replace(",", "")) if match else 0
        return Campaign(cases, done.returncode, done.stdout, node.faults())


def main(options: Sequence[str]) -> int:
    done = campaign(options or CAMPAIGN)
    print(done.output)
    print(f"{done.cases:,} cases, {len(done.faults)} faults inside the node")
    for line in done.faults[:20]:
        print(line)
    if done.cases < WANTED and not options:
        print(f"These are fewer than {WANTED:,}.")
        return 1
    return done.code or bool(done.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
