"""Compute the highest daily cost of a tenant under the limits of a stage."""

from collections.abc import Iterator, Sequence

from bench.cost.accounts import Line, sum_dollars
from bench.cost.meter import Unit
from bench.cost.prices import MILLION, Prices
from infra.config.stage import Stage

DAY_SECONDS = 86_400


def ceiling_section(
    stage: Stage, run_lines: Sequence[Line], call_lines: Sequence[Line], prices: Prices
) -> Iterator[str]:
    """Yield the report.

    `run_lines` and `call_lines` are the lines of the costliest run and of a submission.
    """
    limits = stage.limits
    assert limits is not None
    assert limits.runs_per_minute is not None
    assert limits.calls_per_second is not None
    cost_by_label: dict[str, float] = {}
    for lane, queues in stage.lanes.items():
        executors = sum(
            limits.max_executors(max_executors) or max_executors
            for max_executors in queues.values()
        )
        gigabytes = stage.memory[f"executor-{lane}"] / 1024
        label = f"{executors} executors of the {lane} lane, waiting for slow tasks all day"
        cost_by_label[label] = executors * gigabytes * DAY_SECONDS * prices.units[Unit.GB_SECOND]
    runs = limits.runs_per_minute * 1440
    cost_by_label[f"{runs / MILLION:,.1f} M runs, each alone, with output in S3"] = (
        runs / MILLION * sum_dollars(run_lines)
    )
    calls = limits.calls_per_second * DAY_SECONDS
    cost_by_label[f"{calls / MILLION:,.2f} M calls, each submitting a job"] = (
        calls / MILLION * sum_dollars(call_lines)
    )
    yield ""
    yield "## Maximum costs of a tenant"
    yield ""
    yield (
        f"A day in stage {stage.name}, with its `limits` ({limits.runs_per_minute:,} starts a "
        f"minute, {limits.lane_percent} % of each lane's executors, {limits.calls_per_second} "
        "calls a second). No tenant reaches the total, because a waiting executor starts no runs."
    )
    yield ""
    yield "| item | $ a day |"
    yield "|---|---:|"
    for label, cost in cost_by_label.items():
        yield f"| {label} | {cost:,.0f} |"
    yield f"| **total** | **{sum(cost_by_label.values()):,.0f}** |"
    yield ""
    yield (
        "Some costs have no limit for a tenant and are not counted: the targets of tasks, traffic "
        "out of the region (bounded by `payload_bytes`), webhooks, and storage. A lower "
        "`runs_per_minute` lowers the largest line. Set it for all tenants in `cdk.json`, or for "
        "one tenant with `python -m infra.operations.limits`. `budgetDollars` sends mail if a "
        "month costs more."
    )
