"""Sum billed units by purpose, and price them in dollars per million."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.cost.meter import Call, Unit
from bench.cost.prices import Prices

UnitSums = Mapping[tuple[Unit, str, str], float]  # by unit, function and purpose


class Line(NamedTuple):
    unit: Unit
    role: str
    purpose: str
    amount: float
    dollars: float  # for a million of the counted things

    @property
    def key(self) -> tuple[Unit, str, str]:
        return self.unit, self.role, self.purpose


def sum_units(calls: Iterable[Call], memory_mb: Mapping[str, int], prices: Prices) -> UnitSums:
    """Return the units that calls spent. `memory_mb` is each function's size in MB.

    Run time is assumed from the number of calls, not measured.
    """
    sums: defaultdict[tuple[Unit, str, str], float] = defaultdict(float)
    for call in calls:
        for (unit, purpose), amount in call.units.items():
            sums[unit, call.role, purpose] += amount
        if call.role in memory_mb:
            gigabytes = memory_mb[call.role] / 1024
            seconds = _seconds(call, memory_mb[call.role], prices)
            if seconds:
                sums[Unit.GB_SECOND, call.role, call.role] += gigabytes * seconds
            if any(unit is Unit.REQUEST for unit, _ in call.units):
                sums[Unit.LOG_BYTE, call.role, "platform"] += prices.assumed["platform_lines_bytes"]
    return sums


def _seconds(call: Call, memory_mb: int, prices: Prices) -> float:
    """Return the assumed run time that a call costs its function."""
    if call.service == "billing":
        is_start = any(unit is Unit.REQUEST for unit, _ in call.units)
        return prices.assumed["lambda_ms_an_invocation"] / 1000 if is_start else 0
    return 0 if call.by_lambda else call_seconds(memory_mb, prices)


def call_seconds(memory_mb: int, prices: Prices) -> float:
    """Return the seconds of one call.

    AWS answers all functions alike; boto3's part depends on memory.
    """
    assumed = prices.assumed
    processor_share = min(1.0, memory_mb / assumed["memory_of_a_processor"])
    return (assumed["call_answer_ms"] + assumed["call_cpu_ms"] / processor_share) / 1000


def subtract_units(units: UnitSums, subtracted: UnitSums, factor: float) -> UnitSums:
    """Return `units` without `factor` times `subtracted`.

    This removes the cost of an idle deployment.
    """
    keys = {**units, **subtracted}
    difference = {key: units.get(key, 0) - factor * subtracted.get(key, 0) for key in keys}
    return {key: amount for key, amount in difference.items() if abs(amount) > 1e-9}


def priced_lines(units: UnitSums, count: float, prices: Prices) -> list[Line]:
    """Return the lines for one of `count`, the most expensive first."""
    priced = [
        Line(unit, role, purpose, amount / count, prices.dollars_per_million(unit, amount / count))
        for (unit, role, purpose), amount in units.items()
    ]
    return sorted(priced, key=lambda line: (-line.dollars, line.key))


def sum_amounts(lines: Sequence[Line], unit: Unit) -> float:
    return round(sum(line.amount for line in lines if line.unit is unit), 6)


def sum_dollars(lines: Sequence[Line]) -> float:
    return sum(line.dollars for line in lines)
