"""Price a run of a script on AWS, from the calls that the protocol makes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.cost.accounts import Line, call_seconds, sum_dollars
from bench.cost.meter import Unit
from bench.cost.prices import Prices
from infra.config.stage import RUNNER_MEMORY_MB, Stage
from punctual.domain.leases import RENEWAL_INTERVAL
from punctual.tasks.script_function import waits_for_script

RUN_SECONDS = (1, 60)
RUNNER_OVERHEAD_SECONDS = 0.3  # to start a process for the script, and to end its group
LEASE_TIMER_WRITES = 2  # the timer for the end of a lease is put and deleted
HEARTBEAT_WRITES = 1
FINISH_WRITES = 3  # the result, the swap, and the history row
CLAIM_CALLS = {"renew": 3, "finish": 6}  # of AWS, for each call by claim
LOG_PARTS_OF_A_RENEWAL = 1  # if the script logs all the time; each is read, and put again


class ScriptCost(NamedTuple):
    """Dollars for a million runs, by what is paid."""

    seconds: int
    parts: Mapping[str, float]

    @property
    def dollars(self) -> float:
        return sum(self.parts.values())


def script_cost(seconds: int, lines: Sequence[Line], stage: Stage, prices: Prices) -> ScriptCost:
    """Return the cost of a run. `lines` are those of a run without a task that takes time."""

    def price(unit: Unit, amount: float) -> float:
        return prices.dollars_per_million(unit, amount)

    ran_seconds = seconds + RUNNER_OVERHEAD_SECONDS
    gigabytes = (stage.script_memory_mb + RUNNER_MEMORY_MB) / 1024
    parts = {
        "the run itself, as of other tasks": sum_dollars(lines),
        "the function of the script": price(Unit.REQUEST, 1)
        + price(Unit.GB_SECOND_X86, gigabytes * ran_seconds),
        "the lease and its timer": price(Unit.WRITE, HEARTBEAT_WRITES + LEASE_TIMER_WRITES),
    }
    if waits_for_script(seconds):
        waiting = stage.memory["executor-long"] / 1024 * ran_seconds
        parts["the executor that waits"] = price(Unit.GB_SECOND, waiting)
        return ScriptCost(seconds, parts)
    renewals = seconds / RENEWAL_INTERVAL.total_seconds()
    parts["renewals by claim"] = renewals * (
        _claim_call("renew", stage, prices) + price(Unit.WRITE, HEARTBEAT_WRITES)
    )
    log_parts = renewals * LOG_PARTS_OF_A_RENEWAL
    parts["log while it runs"] = price(Unit.PUT, log_parts) + price(Unit.GET, log_parts)
    parts["the finish by claim"] = _claim_call("finish", stage, prices) + price(
        Unit.WRITE, FINISH_WRITES
    )
    return ScriptCost(seconds, parts)


def _claim_call(call: str, stage: Stage, prices: Prices) -> float:
    memory_mb = stage.memory["claims"]
    seconds = prices.assumed["lambda_ms_an_invocation"] / 1000
    seconds += CLAIM_CALLS[call] * call_seconds(memory_mb, prices)
    return sum(
        prices.dollars_per_million(unit, amount)
        for unit, amount in (
            (Unit.API, 1),
            (Unit.REQUEST, 1),
            (Unit.GB_SECOND, memory_mb / 1024 * seconds),
        )
    )


def scripts_section(lines: Sequence[Line], stage: Stage, prices: Prices) -> Iterator[str]:
    """Yield the report of runs of 1 s and of 60 s in this stage."""
    costs = [script_cost(seconds, lines, stage, prices) for seconds in RUN_SECONDS]
    names = list(dict.fromkeys(name for cost in costs for name in cost.parts))
    yield ""
    yield "## A script"
    yield ""
    yield (
        f"Dollars for a million runs of a script in `{stage.name}`, with `scriptMemoryMb` "
        f"{stage.script_memory_mb}. The runner takes {RUNNER_OVERHEAD_SECONDS} s beside the "
        "script, as assumed. An executor waits for scripts with a timeout of up to 25 s, as the "
        "first one. Longer ones renew their claim each "
        f"{RENEWAL_INTERVAL.total_seconds():.0f} s, and are assumed to log all the time. The calls "
        "of the protocol are computed, not counted. AWS also charges for each new environment of "
        "a function with tenant isolation. That price is not included."
    )
    yield ""
    yield f"| paid for | {' | '.join(f'{cost.seconds} s' for cost in costs)} |"
    yield f"|---|{'---:|' * len(costs)}"
    for name in names:
        cells = [f"{cost.parts[name]:.2f}" if name in cost.parts else "" for cost in costs]
        yield f"| {name} | {' | '.join(cells)} |"
    yield f"| in all | {' | '.join(f'{cost.dollars:.2f}' for cost in costs)} |"
    yield ""
    yield (
        "So the time of the script decides. A stage with half of the memory pays half of it. While "
        "no script runs, nothing is paid."
    )
