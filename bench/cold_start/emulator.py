"""Start a function in Lambda's runtime emulator, up to its first AWS call."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-cold"
PYTHON = VENV / "bin/python"
EMULATOR_TIMEOUT_SECONDS = 60.0
MAX_START_TRIES = 3
_MACHINE_NAMES = {"x86_64": "x86_64", "aarch64": "arm64"}
_INIT_REPORT = re.compile(r"INIT REPORT\(durationMs: ([\d.]+)")


class NotStarted(RuntimeError):
    """The emulator or the function stopped before the first AWS call."""


class Start(NamedTuple):
    """Milliseconds of INIT as the emulator reports it, and of CPU time until the first AWS call."""

    init_ms: float
    to_call_ms: float


class RefusingEndpoint:
    """A local endpoint that drops every AWS call. At the first call it stores `measure()`.

    `measure` returns CPU time, which depends less on other load than a clock.
    """

    def __init__(self) -> None:
        self.measure: Callable[[], float] | None = None
        self.measured: list[float] = []
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
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection:
                if connection.recv(65_536) and not self.measured and self.measure is not None:
                    self.measured.append(self.measure())
                connection.sendall(head % len(body) + body)


def start(
    folder: Path, layers: Sequence[Path], environment: Mapping[str, str], event: Any
) -> Start:
    """Start the function in `folder`, send it one event, and end it.

    The emulator runs INIT within the first invocation, and the function's answer is ignored. It
    needs free ports, and another process may take them first, so the start is tried again.
    """
    for _ in range(MAX_START_TRIES):
        try:
            return _start(folder, layers, environment, event)
        except OSError as error:
            last_error = error
    raise NotStarted(f"the emulator failed {MAX_START_TRIES} times: {last_error}") from last_error


def _start(
    folder: Path, layers: Sequence[Path], environment: Mapping[str, str], event: Any
) -> Start:
    endpoint = RefusingEndpoint()
    try:
        function_environment = {**environment, "AWS_ENDPOINT_URL": endpoint.url}
        with _emulator(folder, layers, function_environment) as (address, pid, log):
            endpoint.measure = lambda: _processor_time(pid)
            answer = _invoke(address, event)
            if not endpoint.measured:
                answer = f"made no AWS call and answered {answer}"
                raise NotStarted(f"{folder.name} {answer}\n{log()}")
            report = _INIT_REPORT.search(log())
            if report is None:
                raise NotStarted(f"{folder.name} has no INIT REPORT:\n{log()}")
            return Start(float(report[1]), endpoint.measured[0])
    finally:
        endpoint.close()


def _processor_time(emulator: int) -> float:
    """Return the CPU time of the emulator's child process, which is the function, in ms."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, fields = status.read_text().rsplit(")", 1)
            schedstat = (status.parent / "schedstat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended during the read
            continue
        if int(fields.split()[1]) == emulator:
            return int(schedstat.split()[0]) / 1e6
    raise NotStarted("the emulator has no function running")


def _emulator_program() -> Path:
    machine = _MACHINE_NAMES.get(platform.machine())
    if platform.system() != "Linux" or machine is None:
        raise NotStarted("aws-sam-cli has the emulator only for Linux on x86_64 and arm64")
    (program,) = VENV.glob(f"lib/*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}")
    return program


@contextmanager
def _emulator(
    folder: Path, layers: Sequence[Path], environment: Mapping[str, str]
) -> Iterator[tuple[str, int, Callable[[], str]]]:
    address, runtime_address = _free_address(), _free_address()
    command = [
        str(_emulator_program()),
        "--log-level",
        "debug",
        "--runtime-interface-emulator-address",
        address,
    ]
    command += [
        "--runtime-api-address",
        runtime_address,
        str(PYTHON),
        "-m",
        "awslambdaric",
        "handler.handler",
    ]
    process_environment = {
        **environment,
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LAMBDA_TASK_ROOT": str(folder),
        "PYTHONPATH": os.pathsep.join(str(layer / "python") for layer in layers),
        # As on Lambda, where the folder of a function is read-only.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=process_environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

        def log() -> str:
            output.seek(0)
            return output.read()

        try:
            _await_port(address, process, log)
            yield address, process.pid, log
        finally:
            # The emulator ignores SIGTERM. Its group consists of itself and the function.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_port(address: str, process: subprocess.Popen[bytes], log: Callable[[], str]) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + EMULATOR_TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise ConnectionError(f"the emulator did not start:\n{log()}")


def _invoke(address: str, event: Any) -> str:
    request = urllib.request.Request(
        f"http://{address}/2015-03-31/functions/function/invocations",
        data=json.dumps(event).encode(),
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=EMULATOR_TIMEOUT_SECONDS) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as error:
        return repr(error)
    return text


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
