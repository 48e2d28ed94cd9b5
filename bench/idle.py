"""Compute the monthly cost of an idle deployment from the synthesised templates."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.meter import Unit
from bench.prices import Prices

Template = Mapping[str, Any]


class Idle(NamedTuple):
    """Dollars of one idle planner tick, one round over the dead letters, and one daily walk."""

    minute: float
    round: float
    day: float


class Standing(NamedTuple):
    """One line of a month's bill. `chosen` marks an item that a stage can do without."""

    what: str
    number: float
    dollars: float
    buys: str
    chosen: bool = False


def standing(
    templates: Sequence[Template], idle: Idle, prices: Prices, metrics: int
) -> list[Standing]:
    """Return the lines of an idle month. `metrics` is the number of metrics of the functions."""
    found = [*_scheduling(templates, idle, prices), *_chosen(templates, prices, metrics)]
    return [one for one in found if one.number]


def _scheduling(templates: Sequence[Template], idle: Idle, prices: Prices) -> list[Standing]:
    minutes = prices.assumed["hours_a_month"] * 60
    rounds, days = minutes / 5, minutes / (24 * 60)
    fed = _fed(templates)
    standard = [one for one in fed if not one.endswith(".fifo")]
    fifo = [one for one in fed if one.endswith(".fifo")]
    return [
        Standing(
            "minutes in which nothing is due", minutes, idle.minute * minutes, "the tick: a look"
        ),
        Standing(
            "rounds over the dead letters",
            rounds,
            idle.round * rounds,
            "a request for each lane's queue, where an event source would make thousands",
        ),
        Standing("days", days, idle.day * days, "the walk over all jobs, which finds none"),
        _polled("event sources on standard queues", len(standard), Unit.SQS, prices),
        _polled("event sources on FIFO queues", len(fifo), Unit.FIFO, prices),
    ]


def _polled(what: str, sources: int, unit: Unit, prices: Prices) -> Standing:
    polls = polls_a_source(prices)
    buys = f"Lambda asks an empty queue all the time: {polls:,.0f} requests a month for each"
    return Standing(what, sources, sources * polls * prices.units[unit], buys)


def polls_a_source(prices: Prices) -> float:
    """Return the requests a month of the pollers of one idle source."""
    assumed = prices.assumed
    a_poller = assumed["hours_a_month"] * 3600 / assumed["long_poll_seconds"]
    return assumed["idle_pollers_a_source"] * a_poller


def given(templates: Sequence[Template], prices: Prices) -> float:
    """Return the discount of the free requests. They are assigned to the cheaper requests first."""
    polls, left = polls_a_source(prices), prices.free_sqs
    saved = 0.0
    fed = _fed(templates)
    for unit, is_fifo in ((Unit.SQS, False), (Unit.FIFO, True)):
        asked = polls * sum(one.endswith(".fifo") == is_fifo for one in fed)
        free = min(asked, left)
        left -= free
        saved += free * prices.units[unit]
    return saved


def _fed(templates: Sequence[Template]) -> list[str]:
    """Return the names of queues that are event sources. A FIFO queue's name ends with .fifo."""
    names = {
        name: str(one["Properties"].get("QueueName", ""))
        for name, one in _resources(templates, "AWS::SQS::Queue").items()
    }
    sources = _resources(templates, "AWS::Lambda::EventSourceMapping").values()
    said = [str(one["Properties"]["EventSourceArn"]) for one in sources]
    return [name for queue, name in names.items() if any(queue in one for one in said)]


def _chosen(templates: Sequence[Template], prices: Prices, metrics: int) -> list[Standing]:
    alarms = _resources(templates, "AWS::CloudWatch::Alarm").values()
    watched = sum(_watched(one["Properties"]) for one in alarms)

    def line(what: str, count: float, price: str, buys: str) -> Standing:
        return Standing(what, count, count * prices.monthly[price], buys, chosen=True)

    def counted(kind: str) -> int:
        return len(_resources(templates, kind))

    return [
        line("metrics watched by alarms", watched, "alarm-metric", f"{len(alarms)} alarms"),
        line(
            "composite alarms",
            counted("AWS::CloudWatch::CompositeAlarm"),
            "composite-alarm",
            "one alarm from several",
        ),
        line("metrics of our own", metrics, "custom-metric", "what no service tells by itself"),
        line(
            "dashboards",
            counted("AWS::CloudWatch::Dashboard"),
            "dashboard",
            "`dashboard: false` removes it",
        ),
        line("keys of the account's own", counted("AWS::KMS::Key"), "kms-key", "encryption"),
        line("secrets", counted("AWS::SecretsManager::Secret"), "secret", "kept by us"),
    ]


def _watched(alarm: Mapping[str, Any]) -> int:
    """Return how many metrics an alarm is billed for. An expression counts each metric in it."""
    inside = [one for one in alarm.get("Metrics", []) if "MetricStat" in one]
    return len(inside) or 1


def _resources(templates: Sequence[Template], kind: str) -> dict[str, Mapping[str, Any]]:
    return {
        name: one
        for template in templates
        for name, one in template.get("Resources", {}).items()
        if one["Type"] == kind
    }
