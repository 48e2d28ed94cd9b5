"""One start of a function in Lambda's own emulator of its runtime, and its first call of AWS."""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
VENV = ROOT / ".venv-cold"
PYTHON = VENV / "bin/python"
PATIENCE = 60.0
_MACHINES = {"x86_64": "x86_64", "aarch64": "arm64"}
_SAID = re.compile(r"INIT REPORT\(durationMs: ([\d.]+)")


class NotStarted(RuntimeError):
    """The emulator, or the function in it, did not come as far as its first call."""


class Start(NamedTuple):
    """Milliseconds: what the emulator reports as INIT, and until the first request to AWS."""

    init: float
    first_call: float


class Refusing:
    """An endpoint on this machine that refuses every call of AWS, and notes when the first came."""

    def __init__(self) -> None:
        self.came = Event()
        self.came_at = 0.0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        body = b'{"__type": "AccessDeniedException"}'
        head = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:  # closed
                return
            with taken:
                if taken.recv(65_536) and not self.came.is_set():
                    self.came_at = time.perf_counter()
                    self.came.set()
                taken.sendall(head % len(body) + body)


def start(
    folder: Path, layers: Sequence[Path], environment: Mapping[str, str], event: Any
) -> Start:
    """Start the function in `folder`, hand it one event, and end it.

    The emulator runs INIT within the first invocation; what the function answers is no matter.
    """
    refusing = Refusing()
    try:
        with _emulator(folder, layers, {**environment, "AWS_ENDPOINT_URL": refusing.url}) as (
            address,
            log,
        ):
            began_at = time.perf_counter()
            said = _invoke(address, event)
            if not refusing.came.is_set():
                raise NotStarted(
                    f"{folder.name} called nothing of AWS and answered {said}\n{log()}"
                )
            found = _SAID.search(log())
            if found is None:
                raise NotStarted(f"{folder.name} has no INIT REPORT:\n{log()}")
            return Start(float(found[1]), (refusing.came_at - began_at) * 1000)
    finally:
        refusing.close()


def _program() -> Path:
    machine = _MACHINES.get(platform.machine())
    if platform.system() != "Linux" or machine is None:
        raise NotStarted("aws-sam-cli brings the emulator for Linux on x86_64 and arm64 alone")
    (found,) = VENV.glob(f"lib/*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}")
    return found


@contextmanager
def _emulator(
    folder: Path, layers: Sequence[Path], environment: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    address, inner = _free(), _free()
    command = [_program(), "--log-level", "debug", "--runtime-interface-emulator-address", address]
    command += ["--runtime-api-address", inner, PYTHON, "-m", "awslambdaric", "handler.handler"]
    whole = {
        **environment,
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LAMBDA_TASK_ROOT": str(folder),
        "PYTHONPATH": os.pathsep.join(str(layer / "python") for layer in layers),
        # As on Lambda, where a function's folder cannot be written to.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=whole,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

        def log() -> str:
            output.seek(0)
            return output.read()

        try:
            _await(address, process, log)
            yield address, log
        finally:
            # It does not heed SIGTERM; its group is the function that it started, and itself.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(address: str, process: subprocess.Popen[bytes], log: Any) -> None:
    host, port = address.split(":")
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise NotStarted(f"the emulator did not start:\n{log()}")


def _invoke(address: str, event: Any) -> str:
    request = urllib.request.Request(
        f"http://{address}/2015-03-31/functions/function/invocations",
        data=json.dumps(event).encode(),
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
    except (urllib.error.URLError, TimeoutError) as error:
        return repr(error)
    return text


def _free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"
