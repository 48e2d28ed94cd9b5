"""Run a real node as a process, with its own port and a fresh folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunningNode:
    """A node process with `env` in its environment.

    `startup_output` holds its output before it was ready.
    `open_files` limits its number of open files.
    """

    def __init__(self, folder: Path, /, *, open_files: int | None = None, **env: str) -> None:
        self.folder = folder
        self.startup_output = ""
        self._env = env
        limit = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh"]
        self._limit_command = [] if open_files is None else limit
        self.port = 0
        self.start_seconds = 0.0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> "RunningNode":
        node_env = {"PUNCTUAL_PORT": str(self.port), "PUNCTUAL_DATA": str(self.folder)}
        node_env["PUNCTUAL_STOP_SECONDS"] = "1"
        env = {**os.environ, **node_env, **self._env}
        started_at = time.perf_counter()
        with (self.folder.parent / f"{self.folder.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                [*self._limit_command, sys.executable, "-m", "punctual.node"],
                env=env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self.startup_output, line = "", self._process.stdout.readline()
        while line and "ready" not in line:
            self.startup_output, line = self.startup_output + line, self._process.stdout.readline()
        self.start_seconds = time.perf_counter() - started_at
        if "ready" not in line:
            raise RuntimeError(f"The node did not start: {self.startup_output!r}")
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])
        return self

    def _read_proc(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    @property
    def cpu_seconds(self) -> float:
        """Return the seconds of CPU time so far."""
        fields = self._read_proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_mb(self) -> float:
        (line,) = [
            line for line in self._read_proc("status").splitlines() if line.startswith("VmRSS")
        ]
        return int(line.split()[1]) / 1_000

    def kill(self) -> None:
        self._signal_and_wait(signal.SIGKILL)

    def stop(self) -> None:
        self._signal_and_wait(signal.SIGTERM)

    def _signal_and_wait(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def run_node(folder: Path, **env: str) -> Iterator[RunningNode]:
    node = RunningNode(folder, open_files=None, **env).start()
    try:
        yield node
    finally:
        node.stop()
