"""Measure cold starts for `make cold`, beside a handler that only imports boto3."""

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.cold_start_emulator import NotStarted, Start, start
from bench.cold_start_events import environment, events, folder_of
from bench.cold_start_sizes import Size, size_of
from infra.build.packaging import FUNCTION_FOLDERS, built, host_target

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
    """The starts of one function. A pair holds the minimum and the median."""

    name: str
    starts: list[Start]

    def init(self) -> tuple[float, float]:
        return _both([one.init for one in self.starts])

    def to_call(self) -> tuple[float, float]:
        return _both([one.to_call for one in self.starts])

    def ratio(self, bare: "Row") -> float:
        """Return the ratio of the minimums.

        Other load only lengthens starts, also those of `bare`.
        """
        return self.init()[0] / bare.init()[0]


def _both(values: list[float]) -> tuple[float, float]:
    return min(values), statistics.median(values)


def measured(
    begin: Callable[[str], Start], names: Sequence[str], rounds: int, more: int
) -> list[Row]:
    """Return the starts of each function. They alternate, so other load affects all alike.

    Functions above the aim get up to `more` extra rounds, each beside a bare start.
    """
    rows = {name: Row(name, []) for name in (BARE, *names)}
    for number in range(rounds + more):
        turn = list(rows) if number < rounds else [BARE, *over(list(rows.values()))]
        if turn == [BARE]:
            break
        for name in turn:
            rows[name].starts.append(begin(name))
        print(f"\rround {number + 1}: {len(turn)} starts ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return list(rows.values())


def over(rows: Sequence[Row]) -> list[str]:
    """Return the names of functions above the aim. The first row is the bare one."""
    return [row.name for row in rows[1:] if row.ratio(rows[0]) > AIM]


def show(rows: Sequence[Row]) -> None:
    bare_init, bare_call = rows[0].init(), rows[0].to_call()
    print(f"{'':<20} {'INIT ms':>15} {'ratio':>11}  {'CPU to 1st call':>15} {'ratio':>11}")
    print(f"{'':<20} {'min':>7} {'median':>7} {'min':>5} {'med.':>5} ", end="")
    print(f" {'min':>7} {'median':>7} {'min':>5} {'med.':>5}  starts")
    beyond = over(rows)
    for row in rows:
        init, call = _shown(row.init(), bare_init), _shown(row.to_call(), bare_call)
        told = "  over the aim" if row.name in beyond else ""
        print(f"{row.name:<20} {init}  {call} {len(row.starts):7}{told}")


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
    parser.add_argument("--more", type=int, default=21, help="rounds of what is over the aim")
    parser.add_argument("--only", nargs="*", default=[], help="names of functions")
    asked = parser.parse_args()
    given = events()
    names = [name for name in given if name in asked.only or not asked.only]
    ours, vendor = layers = built(host_target())
    print(
        f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f}; ratio aimed at: least INIT at most {AIM}"
    )
    with tempfile.TemporaryDirectory(prefix="punctual-cold-") as made:
        bare = Path(made)
        (bare / "handler.py").write_text(HANDLER)

        def begin(name: str) -> Start:
            if name == BARE:
                return start(bare, (), {}, None)
            return start(FUNCTION_FOLDERS / folder_of(name), layers, environment(name), given[name])

        rows = measured(begin, names, asked.rounds, asked.more)
    show(rows)
    folders = {"layer core": ours, "layer vendor": vendor}
    folders |= {name: FUNCTION_FOLDERS / folder_of(name) for name in names}
    show_sizes({name: size_of(folder) for name, folder in folders.items()})
    print(f"load after: {os.getloadavg()[0]:.1f}")
    if over(rows):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except NotStarted as error:
        sys.exit(f"make cold: {error}")
