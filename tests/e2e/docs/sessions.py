"""Sessions that run the blocks of a page: a shell, a Python process, and terminals for servers."""

import errno
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.error import URLError
from urllib.request import urlopen

WITHIN = 60.0
MARK = "\x1eended "

PYTHON = r"""
import json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    page, text = json.loads(line)
    try:
        exec(compile(text, page, "exec"), space)
        ended = 0
    except BaseException:
        traceback.print_exc()
        ended = 1
    print(f"\x1eended {ended}", flush=True)
"""


class Failed(AssertionError):
    """A block behaved differently from its page."""


class Session:
    """A process that runs blocks one after another and reports the end of each."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        _end_group(self._process, signal.SIGTERM)
        self._process.stdout.close()

    def _send(self, line: str) -> str:
        """Send a line, and return the output up to the mark of a successful end."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        output = self._read_output()
        text, mark, code = output.rpartition(MARK)
        if not mark or code.strip() != "0":
            raise Failed(text + code if not mark else text)
        return text

    def _read_output(self) -> str:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        output = b""
        until = time.monotonic() + WITHIN
        while not (MARK.encode() in output and output.endswith(b"\n")):
            ready, _, _ = select.select([source], [], [], until - time.monotonic())
            if not ready:
                raise Failed(f"it took over {WITHIN:.0f} s, and had said:\n{output.decode()}")
            chunk = os.read(source, 65_536)
            if not chunk:
                break
            output += chunk
        return output.decode()


class Shell(Session):
    """One bash. Variables persist between blocks, and the first failure ends the page."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        super().__init__(["bash", "--norc"], environment, folder)
        self._folder = folder
        self._send(
            "trap 'printf \"\\036ended %s\\n\" $?' EXIT; set -euo pipefail; "
            "printf '\\036ended 0\\n'"
        )

    def run(self, text: str) -> str:
        script = self._folder / ".block.sh"
        script.write_text(text)
        return self._send(f"source {script} < /dev/null; printf '\\036ended 0\\n'")


class Python(Session):
    """One Python namespace in its own process."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        super().__init__([sys.executable, "-W", "error", "-c", PYTHON], environment, folder)

    def run(self, text: str, page: str = "<page>") -> str:
        return self._send(json.dumps([page, text]))


class Terminal:
    """A server command in its own terminal, which runs until SIGINT."""

    def __init__(
        self, command: str, environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        self._log = log
        log.write_bytes(b"")
        controller, program_end = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "--norc", "-c", f"exec env {command.strip()}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=program_end,
            stderr=program_end,
            start_new_session=True,
        )
        os.close(program_end)
        self._reader = threading.Thread(target=self._copy_to_log, args=(controller,), daemon=True)
        self._reader.start()

    def _copy_to_log(self, controller: int) -> None:
        """Append the terminal's output to the log until its last process has ended."""
        with (
            self._log.open("ab", buffering=0) as log_file,
            os.fdopen(controller, "rb", 0) as terminal,
        ):
            while data := _read_terminal(terminal):
                log_file.write(data.replace(b"\r\n", b"\n"))

    def until(self, serves: Callable[[], bool]) -> str:
        """Return the output so far when `serves` becomes true."""
        deadline = time.monotonic() + WITHIN
        while not serves():
            has_ended = self._process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                if has_ended:
                    self._reader.join(WITHIN)  # its last output may not be in the log yet
                raise Failed(f"it does not serve, and says:\n{self._log.read_text()}")
            time.sleep(0.05)
        return self._log.read_text()

    def stop(self) -> None:
        _end_group(self._process, signal.SIGINT)
        self._reader.join(WITHIN)


def _read_terminal(terminal: BinaryIO) -> bytes:
    try:
        return terminal.read(65_536)
    except OSError as error:
        if error.errno != errno.EIO:  # the process has closed the terminal
            raise
        return b""


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _end_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End the process and the rest of its group.

    A child that bash forked a moment ago may lose the first signal before it runs its program.
    """
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        process.wait()
        return
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
