"""A damaged write-ahead log is refused. A log that a crash cut short is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from punctual.node.files.data_folder import DATABASE, StoreError
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, ManualClock, after

FRAME = 24 + 4_096
WRITER = (
    "import os, sys; from pathlib import Path; from punctual.node.sqlite.store import Store; "
    "from tests.support.builders import a_timer, after; store = Store.open(Path(sys.argv[1])); "
    "[store.timers.put([a_timer(after(n))]) for n in range(20)]; os._exit(0)"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the log of a node killed after twenty commits."""
    root = Path(__file__).parents[3]
    paths = f"{root}{os.pathsep}{root / 'layers/core/python'}"
    env = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], env=env, check=True, timeout=60)
    return tmp_path / f"{DATABASE}-wal"


def timers_found(log: Path) -> int:
    """Start, and return how many timers are found."""
    store = Store.open(log.parent, ManualClock(NOON))
    try:
        return len(store.timers.due(NOON, 0, after(59), None, 100).timers)
    finally:
        store.close()


def damage(log: Path, frame: int) -> None:
    with log.open("r+b") as file:
        file.seek(32 + frame * FRAME + 100)
        file.write(b"damaged!")


def frames(log: Path) -> int:
    return (log.stat().st_size - 32) // FRAME


def test_log_of_a_killed_node_is_read_completely(log: Path) -> None:
    assert timers_found(log) == 20


def test_log_with_a_damaged_frame_is_refused_and_unchanged(log: Path) -> None:
    damage(log, frames(log) - 6)
    content = log.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match="is damaged") as refused:
            timers_found(log)
        assert log.read_bytes() == content
    assert "\n" not in refused.value.message


def test_torn_last_commit_is_dropped(log: Path) -> None:
    """It is the last commit, and nothing shows that it was acknowledged."""
    damage(log, frames(log) - 1)
    assert timers_found(log) == 19


def test_log_that_ends_within_a_frame_is_read_up_to_it(log: Path) -> None:
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 2_000)
    assert timers_found(log) == 19
