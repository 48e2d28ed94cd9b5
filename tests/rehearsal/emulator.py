"""An emulator of AWS as a process of its own, on loopback, with nothing kept."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
COMMAND = (ROOT / ".venv-rehearse/bin/python", ROOT / "tests/rehearsal/launch.py")
ACCOUNT = "000000000000"
REGION = "us-east-1"
READY_WITHIN = 30.0
GONE_WITHIN = 10.0


class NotReady(RuntimeError):
    """The emulator did not come up; its log says why."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(endpoint: str) -> dict[str, str]:
    """What makes the CDK command line, boto3 and the tests speak to it, and to nothing else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }


def alone(env: Mapping[str, str]) -> dict[str, str]:
    """Functions find our code in their layer, or not at all."""
    return {name: value for name, value in env.items() if not name.startswith("PYTHON")}


@contextmanager
def emulator(folder: Path, options: Mapping[str, str]) -> Iterator[str]:
    """Its address, once it answers; what it says goes to `folder`/emulator.log."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    log = folder / "emulator.log"
    scratch = folder / "tmp"  # where it unpacks functions
    scratch.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        process = subprocess.Popen(
            COMMAND,
            env={
                **alone(environment(endpoint)),
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(port),
                "PERSIST_STATE": "0",
                "TMPDIR": str(scratch),
                **options,
            },
            cwd=folder,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, endpoint, log)
        yield endpoint
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    until = time.monotonic() + READY_WITHIN
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urlopen(f"{endpoint}/_ministack/health", timeout=1):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise NotReady(f"The emulator does not answer; {log} says:\n{log.read_text()[-2_000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: its group is its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GONE_WITHIN)
        except subprocess.TimeoutExpired:
            continue
        return
