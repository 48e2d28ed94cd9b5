"""Output of a rehearsal: each step with its time, and selected lines of its commands."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

WITHIN = 2_400.0
STOP_SECONDS = 10.0  # seconds for a stopped process to clean up
Show = Callable[[str], bool]


class Failed(RuntimeError):
    """A step of the rehearsal failed."""


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"== {name} ...", flush=True)
    yield
    print(f"== {name}: {time.monotonic() - began:.1f} s", flush=True)


def show_all(_line: str) -> bool:
    return True


def run(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    log: Path,
    show: Show,
    folder: Path,
    within: float = WITHIN,
) -> tuple[int, str]:
    """Run and log a command, and return exit code and output. `show` selects printed lines."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    output: list[str] = []
    reader = threading.Thread(target=_follow, args=(process.stdout, log, show, output))
    reader.start()
    try:
        code = process.wait(within)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(map(str, command[:4]))} took over {within:.0f} s") from None
    finally:
        if process.poll() is None:
            _end(process)
        reader.join()
        process.stdout.close()
    return code, "".join(output)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process group, because a child that holds the output would block the reader."""
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_checked(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    log: Path,
    show: Show,
    folder: Path,
) -> str:
    """Run a command, and return its output. A failure ends the rehearsal."""
    code, output = run(command, environment, log, show, folder)
    if code:
        program = " ".join(Path(part).name for part in command[:5])
        raise Failed(f"{program} failed with {code}; {log} ends:\n{output[-3_000:]}")
    return output


def _follow(stream: IO[bytes], log: Path, show: Show, output: list[str]) -> None:
    """Copy the output to the log. If all is shown, copy chunks, so that dots appear at once."""
    with log.open("a") as log_file:
        if show is show_all:
            while chunk := os.read(stream.fileno(), 65_536):
                text = chunk.decode(errors="replace")
                _keep(text, log_file, output)
                _tell(text)
            return
        for line in stream:
            text = line.decode(errors="replace")
            _keep(text, log_file, output)
            if show(text):
                _tell(f"   {text.strip()}\n")


def _keep(text: str, log_file: IO[str], output: list[str]) -> None:
    log_file.write(text)
    log_file.flush()
    output.append(text)


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
