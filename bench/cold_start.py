"""make cold: how long each function takes to start, beside a handler that only imports boto3."""

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.cold_start_emulator import NotStarted, Start, start
from bench.cold_start_events import environment, events, folder_of
from bench.cold_start_sizes import Size, size_of
from infra.packaging import FUNCTIONS, built, host_target

AIM = 1.6
BARE = "bare: import boto3"
HANDLER = """import boto3

client = None


def handler(event, context):
    global client
    client = client or boto3.client("dynamodb")
    client.get_item(TableName="t", Key={"pk": {"S": "p"}})
"""


class Row(NamedTuple):
    """What some starts of one function took; a pair is the least and the median."""

    name: str
    starts: list[Start]

    def init(self) -> tuple[float, float]:
        return _both([one.init for one in self.starts])

    def to_call(self) -> tuple[float, float]:
        return _both([one.to_call for one in self.starts])


def _both(values: list[float]) -> tuple[float, float]:
    return min(values), statistics.median(values)


def measured(rounds: int, names: list[str], layers: tuple[Path, ...]) -> list[Row]:
    """By turns, so that what else the machine does meets all of them alike."""
    given = events()
    rows: Mapping[str, list[Start]] = {BARE: [], **{name: [] for name in names}}
    with tempfile.TemporaryDirectory(prefix="punctual-cold-") as made:
        bare = Path(made)
        (bare / "handler.py").write_text(HANDLER)
        for number in range(rounds):
            for name, starts in rows.items():
                if name == BARE:
                    starts.append(start(bare, (), {}, None))
                else:
                    folder = FUNCTIONS / folder_of(name)
                    starts.append(start(folder, layers, environment(name), given[name]))
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [Row(*row) for row in rows.items()]


def show(rows: list[Row]) -> bool:
    """Whether all kept to the aim, by the median: a machine is seldom idle for a whole start."""
    bare_init, bare_call = rows[0].init(), rows[0].to_call()
    print(f"{'':<20} {'INIT ms':>15} {'ratio':>11}  {'CPU to 1st call':>15} {'ratio':>11}")
    print(f"{'':<20} {'min':>7} {'median':>7} {'':>11}  {'min':>7} {'median':>7}")
    kept = True
    for row in rows:
        init, call = row.init(), row.to_call()
        over = "" if init[1] <= AIM * bare_init[1] else "  over the aim"
        kept = kept and not over
        print(f"{row.name:<20} {_shown(init, bare_init)}  {_shown(call, bare_call)}{over}")
    return kept


def _shown(its: tuple[float, float], bare: tuple[float, float]) -> str:
    (least, median), (bare_least, bare_median) = its, bare
    return f"{least:7.0f} {median:7.0f} {least / bare_least:5.2f} {median / bare_median:5.2f}"


def show_sizes(sizes: Mapping[str, Size]) -> None:
    print(f"\n{'':<20} {'KB zipped':>10} {'unzipped':>10} {'bytecode':>10} {'files':>6}")
    for name, size in sizes.items():
        print(
            f"{name:<20} {size.zipped / 1e3:10,.1f} {size.plain / 1e3:10,.1f}"
            f" {size.compiled / 1e3:10,.1f} {size.files:6}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make cold")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[], help="names of functions")
    asked = parser.parse_args()
    names = [name for name in events() if name in asked.only or not asked.only]
    ours, vendor = layers = built(host_target())
    print(
        f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f}; ratio aimed at: INIT at most {AIM}"
    )
    kept = show(measured(asked.rounds, names, layers))
    folders = {"layer core": ours, "layer vendor": vendor}
    folders |= {name: FUNCTIONS / folder_of(name) for name in names}
    show_sizes({name: size_of(folder) for name, folder in folders.items()})
    print(f"load after: {os.getloadavg()[0]:.1f}")
    if not kept:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except NotStarted as error:
        sys.exit(f"make cold: {error}")
