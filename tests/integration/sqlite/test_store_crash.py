"""`kill -9` at any commit: acknowledged changes stay, and no transaction is partial."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from punctual.engine.ports.rows import JobKey, RunKey
from punctual.node.files.data_folder import DATABASE
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, RUN, ManualClock, an_id
from tests.support.node.store_writer import JOBS_PER_TRANSACTION

ROOT = Path(__file__).parents[3]
WRITER = Path(__file__).parents[2] / "support/node/store_writer.py"


def write_until_killed(folder: Path, acknowledged: int) -> int:
    """Kill the writer after `acknowledged` transactions, and return the last acknowledged one."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(folder)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'layers/core/python'}"},
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        for _ in range(acknowledged):
            assert writer.stdout.readline()
        writer.kill()
        rest = writer.stdout.read().splitlines()
    assert writer.returncode == -9
    return acknowledged - 1 + len(rest)


def versions(store: Store, transactions: range) -> list[int]:
    """Return the versions of the job states of these transactions, 0 if there is none."""
    result = []
    for number in range(
        transactions.start * JOBS_PER_TRANSACTION, transactions.stop * JOBS_PER_TRANSACTION
    ):
        key = JobKey("acme", an_id(number))
        stored_state = store.job_states.load([key]).get(key)
        result.append(0 if stored_state is None else stored_state.state.version)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_transactions_survive_and_none_is_partial(tmp_path: Path, seed: int) -> None:
    last = write_until_killed(tmp_path, random.Random(seed).choice([1, 2, 5, 20, 60, 150]))
    store = Store.open(tmp_path, ManualClock(NOON))
    try:
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        # The transaction under way may exist or not, but not in part.
        transaction = last + 1 if versions(store, range(last + 1, last + 2))[0] else last
        assert versions(store, range(transaction + 2)) == expected_versions(transaction)
    finally:
        store.close()


def expected_versions(transaction: int) -> list[int]:
    ages = [min(3, transaction - number + 1) for number in range(transaction + 1)] + [0]
    return [age for age in ages for _ in range(JOBS_PER_TRANSACTION)]


def test_rows_of_a_transaction_agree(tmp_path: Path) -> None:
    write_until_killed(tmp_path, 30)
    store = Store.open(tmp_path, ManualClock(NOON))
    try:
        states = store.job_states.walk(None, 100_000).states
        by_version = {
            version: {state.job_id for state in states if state.version == version}
            for version in (1, 2, 3)
        }
        timers = store.timers.due(NOON, 0, NOON, None, 100_000).timers
        assert {timer.job_id for timer in timers} == by_version[1]
        assert {key.job_id for key in store.end_all_leases()} == by_version[2]
        recorded = store.history.recorded_keys(
            [RunKey("acme", state.job_id, RUN) for state in states]
        )
        assert {key.job_id for key in recorded} == by_version[3]
        assert len(store.feed.read(0, 100_000)) == len(by_version[3])
        assert store.count_jobs("acme") == {"SCHEDULED": len(states)}
        assert store.count_runs("acme") == {
            "RUNNING": len(by_version[2]),
            "SUCCESS": len(by_version[3]),
        }
    finally:
        store.close()


def test_write_ahead_log_of_a_killed_node_is_recovered(tmp_path: Path) -> None:
    last = write_until_killed(tmp_path, 3)
    assert (tmp_path / f"{DATABASE}-wal").stat().st_size > 0
    Store.open(tmp_path, ManualClock(NOON)).close()
    assert not (tmp_path / f"{DATABASE}-wal").exists()
    store = Store.open(tmp_path, ManualClock(NOON))
    try:
        assert 0 not in versions(store, range(last + 1))
    finally:
        store.close()
