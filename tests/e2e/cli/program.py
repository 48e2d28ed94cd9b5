"""The installed program with its output and exit code, and a terminal for it."""

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

PROGRAM = str(Path(sys.executable).with_name("punctual"))
WITHIN = 30.0
INHERITED = ("LANG", "PATH", "PYTHONPATH", "TMPDIR")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\b\d\d:\d\d(:\d\d)?\b")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class ProgramResult(NamedTuple):
    out: str
    err: str
    code: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """Return the error that --json prints on standard error."""
        return json.loads(self.err)["error"]


class Program:
    """A program with its own home and one node."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self.env = {**inherited, "HOME": str(home), "COLUMNS": "80", "TZ": "Europe/Berlin", **env}

    def with_env(self, **env: str | None) -> "Program":
        changed = Program(self.home)
        both: dict[str, str | None] = {**self.env, **env}
        changed.env = {name: value for name, value in both.items() if value is not None}
        return changed

    def __call__(self, *args: str, code: int = 0, stdin: str = "") -> ProgramResult:
        done = subprocess.run(
            [PROGRAM, *args],
            env=self.env,
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        result = ProgramResult(done.stdout, done.stderr, done.returncode)
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result
        return result

    def json(self, *args: str, code: int = 0, stdin: str = "") -> Any:
        return self(*args, "--json", code=code, stdin=stdin).json

    def terminal(self, *args: str) -> "Terminal":
        return Terminal(args, {**self.env, "TERM": "xterm-256color"}, self.home)


def program_for(http: httpx.Client, home: Path) -> Program:
    """Return a program that calls the same installation, with the same token."""
    env = {"PUNCTUAL_URL": str(http.base_url).rstrip("/")}
    token = http.headers.get("Authorization", "").removeprefix("Bearer ")
    authority = os.environ.get("PUNCTUAL_AUTHORITY", "")
    chosen = {"PUNCTUAL_TOKEN": token, "SSL_CERT_FILE": authority}
    return Program(home, **env, **{name: value for name, value in chosen.items() if value})


class Terminal:
    """The program in a pseudo-terminal."""

    def __init__(self, args: tuple[str, ...], env: Mapping[str, str], folder: Path) -> None:
        self._ours, program_end = pty.openpty()
        termios.tcsetwinsize(program_end, (40, 80))
        self._process = subprocess.Popen(
            [PROGRAM, *args],
            env=env,
            cwd=folder,
            stdin=program_end,
            stdout=program_end,
            stderr=program_end,
            preexec_fn=lambda: os.login_tty(program_end),
        )
        os.close(program_end)
        self._raw = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._ours)

    @property
    def shown(self) -> str:
        """Return the output without control sequences."""
        return _CONTROL.sub("", self._raw)

    @property
    def raw(self) -> str:
        return self._raw

    def until(self, text: str) -> "Terminal":
        ends = time.monotonic() + WITHIN
        while text not in self.shown:
            assert time.monotonic() < ends, f"no {text!r} in {self.shown!r}"
            assert self._read(), f"it ended without {text!r}: {self.shown!r}"
        return self

    def types(self, text: str) -> "Terminal":
        os.write(self._ours, text.encode())
        return self

    def ends(self) -> int:
        """Read the rest of the output, and return the exit code."""
        while self._read():
            pass
        code = self._process.wait(timeout=WITHIN)
        assert "Traceback" not in self.shown, self.shown
        return code

    def _read(self) -> bool:
        readable, _, _ = select.select([self._ours], [], [], WITHIN)
        assert readable, f"nothing for {WITHIN:g} s after {self.shown!r}"
        try:
            data = os.read(self._ours, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:  # the program has closed the terminal
                raise
            return False
        self._raw += data.decode(errors="replace")
        return bool(data)


def normalized(text: str) -> str:
    """Replace ids, dates and durations, which differ from run to run."""
    text = _ID.sub("<id>", text)
    text = _DAY.sub("<day>", text)
    text = _CLOCK.sub("<time>", text)
    text = re.sub(r"\b\d+(\.\d+)? (ms|s|min|h|d)( \d+ (s|min|h))?( ago)?\b", "<ago>", text)
    text = re.sub(r"\bnow\b", "<ago>", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.M)
