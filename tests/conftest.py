"""Property tests run the same examples each time. HYPOTHESIS_PROFILE=fast runs a quarter of them.

HYPOTHESIS_PROFILE=search runs other examples each time.
"""

import gc
import os
import signal
from typing import Any

import pytest

from tests.support import kernel
from tests.support.examples import load_profile
from tests.support.simulation.seeds import DAY, DAY_NAME, replay_hint
from tests.support.workers import ByFile, start_order

load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
gc.disable()  # until all tests are collected, because imports leave little garbage

# A shell starts background programs with SIGINT ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM and timeouts end the child processes of the tests too.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, default=1, help="run each test this often")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    times = metafunc.config.getoption("--times")
    if times > 1:
        metafunc.fixturenames.append("which_time")
        metafunc.parametrize("which_time", range(times))


def pytest_runtest_setup(item: pytest.Item) -> None:
    kernel.check(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=start_order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # otherwise files with many tests go first
    return ByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Let all workers use the seeds of one day, also if some start after midnight."""
    config.addinivalue_line("markers", "kernel(*features): what the test needs of the kernel")
    os.environ[DAY_NAME] = str(DAY)


def pytest_report_header() -> str:
    return replay_hint(DAY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the day after passed tests too, because `-q` omits the header."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    if any("simulation/test_drawn" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.write_line(replay_hint(DAY))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, because they live until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
