"""What stands and is paid for though nothing runs: read from the synthesised templates."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.meter import Unit
from bench.prices import Prices

Template = Mapping[str, Any]


class Standing(NamedTuple):
    """One line of a month's bill. `chosen`: a stage may do without it."""

    what: str
    number: float
    dollars: float
    buys: str
    chosen: bool = False


def standing(
    templates: Sequence[Template], minute: float, day: float, prices: Prices, metrics: int
) -> list[Standing]:
    """`minute`, `day`: dollars of one without work. `metrics`: how many the functions emit."""
    found = [*_scheduling(templates, minute, day, prices), *_chosen(templates, prices, metrics)]
    return [one for one in found if one.number]


def _scheduling(
    templates: Sequence[Template], minute: float, day: float, prices: Prices
) -> list[Standing]:
    minutes = prices.assumed["hours_a_month"] * 60
    polls = (
        prices.assumed["idle_pollers_a_source"]
        * prices.assumed["hours_a_month"]
        * 3600
        / prices.assumed["long_poll_seconds"]
    )
    days = minutes / (24 * 60)
    lines = [
        Standing("minutes in which nothing is due", minutes, minute * minutes, "the tick: a look"),
        Standing("days", days, day * days, "the walk over all jobs, which finds none"),
    ]
    for unit, is_fifo in ((Unit.SQS, False), (Unit.FIFO, True)):
        sources = _sources(templates, is_fifo)
        kind = "FIFO" if is_fifo else "standard"
        lines.append(
            Standing(
                f"event sources on {kind} queues",
                len(sources),
                len(sources) * polls * prices.units[unit],
                f"Lambda asks an empty queue all the time: {polls:,.0f} requests a month for each",
            )
        )
    return lines


def _sources(templates: Sequence[Template], fifo: bool) -> list[str]:
    """Event sources that are queues, by name; a queue's name ends in .fifo, or it is standard."""
    names = {
        name: str(one["Properties"].get("QueueName", ""))
        for name, one in _resources(templates, "AWS::SQS::Queue").items()
    }
    found = []
    for name, one in _resources(templates, "AWS::Lambda::EventSourceMapping").items():
        said = str(one["Properties"]["EventSourceArn"])
        queue = next((queue for queue in names if queue in said), None)
        if queue is not None and names[queue].endswith(".fifo") == fifo:
            found.append(name)
    return found


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
        line("dashboards", counted("AWS::CloudWatch::Dashboard"), "dashboard", "one page on call"),
        line("keys of the account's own", counted("AWS::KMS::Key"), "kms-key", "encryption"),
        line("secrets", counted("AWS::SecretsManager::Secret"), "secret", "kept by us"),
    ]


def _watched(alarm: Mapping[str, Any]) -> int:
    """An alarm on an expression pays for each metric in it."""
    inside = [one for one in alarm.get("Metrics", []) if "MetricStat" in one]
    return len(inside) or 1


def _resources(templates: Sequence[Template], kind: str) -> dict[str, Mapping[str, Any]]:
    return {
        name: one
        for template in templates
        for name, one in template.get("Resources", {}).items()
        if one["Type"] == kind
    }
