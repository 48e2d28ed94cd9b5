"""The deployed observability stack, with references to other stacks resolved.

As a program it prints the stored list of prod's alarms.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.infra.synthesised import Made, assembly, synthesise

SHOWN = ("prod", "dev")
ON_CALL = "on-call@example.com"
LISTED = Path(__file__).with_name("alarms.txt")


class Series(NamedTuple):
    """One metric that an alarm reads. `of` are its dimensions."""

    namespace: str
    name: str
    of: tuple[tuple[str, str], ...]


@cache
def all_on(stage: str) -> Made:
    """Return the stage with all observability features."""
    if stage == "prod":
        return assembly(stage)
    return synthesise(stage, alarms=True, dashboard=True, alarmEmail=ON_CALL)


def followed(made: Made, value: Any, stack: str = "Observability") -> Any:
    """Return a value with references as text, for example `<Data.JobsTable10C8EDF6>`."""
    if isinstance(value, list):
        return [followed(made, one, stack) for one in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str(name)}:
            return f"<{name}>" if name.startswith("AWS::") else f"<{stack}.{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{stack}.{name}.{attribute}>"
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(followed(made, part, stack) for part in parts)
        case {"Fn::GetStackOutput": {"StackName": str(other), "OutputName": str(output)}}:
            there = other.rsplit("-", 1)[1]
            return followed(made, made.templates[there]["Outputs"][output]["Value"], there)
    return {name: followed(made, one, stack) for name, one in value.items()}


def observed(made: Made, kind: str) -> dict[str, Any]:
    """Return properties by logical id."""
    found = made.templates["Observability"]["Resources"].items()
    return {
        name: followed(made, body["Properties"]) for name, body in found if body["Type"] == kind
    }


def alarms(made: Made) -> dict[str, Any]:
    """Return the alarms by name without the stage."""
    return {
        one["AlarmName"].split("-", 2)[2]: one
        for one in observed(made, "AWS::CloudWatch::Alarm").values()
    }


def series(alarm: dict[str, Any]) -> Iterator[Series]:
    """Yield the metrics that an alarm reads."""
    stats = [one["MetricStat"] for one in alarm.get("Metrics", []) if "MetricStat" in one]
    for one in [stat["Metric"] for stat in stats] or [alarm]:
        dimensions = sorted((each["Name"], each["Value"]) for each in one.get("Dimensions", []))
        yield Series(one["Namespace"], one["MetricName"], tuple(dimensions))


def watched(made: Made) -> set[Series]:
    return {one for alarm in alarms(made).values() for one in series(alarm)}


def board(made: Made) -> list[dict[str, Any]]:
    """Return the widgets from the dashboard's body."""
    (dashboard,) = observed(made, "AWS::CloudWatch::Dashboard").values()
    widgets: list[dict[str, Any]] = json.loads(dashboard["DashboardBody"])["widgets"]
    return widgets


def queries(made: Made) -> dict[str, Any]:
    """Return the queries by name without the folder."""
    return {
        one["Name"].split("/", 1)[1]: one
        for one in observed(made, "AWS::Logs::QueryDefinition").values()
    }


def listed() -> str:
    """Return a line for each alarm of prod with its metrics and its threshold."""
    return "".join(
        f"{name}: {_rings(one)}\n" for name, one in sorted(alarms(all_on("prod")).items())
    )


def _rings(alarm: dict[str, Any]) -> str:
    parts = alarm.get("Metrics", [])
    shown = [one["Expression"] for one in parts if one["ReturnData"]] or [_metric(alarm, alarm)]
    read = [
        f"{one['Id']} = {_metric(one['MetricStat'], one['MetricStat']['Metric'])}"
        for one in parts
        if not one["ReturnData"]
    ]
    compared = f"{alarm['ComparisonOperator']} {alarm['Threshold']}"
    often = f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}"
    return "; ".join([f"{shown[0]} {compared}, {often}, {alarm['TreatMissingData']}", *read])


def _metric(stat: dict[str, Any], metric: dict[str, Any]) -> str:
    how = stat.get("Stat") or stat.get("Statistic") or stat["ExtendedStatistic"]
    of = " ".join(f"{one['Name']}={one['Value']}" for one in metric["Dimensions"])
    return f"{how} of {metric['Namespace']} {metric['MetricName']} ({of}) in {stat['Period']} s"


if __name__ == "__main__":
    LISTED.write_text(listed())
