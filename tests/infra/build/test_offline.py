"""Synthesis works without an AWS account and without a network.

The layers are not built here. The vendor layer is downloaded once and then kept.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.config.cdk_json import PROJECT_ROOT as ROOT
from tests.support.infra.synthesis import NO_LAYERS, assembly

SYNTHESIS = "import runpy; runpy.run_module('infra.app', run_name='__main__')"
# Name resolution is refused as well, because it uses the network.
REFUSED = """
import socket

def refuse(*arguments, **options):
    raise SystemExit(f"the network was asked for: {arguments[-1]}")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
"""
REFUSED_IN_NODE = """
const refuse = (...asked) => {
  require("fs").writeSync(2, `the network was asked for: ${JSON.stringify(asked[0])}\\n`);
  process.exit(9);
};
require("net").Socket.prototype.connect = refuse;
require("dgram").Socket.prototype.send = refuse;
for (const name of ["lookup", "resolve", "resolve4", "resolve6"]) require("dns")[name] = refuse;
"""


def offline(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python and the Node of the CDK without network and credentials."""
    hook = folder / "refused.cjs"
    hook.write_text(REFUSED_IN_NODE)
    environment = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
    environment |= {
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "CDK_CONTEXT_JSON": json.dumps({"aws:cdk:bundling-stacks": NO_LAYERS}),
        "CDK_OUTDIR": str(folder / "out"),
        "NODE_OPTIONS": f"--require {hook}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, "-c", REFUSED + code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_stage_is_synthesised_without_account_and_network(tmp_path: Path) -> None:
    answer = offline(SYNTHESIS, tmp_path)
    assert answer.returncode == 0, answer.stderr[-2000:]
    for stack in assembly("dev").stacks:
        written = tmp_path / "out" / f"{stack.stack_name}.template.json"
        assert json.loads(written.read_text()) == stack.template


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import subprocess, sys; node = ['node', '-e', 'fetch(\"http://127.0.0.1:8009/\")']; "
        "sys.exit(subprocess.run(node).returncode)",
    ],
    ids=["a name", "an address", "in Node"],
)
def test_network_access_is_refused(tmp_path: Path, code: str) -> None:
    answer = offline(code, tmp_path)
    assert answer.returncode != 0
    assert "the network was asked for" in answer.stderr
