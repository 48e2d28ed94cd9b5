"""An emulator of AWS in its own process on loopback, without persistence."""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3

from infra.build.runner import build_runner
from tests.rehearsal.certificate import a_certificate
from tests.rehearsal.process_engine import IMAGES_VARIABLE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".rehearsal"  # logs and scratch files of rehearsals
COMMAND = (ROOT / ".venv-rehearse/bin/python", ROOT / "tests/rehearsal/launch.py")
ACCOUNT = "000000000000"
REGION = "us-east-1"
# The images that the emulator knows. `scriptsImage` of the stage is the first.
SCRIPTS_IMAGE = "punctual-scripts:rehearsal"
RUNNER_IMAGE, PLAIN_IMAGE = "punctual-runner:rehearsal", "plain:rehearsal"
START_SECONDS = 30.0
STOP_SECONDS = 10.0


class NotReady(RuntimeError):
    """The emulator did not start. Its log has the reason."""


def entry_points() -> dict[str, list[str]]:
    """Return the entry point of each image that the emulator knows."""
    runner = [str(COMMAND[0]), "-I", "-S", str(build_runner())]
    return {SCRIPTS_IMAGE: runner, RUNNER_IMAGE: runner, PLAIN_IMAGE: []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Account:
    """The emulated account: its endpoint and its CA."""

    endpoint: str
    authority: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return variables that direct the CDK, boto3 and the tests to the emulator only."""
        return {
            **_without("AWS_"),
            **_credentials(self.endpoint),
            "AWS_CA_BUNDLE": str(self.authority),
            "NODE_EXTRA_CA_CERTS": str(self.authority),
            "PUNCTUAL_AUTHORITY": str(self.authority),
        }

    def client(
        self, service: str, key: str = "test", secret: str = "test", token: str | None = None
    ) -> Any:
        make_client: Any = boto3.client  # its type stubs require a literal service name
        return make_client(
            service,
            endpoint_url=self.endpoint,
            verify=str(self.authority),
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
        )


def _without(*prefixes: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def _credentials(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }


@contextmanager
def emulator(folder: Path, options: Mapping[str, str]) -> Iterator[Account]:
    """Yield the account of a running emulator, which logs to `folder`/emulator.log."""
    port = free_port()
    trusted = a_certificate(folder)
    account = Account(f"https://127.0.0.1:{port}", trusted.certificate)
    log = folder / "emulator.log"
    scratch = folder / "tmp"  # the folder of unpacked functions
    scratch.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            COMMAND,
            env={
                # Functions must find the code in their layer only.
                **_without("AWS_", "PYTHON", "PUNCTUAL_"),
                **_credentials(account.endpoint),
                "AWS_CA_BUNDLE": str(account.authority),
                "SSL_CERT_FILE": str(account.authority),  # for calls of runners to the API
                "USE_SSL": "1",
                "MINISTACK_SSL_CERT": str(trusted.certificate),
                "MINISTACK_SSL_KEY": str(trusted.key),
                "BIND_HOST": "127.0.0.1",
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
                "GATEWAY_PORT": str(port),
                "PERSIST_STATE": "0",
                "TMPDIR": str(scratch),
                IMAGES_VARIABLE: json.dumps(entry_points()),
                **options,
            },
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, account, log)
        yield account
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], account: Account, log: Path) -> None:
    trusting = ssl.create_default_context(cafile=account.authority)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urlopen(f"{account.endpoint}/_ministack/health", timeout=1, context=trusting):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise NotReady(f"The emulator does not answer; {log} says:\n{log.read_text()[-2_000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
