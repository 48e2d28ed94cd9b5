"""Price the settings that no stage has by default: metrics per route, and tracing."""

from collections.abc import Iterator, Mapping, Sequence

from bench.cost.accounts import Line, sum_amounts
from bench.cost.idle import Template
from bench.cost.meter import Unit
from bench.cost.prices import Prices

ROUTE_METRICS = ("4xx", "5xx", "Count", "DataProcessed", "IntegrationLatency", "Latency")
"""The metrics that an HTTP API emits for each route if `apiMetrics` is on."""

BATCH_WORDS = {"ten": "ten at a time", "alone": "alone"}
TRACED_SHARE = 0.05
"""Lambda traces one invocation of a function each second, and this share of the rest."""


def optional_settings_section(
    templates: Sequence[Template], scenes: Mapping[str, Sequence[Line]], prices: Prices
) -> Iterator[str]:
    """Yield the report. `scenes` maps the number of runs in a batch to the lines of one run."""
    routes = sum(
        resource["Type"] == "AWS::ApiGatewayV2::Route"
        for template in templates
        for resource in template["Resources"].values()
    )
    metrics = routes * len(ROUTE_METRICS)
    yield ""
    yield "## Settings that are off by default"
    yield ""
    yield "| setting | billed items | dollars |"
    yield "|---|---|---:|"
    yield (
        f"| `apiMetrics` | {len(ROUTE_METRICS)} metrics for each of {routes} routes that "
        f"has calls | up to {metrics * prices.monthly['custom-metric']:.2f} a month |"
    )
    for name, lines in scenes.items():
        traces = sum_amounts(lines, Unit.REQUEST)
        all_traces_dollars = traces * prices.dollars_per_million(Unit.TRACE, 1)
        yield (
            f"| `tracing` | {traces:.2g} traces for a run, {BATCH_WORDS[name]}. Lambda records "
            f"one a second for each function and {TRACED_SHARE:.0%} of the others | "
            f"{TRACED_SHARE * all_traces_dollars:.2f} to {all_traces_dollars:.2f} a million runs |"
        )
    yield ""
    yield (
        "Without them the API still has metrics of all calls, errors and latency together. The "
        "queries `run by id` and `job by id` follow one run or job through all functions. Deploy "
        "with the settings on as long as you need them."
    )
