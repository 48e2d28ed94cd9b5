"""Processes that the rehearsal starts end in time, with their children."""

import os
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.rehearsal import progress
from tests.rehearsal.progress import Failed, run, show_all

IGNORES_SIGTERM = """
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


def test_slow_process_is_killed_with_the_children_that_hold_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STOP_SECONDS", 0.1)
    log = tmp_path / "log"
    with pytest.raises(Failed, match="took over 2 s"):
        run(
            [sys.executable, "-c", IGNORES_SIGTERM],
            dict(os.environ),
            log,
            show_all,
            tmp_path,
            within=2,
        )
    assert is_gone(int(log.read_text()))


def test_ended_process_returns_exit_code_and_output(tmp_path: Path) -> None:
    result = run(
        [sys.executable, "-c", "print('done'); raise SystemExit(3)"],
        dict(os.environ),
        tmp_path / "log",
        show_all,
        tmp_path,
    )
    assert result == (3, "done\n")
