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

from bench.cold_start.emulator import Start, start
from bench.cold_start.events import environment, events, folder_of
from bench.cold_start.sizes import Size, size_of
from infra.build.packaging import FUNCTIONS_FOLDER, build_layers, host_target

MAX_INIT_RATIO = 1.6
BARE_FUNCTION = "bare: import boto3"
BARE_HANDLER = """import boto3

client = None


def handler(event, context):
    global client
    client = client or boto3.client("dynamodb")
    client.get_item(TableName="t", Key={"pk": {"S": "p"}})
"""


class FunctionStarts(NamedTuple):
    """The starts of one function. A pair holds the minimum and the median."""

    name: str
    starts: list[Start]

    def init(self) -> tuple[float, float]:
        return _min_and_median([start.init_ms for start in self.starts])

    def to_call(self) -> tuple[float, float]:
        return _min_and_median([start.to_call_ms for start in self.starts])

    def ratio(self, bare: "FunctionStarts") -> float:
        """Return the ratio of the minimums.

        Other load only lengthens starts, also those of `bare`.
        """
        return self.init()[0] / bare.init()[0]


def _min_and_median(values: list[float]) -> tuple[float, float]:
    return min(values), statistics.median(values)


def measure_starts(
    begin_start: Callable[[str], Start], names: Sequence[str], rounds: int, extra_rounds: int
) -> list[FunctionStarts]:
    """Return the starts of each function. They alternate, so other load affects all alike.

    Functions above the aim get up to `extra_rounds` extra rounds, each beside a bare start.
    """
    rows = {name: FunctionStarts(name, []) for name in (BARE_FUNCTION, *names)}
    for round_index in range(rounds + extra_rounds):
        round_names = (
            list(rows)
            if round_index < rounds
            else [BARE_FUNCTION, *names_over_aim(list(rows.values()))]
        )
        if round_names == [BARE_FUNCTION]:
            break
        for name in round_names:
            rows[name].starts.append(begin_start(name))
        print(
            f"\rround {round_index + 1}: {len(round_names)} starts ",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return list(rows.values())


def names_over_aim(rows: Sequence[FunctionStarts]) -> list[str]:
    """Return the names of functions above the aim. The first row is the bare one."""
    return [row.name for row in rows[1:] if row.ratio(rows[0]) > MAX_INIT_RATIO]


def show(rows: Sequence[FunctionStarts]) -> None:
    bare_init, bare_call = rows[0].init(), rows[0].to_call()
    print(f"{'':<20} {'INIT ms':>15} {'ratio':>11}  {'CPU to 1st call':>15} {'ratio':>11}")
    print(f"{'':<20} {'min':>7} {'median':>7} {'min':>5} {'med.':>5} ", end="")
    print(f" {'min':>7} {'median':>7} {'min':>5} {'med.':>5}  starts")
    slow_names = names_over_aim(rows)
    for row in rows:
        init_columns, call_columns = (
            _format_pair(row.init(), bare_init),
            _format_pair(row.to_call(), bare_call),
        )
        note = "  above the aim" if row.name in slow_names else ""
        print(f"{row.name:<20} {init_columns}  {call_columns} {len(row.starts):7}{note}")


def _format_pair(pair: tuple[float, float], bare: tuple[float, float]) -> str:
    (minimum, median), (bare_minimum, bare_median) = pair, bare
    return f"{minimum:7.0f} {median:7.0f} {minimum / bare_minimum:5.2f} {median / bare_median:5.2f}"


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
    parser.add_argument(
        "--more", type=int, default=21, help="extra rounds for functions above the aim"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of functions")
    options = parser.parse_args()
    event_by_function = events()
    names = [name for name in event_by_function if name in options.only or not options.only]
    core, vendor = layers = build_layers(host_target())
    print(
        f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f}; ratio aimed at: least INIT at most {MAX_INIT_RATIO}"
    )
    with tempfile.TemporaryDirectory(prefix="punctual-cold-") as folder_name:
        bare = Path(folder_name)
        (bare / "handler.py").write_text(BARE_HANDLER)

        def begin(name: str) -> Start:
            if name == BARE_FUNCTION:
                return start(bare, (), {}, None)
            return start(
                FUNCTIONS_FOLDER / folder_of(name),
                layers,
                environment(name),
                event_by_function[name],
            )

        rows = measure_starts(begin, names, options.rounds, options.more)
    show(rows)
    folders = {"layer core": core, "layer vendor": vendor}
    folders |= {name: FUNCTIONS_FOLDER / folder_of(name) for name in names}
    show_sizes({name: size_of(folder) for name, folder in folders.items()})
    print(f"load after: {os.getloadavg()[0]:.1f}")
    if names_over_aim(rows):
        sys.exit(1)
