"""What the rehearsal starts ends in time, with all that it started itself."""

import os
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.rehearsal import progress
from tests.rehearsal.progress import Failed, everything, run

DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def is_gone(number: int) -> bool:
    try:
        return bool(psutil.wait_procs([psutil.Process(number)], timeout=10)[0])
    except psutil.NoSuchProcess:
        return True


def test_what_takes_too_long_is_ended_with_whoever_holds_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENT", 0.1)
    log = tmp_path / "log"
    with pytest.raises(Failed, match="took over 2 s"):
        run([sys.executable, "-c", DEAF], dict(os.environ), log, everything, tmp_path, within=2)
    assert is_gone(int(log.read_text()))


def test_what_ends_says_how_and_what_it_said(tmp_path: Path) -> None:
    told = run(
        [sys.executable, "-c", "print('done'); raise SystemExit(3)"],
        dict(os.environ),
        tmp_path / "log",
        everything,
        tmp_path,
    )
    assert told == (3, "done\n")
