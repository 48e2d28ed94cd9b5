"""Kernel features that some tests need.

A test is skipped with a reason if its feature is missing. Linux 6.12 and later have all features,
so there a missing one fails the test. Otherwise a sandbox could stay untested.
"""

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from punctual.tasks.script import landlock

COMPLETE_FROM = (6, 12)


def _has_landlock(abi: int) -> Callable[[], bool]:
    return lambda: landlock.abi_version() >= abi


FEATURES: Mapping[str, Callable[[], bool]] = MappingProxyType(
    {
        "landlock": _has_landlock(1),
        "landlock scopes": _has_landlock(landlock.MIN_SCOPED_ABI),
        "seccomp": lambda: Path("/proc/sys/kernel/seccomp").exists(),
        "children of processes": lambda: Path(
            "/proc/self/task", str(os.getpid()), "children"
        ).exists(),
    }
)


def needs(*features: str) -> pytest.MarkDecorator:
    return pytest.mark.kernel(*features)


def check(item: pytest.Item, release: str = platform.release(), on: str = sys.platform) -> None:
    """Skip a test if its feature is missing, or fail it if this kernel should have it."""
    for mark in item.iter_markers("kernel"):
        missing = [feature for feature in mark.args if not FEATURES[feature]()]
        if not missing:
            continue
        text = f"this kernel ({release}) lacks: {', '.join(missing)}"
        if on == "linux" and version_of(release) >= COMPLETE_FROM:
            pytest.fail(
                f"{text}. Linux 6.12 has it, so the test must not be left out", pytrace=False
            )
        pytest.skip(text)


def version_of(release: str) -> tuple[int, ...]:
    """Return a kernel version as a tuple.

    >>> version_of("6.12.3-generic")
    (6, 12)
    """
    match = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, match.groups())) if match else ()
