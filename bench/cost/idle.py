"""Compute the monthly cost of an idle deployment from the synthesised templates."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.cost.meter import Unit
from bench.cost.prices import Prices

Template = Mapping[str, Any]


class IdleDollars(NamedTuple):
    """Dollars of one idle planner tick, one round over the dead letters, and one daily walk."""

    minute: float
    round: float
    day: float


class MonthlyItem(NamedTuple):
    """One line of a month's bill. `is_optional` marks an item that a stage can do without."""

    label: str
    number: float
    dollars: float
    buys: str
    is_optional: bool = False


def monthly_items(
    templates: Sequence[Template], idle: IdleDollars, prices: Prices, metrics: int
) -> list[MonthlyItem]:
    """Return the lines of an idle month. `metrics` is the number of metrics of the functions."""
    items = [
        *_scheduling_items(templates, idle, prices),
        *_chosen_items(templates, prices, metrics),
    ]
    return [item for item in items if item.number]


def _scheduling_items(
    templates: Sequence[Template], idle: IdleDollars, prices: Prices
) -> list[MonthlyItem]:
    minutes = prices.assumed["hours_a_month"] * 60
    rounds, days = minutes / 5, minutes / (24 * 60)
    queue_names = _source_queue_names(templates)
    standard = [queue_name for queue_name in queue_names if not queue_name.endswith(".fifo")]
    fifo = [queue_name for queue_name in queue_names if queue_name.endswith(".fifo")]
    return [
        MonthlyItem(
            "minutes without due timers", minutes, idle.minute * minutes, "the tick of the planner"
        ),
        MonthlyItem(
            "rounds over the dead letters",
            rounds,
            idle.round * rounds,
            "one request for each queue; an event source would make thousands",
        ),
        MonthlyItem("days", days, idle.day * days, "the walk over all jobs, without finds"),
        _polled_item("event sources on standard queues", len(standard), Unit.SQS, prices),
        _polled_item("event sources on FIFO queues", len(fifo), Unit.FIFO, prices),
    ]


def _polled_item(label: str, sources: int, unit: Unit, prices: Prices) -> MonthlyItem:
    polls = polls_per_source(prices)
    buys = f"Lambda polls an empty queue: {polls:,.0f} requests a month for each"
    return MonthlyItem(label, sources, sources * polls * prices.units[unit], buys)


def polls_per_source(prices: Prices) -> float:
    """Return the requests a month of the pollers of one idle source."""
    assumed = prices.assumed
    polls_per_poller = assumed["hours_a_month"] * 3600 / assumed["long_poll_seconds"]
    return assumed["idle_pollers_a_source"] * polls_per_poller


def free_requests_discount(templates: Sequence[Template], prices: Prices) -> float:
    """Return the discount of the free requests. They are assigned to the cheaper requests first."""
    polls, free_requests = polls_per_source(prices), prices.free_sqs
    saved = 0.0
    queue_names = _source_queue_names(templates)
    for unit, is_fifo in ((Unit.SQS, False), (Unit.FIFO, True)):
        requests = polls * sum(
            queue_name.endswith(".fifo") == is_fifo for queue_name in queue_names
        )
        free_now = min(requests, free_requests)
        free_requests -= free_now
        saved += free_now * prices.units[unit]
    return saved


def _source_queue_names(templates: Sequence[Template]) -> list[str]:
    """Return the names of queues that are event sources. A FIFO queue's name ends with .fifo."""
    names = {
        name: str(resource["Properties"].get("QueueName", ""))
        for name, resource in _resources(templates, "AWS::SQS::Queue").items()
    }
    sources = _resources(templates, "AWS::Lambda::EventSourceMapping").values()
    source_arns = [str(resource["Properties"]["EventSourceArn"]) for resource in sources]
    return [
        name for queue, name in names.items() if any(queue in resource for resource in source_arns)
    ]


def _chosen_items(templates: Sequence[Template], prices: Prices, metrics: int) -> list[MonthlyItem]:
    alarms = _resources(templates, "AWS::CloudWatch::Alarm").values()
    alarm_metrics = sum(_billed_metrics(alarm["Properties"]) for alarm in alarms)

    def priced_item(label: str, count: float, price_name: str, buys: str) -> MonthlyItem:
        return MonthlyItem(label, count, count * prices.monthly[price_name], buys, is_optional=True)

    def count_resources(kind: str) -> int:
        return len(_resources(templates, kind))

    return [
        priced_item(
            "metrics watched by alarms", alarm_metrics, "alarm-metric", f"{len(alarms)} alarms"
        ),
        priced_item(
            "composite alarms",
            count_resources("AWS::CloudWatch::CompositeAlarm"),
            "composite-alarm",
            "an alarm that combines several alarms",
        ),
        priced_item("custom metrics", metrics, "custom-metric", "metrics that no AWS service has"),
        priced_item(
            "dashboards",
            count_resources("AWS::CloudWatch::Dashboard"),
            "dashboard",
            "`dashboard: false` removes it",
        ),
        priced_item(
            "customer managed keys", count_resources("AWS::KMS::Key"), "kms-key", "encryption"
        ),
        priced_item(
            "secrets", count_resources("AWS::SecretsManager::Secret"), "secret", "stored secrets"
        ),
    ]


def _billed_metrics(alarm: Mapping[str, Any]) -> int:
    """Return how many metrics an alarm is billed for. An expression counts each metric in it."""
    metric_stats = [metric for metric in alarm.get("Metrics", []) if "MetricStat" in metric]
    return len(metric_stats) or 1


def _resources(templates: Sequence[Template], kind: str) -> dict[str, Mapping[str, Any]]:
    return {
        name: resource
        for template in templates
        for name, resource in template.get("Resources", {}).items()
        if resource["Type"] == kind
    }
