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
    """A node process with `env` in its environment. `told` holds its output before it was ready.

    `open_files` limits its number of open files.
    """

    def __init__(self, folder: Path, /, *, open_files: int | None = None, **env: str) -> None:
        self.folder = folder
        self.told = ""
        self._env = env
        limit = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh"]
        self._within = [] if open_files is None else limit
        self.port = 0
        self.started_in = 0.0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> "RunningNode":
        place = {"PUNCTUAL_PORT": str(self.port), "PUNCTUAL_DATA": str(self.folder)}
        place["PUNCTUAL_STOP_SECONDS"] = "1"
        env = {**os.environ, **place, **self._env}
        began = time.perf_counter()
        with (self.folder.parent / f"{self.folder.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                [*self._within, sys.executable, "-m", "punctual.node"],
                env=env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self.told, line = "", self._process.stdout.readline()
        while line and "ready" not in line:
            self.told, line = self.told + line, self._process.stdout.readline()
        self.started_in = time.perf_counter() - began
        if "ready" not in line:
            raise RuntimeError(f"The node did not start: {self.told!r}")
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])
        return self

    def _proc(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    @property
    def cpu(self) -> float:
        """Return the seconds of CPU time so far."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_mb(self) -> float:
        (line,) = [line for line in self._proc("status").splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) / 1_000

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def a_node(folder: Path, **env: str) -> Iterator[RunningNode]:
    node = RunningNode(folder, open_files=None, **env).start()
    try:
        yield node
    finally:
        node.stop()
