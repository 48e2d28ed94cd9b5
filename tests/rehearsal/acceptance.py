"""Run the acceptance suite and the commands of the pages against the emulator."""

import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rehearsal.deployment import STAGE
from tests.rehearsal.emulator import ROOT
from tests.rehearsal.progress import Failed, run, show_all

SUITE = "tests/e2e/acceptance"
PAGES = "tests/e2e/docs/test_docs_on_aws.py"
PATIENCE = "20"  # the emulator, all functions and the tests share the machine
WITHIN = 700  # timeout of a test in seconds
SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] \S+: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Accepted:
    """The summary line, and the number of skipped tests by reason."""

    summary: str
    skipped: Mapping[str, int]


def accept(
    url: str,
    token: str,
    environment: Mapping[str, str],
    tests: Sequence[str],
    folder: Path,
    name: str = "acceptance",
) -> Accepted:
    log = folder / f"{name}.log"
    code, output = run(
        [sys.executable, "-m", "pytest", "-rs", "--color=no", f"--timeout={WITHIN}", *tests],
        {
            **environment,
            "PUNCTUAL_URL": url,
            "PUNCTUAL_TOKEN": token,
            "PUNCTUAL_STAGE": STAGE,
            "PUNCTUAL_PATIENCE": os.environ.get("PUNCTUAL_PATIENCE") or PATIENCE,
        },
        log,
        show_all,
        ROOT,
    )
    if code:
        raise Failed(f"{' '.join(tests)} failed: {log}")
    return parse_summary(output)


def merged(results: Sequence[Accepted]) -> Accepted:
    """
    >>> merged([Accepted("2 passed", {"no x": 1}), Accepted("3 passed", {"no x": 2})])
    Accepted(summary='2 passed; 3 passed', skipped=Counter({'no x': 3}))
    """
    skipped = Counter[str]()
    for result in results:
        skipped.update(result.skipped)
    return Accepted("; ".join(result.summary for result in results), skipped)


def parse_summary(output: str) -> Accepted:
    r"""
    >>> parse_summary("..s\nSKIPPED [2] a.py:1: no x\nSKIPPED [1] b.py:9: no x\n== 2 passed ==\n")
    Accepted(summary='2 passed', skipped=Counter({'no x': 3}))
    """
    reasons = Counter[str]()
    for count, reason in SKIPPED.findall(output):
        reasons[reason] += int(count)
    return Accepted(output.rstrip().rpartition("\n")[2].strip("= "), reasons)
