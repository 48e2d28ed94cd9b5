"""The deployed observability stack, with references to other stacks resolved.

As a program it prints the stored list of prod's alarms.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.infra.synthesis import Synthesis, assembly, synthesise

SHOWN = ("prod", "dev")
ON_CALL = "on-call@example.com"
LISTED = Path(__file__).with_name("alarms.txt")


class Series(NamedTuple):
    """One metric that an alarm reads. `of` are its dimensions."""

    namespace: str
    name: str
    of: tuple[tuple[str, str], ...]


@cache
def all_on(stage: str) -> Synthesis:
    """Return the stage with all observability features."""
    if stage == "prod":
        return assembly(stage)
    return synthesise(stage, alarms=True, dashboard=True, alarmEmail=ON_CALL)


def followed(synthesis: Synthesis, value: Any, stack: str = "Observability") -> Any:
    """Return a value with references as text, for example `<Data.JobsTable10C8EDF6>`."""
    if isinstance(value, list):
        return [followed(synthesis, item, stack) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str(name)}:
            return f"<{name}>" if name.startswith("AWS::") else f"<{stack}.{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{stack}.{name}.{attribute}>"
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(followed(synthesis, part, stack) for part in parts)
        case {"Fn::GetStackOutput": {"StackName": str(other), "OutputName": str(output)}}:
            suffix = other.rsplit("-", 1)[1]
            return followed(
                synthesis, synthesis.templates[suffix]["Outputs"][output]["Value"], suffix
            )
    return {name: followed(synthesis, item, stack) for name, item in value.items()}


def observed(synthesis: Synthesis, kind: str) -> dict[str, Any]:
    """Return properties by logical id."""
    resources = synthesis.templates["Observability"]["Resources"].items()
    return {
        name: followed(synthesis, body["Properties"])
        for name, body in resources
        if body["Type"] == kind
    }


def alarms(synthesis: Synthesis) -> dict[str, Any]:
    """Return the alarms by name without the stage."""
    return {
        properties["AlarmName"].split("-", 2)[2]: properties
        for properties in observed(synthesis, "AWS::CloudWatch::Alarm").values()
    }


def series(alarm: dict[str, Any]) -> Iterator[Series]:
    """Yield the metrics that an alarm reads."""
    stats = [part["MetricStat"] for part in alarm.get("Metrics", []) if "MetricStat" in part]
    for metric in [stat["Metric"] for stat in stats] or [alarm]:
        dimensions = sorted(
            (dimension["Name"], dimension["Value"]) for dimension in metric.get("Dimensions", [])
        )
        yield Series(metric["Namespace"], metric["MetricName"], tuple(dimensions))


def watched(synthesis: Synthesis) -> set[Series]:
    return {metric for alarm in alarms(synthesis).values() for metric in series(alarm)}


def board(synthesis: Synthesis) -> list[dict[str, Any]]:
    """Return the widgets from the dashboard's body."""
    (dashboard,) = observed(synthesis, "AWS::CloudWatch::Dashboard").values()
    widgets: list[dict[str, Any]] = json.loads(dashboard["DashboardBody"])["widgets"]
    return widgets


def queries(synthesis: Synthesis) -> dict[str, Any]:
    """Return the queries by name without the folder."""
    return {
        query["Name"].split("/", 1)[1]: query
        for query in observed(synthesis, "AWS::Logs::QueryDefinition").values()
    }


def listed() -> str:
    """Return a line for each alarm of prod with its metrics and its threshold."""
    return "".join(
        f"{name}: {_rings(alarm)}\n" for name, alarm in sorted(alarms(all_on("prod")).items())
    )


def _rings(alarm: dict[str, Any]) -> str:
    parts = alarm.get("Metrics", [])
    expressions = [part["Expression"] for part in parts if part["ReturnData"]] or [
        _metric(alarm, alarm)
    ]
    read = [
        f"{part['Id']} = {_metric(part['MetricStat'], part['MetricStat']['Metric'])}"
        for part in parts
        if not part["ReturnData"]
    ]
    compared = f"{alarm['ComparisonOperator']} {alarm['Threshold']}"
    often = f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}"
    return "; ".join([f"{expressions[0]} {compared}, {often}, {alarm['TreatMissingData']}", *read])


def _metric(stat: dict[str, Any], metric: dict[str, Any]) -> str:
    how = stat.get("Stat") or stat.get("Statistic") or stat["ExtendedStatistic"]
    dimensions = " ".join(
        f"{dimension['Name']}={dimension['Value']}" for dimension in metric["Dimensions"]
    )
    name = f"{metric['Namespace']} {metric['MetricName']}"
    return f"{how} of {name} ({dimensions}) in {stat['Period']} s"


if __name__ == "__main__":
    LISTED.write_text(listed())
