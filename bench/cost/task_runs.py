"""Price runs of scripts and containers: counted calls, and the time of what carries them out."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.cost.accounts import Line, sum_dollars
from bench.cost.meter import Unit
from bench.cost.prices import MILLION, Prices
from bench.cost.words import short_role
from infra.config.stage import RUNNER_MEMORY_MB, SCRIPT_DISK_MB, Stage
from punctual.domain.leases import RENEWAL_INTERVAL
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.tasks.container.sizes import choose_size
from tests.support.containers.costs import (
    CONTAINER_RUN,
    CONTAINER_SECONDS,
    IDLE_SWEEP,
    LOG,
    START_SECONDS,
    STOP_SECONDS,
    container_costs,
)
from tests.support.scripts.costs import (
    LONG_SECONDS,
    RUNNER_SECONDS,
    SHORT_SECONDS,
    script_run_costs,
)

OUTPUT_RETENTION_DAYS, DAYS_A_MONTH = 30, 30
MINUTES_A_MONTH = 43_800
FREE_DISK_MB = 512  # of each environment of a function
PAID_DISK_GB = (SCRIPT_DISK_MB - FREE_DISK_MB) / 1024
CONTAINER_SIZE = choose_size(None)
SHOWN_SCRIPTS = (("short print", SHORT_SECONDS), ("long print", LONG_SECONDS))
_FUNCTION_PARTS = {
    "executor-long": "the executor",
    "claims": "calls by claim",
    "gateway": "calls by claim",
    "containers": "the function that follows containers",
}


class RunCost(NamedTuple):
    """Dollars for a million runs, by what is paid."""

    label: str
    parts: Mapping[str, float]

    @property
    def dollars(self) -> float:
        return sum(self.parts.values())


def script_cost(name: str, seconds: float, stage: Stage, prices: Prices) -> RunCost:
    """Return the cost of a counted run of a script."""
    gigabytes = (stage.script_memory_mb + RUNNER_MEMORY_MB) / 1024
    ran_seconds = seconds + RUNNER_SECONDS
    own = {
        "the function of the script": prices.dollars_per_million(Unit.REQUEST, 1)
        + prices.dollars_per_million(Unit.GB_SECOND_X86, gigabytes * ran_seconds),
        f"its disk above {FREE_DISK_MB} MB": prices.dollars_per_million(
            Unit.DISK_GB_SECOND, PAID_DISK_GB * ran_seconds
        ),
    }
    return RunCost(f"script, {seconds} s", {**_parts(script_run_costs()[name].lines), **own})


def container_cost(prices: Prices) -> RunCost:
    """Return the cost of a counted run of a container of the smallest size."""
    seconds = START_SECONDS + CONTAINER_SECONDS + STOP_SECONDS
    own = {
        "Fargate": prices.dollars_per_million(Unit.VCPU_SECOND, CONTAINER_SIZE.vcpu * seconds)
        + prices.dollars_per_million(
            Unit.FARGATE_GB_SECOND, CONTAINER_SIZE.memory_mb / 1024 * seconds
        ),
        "the public address": prices.dollars_per_million(Unit.ADDRESS_SECOND, seconds),
        "the log group": prices.dollars_per_million(Unit.LOG_BYTE, len(LOG)),
    }
    counted = _parts(container_costs()[CONTAINER_RUN].lines)
    return RunCost(f"container, {CONTAINER_SECONDS} s", {**counted, **own})


def sweep_dollars() -> float:
    """Return the monthly dollars of the sweep while there is no container."""
    return MINUTES_A_MONTH * sum_dollars(container_costs()[IDLE_SWEEP].lines) / MILLION


def added_dollars(name: str, base: str) -> float:
    """Return how much more a million of one kind of script runs cost than of another one."""
    costs = script_run_costs()
    return sum_dollars(costs[name].lines) - sum_dollars(costs[base].lines)


def _parts(lines: Sequence[Line]) -> dict[str, float]:
    dollars: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        dollars[_part(line)] += line.dollars
    return dict(dollars)


def _part(line: Line) -> str:
    role = short_role(line.role)
    if line.unit in (Unit.PUT, Unit.GET):
        return "requests to S3"
    if role == "executor-long" and line.purpose == "waiting":
        return "the executor that waits"
    return _FUNCTION_PARTS.get(role, "firing, leases, history and lists")


def task_runs_section(stage: Stage, prices: Prices) -> Iterator[str]:
    """Yield the report of runs of scripts and of a container."""
    costs = [
        *(script_cost(name, seconds, stage, prices) for name, seconds in SHOWN_SCRIPTS),
        container_cost(prices),
    ]
    yield ""
    yield "## A script and a container"
    yield ""
    yield (
        f"Dollars for a million runs in `{stage.name}`, each alone, and each with 2 KB of output. "
        "The calls are counted. The times of Lambda and Fargate are computed by list prices. "
        f"The script functions have {stage.script_memory_mb + RUNNER_MEMORY_MB} MB, and the "
        f"runner takes {RUNNER_SECONDS} s beside the script, as assumed. An executor waits for "
        f"scripts with a timeout of up to {MAX_WAITED_SCRIPT_SECONDS:g} s, as the first one. "
        f"Longer ones renew their claim each {RENEWAL_INTERVAL.total_seconds():.0f} s, and print "
        "all the time. AWS also charges for each new environment of a function with tenant "
        "isolation. That price is not included."
    )
    yield ""
    yield (
        f"The container has {CONTAINER_SIZE}, and an image without the runner. Fargate is paid for "
        f"{START_SECONDS} s before it runs and {STOP_SECONDS} s after it, as assumed. ECS sends "
        "five events. Its events and calls are free."
    )
    yield ""
    yield from _costs_table(costs)
    yield ""
    yield (
        "So the time of the program decides. A stage with half of the memory pays half of it. "
        "While no script and no container runs, nothing is paid but the sweep of a stage with "
        f"`containers` on: {sweep_dollars():.2f} dollars a month. A stage with its own `vpc` pays "
        "no public address, and its own way to the internet."
    )


def _costs_table(costs: Sequence[RunCost]) -> Iterator[str]:
    yield f"| paid for | {' | '.join(cost.label for cost in costs)} |"
    yield f"|---|{'---:|' * len(costs)}"
    for name in dict.fromkeys(name for cost in costs for name in cost.parts):
        cells = [f"{cost.parts[name]:.2f}" if name in cost.parts else "" for cost in costs]
        yield f"| {name} | {' | '.join(cells)} |"
    yield f"| in all | {' | '.join(f'{cost.dollars:.2f}' for cost in costs)} |"


def large_output_section(prices: Prices) -> Iterator[str]:
    """Yield what 1 MB of output adds to a run."""
    months = OUTPUT_RETENTION_DAYS / DAYS_A_MONTH
    stored = prices.monthly["s3-gb"] / 1024 * months * MILLION
    yield ""
    yield "## 1 MB of output"
    yield ""
    yield (
        "Dollars that 1 MB of output adds to a million runs of a script. Standard output stands "
        "in the output and in the log, so both are stored. A runner that finishes by its claim "
        "uploads its output, and sends the log in parts."
    )
    yield ""
    yield "| | dollars a million |"
    yield "|---|---:|"
    for label, name, base in (
        ("stored by the executor that waits", "short large", "short"),
        ("uploaded by the runner", "long large", "long"),
    ):
        yield f"| {label} | {added_dollars(name, base):.2f} |"
    yield (
        f"| output and log in S3 for {OUTPUT_RETENTION_DAYS} days, 2 MB a run | {2 * stored:.2f} |"
    )
