"""Sum billed units by purpose, and price them in dollars per million."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.meter import Call, Unit
from bench.prices import Prices

Spent = Mapping[tuple[Unit, str, str], float]  # by unit, function and purpose


class Line(NamedTuple):
    unit: Unit
    role: str
    what: str
    amount: float
    dollars: float  # for a million of the counted things

    @property
    def place(self) -> tuple[Unit, str, str]:
        return self.unit, self.role, self.what


def spent(calls: Iterable[Call], memory: Mapping[str, int], prices: Prices) -> Spent:
    """Return the units that calls spent. `memory` is each function's size in MB.

    Run time is assumed from the number of calls, not measured.
    """
    found: defaultdict[tuple[Unit, str, str], float] = defaultdict(float)
    for call in calls:
        for (unit, what), amount in call.units.items():
            found[unit, call.role, what] += amount
        if call.role in memory:
            gigabytes = memory[call.role] / 1024
            seconds = _seconds(call, memory[call.role], prices)
            if seconds:
                found[Unit.GB_SECOND, call.role, call.role] += gigabytes * seconds
            if any(unit is Unit.REQUEST for unit, _ in call.units):
                found[Unit.LOG_BYTE, call.role, "platform"] += prices.assumed[
                    "platform_lines_bytes"
                ]
    return found


def _seconds(call: Call, memory: int, prices: Prices) -> float:
    """Return the assumed run time that a call costs its function."""
    if call.service == "billing":
        started = any(unit is Unit.REQUEST for unit, _ in call.units)
        return prices.assumed["lambda_ms_an_invocation"] / 1000 if started else 0
    return 0 if call.by_lambda else call_seconds(memory, prices)


def call_seconds(memory: int, prices: Prices) -> float:
    """Return the seconds of one call.

    AWS answers all functions alike; boto3's part depends on memory.
    """
    assumed = prices.assumed
    share = min(1.0, memory / assumed["memory_of_a_processor"])
    return (assumed["call_answer_ms"] + assumed["call_cpu_ms"] / share) / 1000


def less(whole: Spent, part: Spent, times: float) -> Spent:
    """Return `whole` without `times` times `part`. This removes the cost of an idle deployment."""
    places = {**whole, **part}
    left = {place: whole.get(place, 0) - times * part.get(place, 0) for place in places}
    return {place: amount for place, amount in left.items() if abs(amount) > 1e-9}


def lines(whole: Spent, by: float, prices: Prices) -> list[Line]:
    """Return the lines for one of `by`, the most expensive first."""
    made = [
        Line(unit, role, what, amount / by, prices.a_million(unit, amount / by))
        for (unit, role, what), amount in whole.items()
    ]
    return sorted(made, key=lambda line: (-line.dollars, line.place))


def total(found: Sequence[Line], unit: Unit) -> float:
    return round(sum(line.amount for line in found if line.unit is unit), 6)


def dollars(found: Sequence[Line]) -> float:
    return sum(line.dollars for line in found)
