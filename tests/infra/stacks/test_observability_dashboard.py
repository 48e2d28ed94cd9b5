"""The dashboard and the saved queries name only existing things."""

import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from infra.stacks.observability.dashboard import GRID_WIDTH
from infra.stacks.observability.metrics import EMITTING_FUNCTIONS
from punctual.lambdas.telemetry import METRIC_NAMESPACE, Metric
from tests.support.infra.observed import (
    SHOWN,
    Series,
    all_on,
    board,
    followed,
    observed,
    queries,
    watched,
)
from tests.support.infra.synthesised import STAGES, Made, assembly, functions, resources, synthesise

ROOT = Path(__file__).parents[3]
ROWS = [
    "Is it on time?",
    "Is it keeping up?",
    "Does it fail?",
    "Does the API answer?",
    "How do the functions do?",
    "How do the tables do?",
    "What does it cost?",
]
FREE = {
    "AWS/Lambda": {
        "Invocations",
        "Errors",
        "Throttles",
        "Duration",
        "ConcurrentExecutions",
        "IteratorAge",
    },
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesVisible",
        "NumberOfMessagesReceived",
    },
    "AWS/DynamoDB": {
        "ConsumedReadCapacityUnits",
        "ConsumedWriteCapacityUnits",
        "ReadThrottleEvents",
        "WriteThrottleEvents",
    },
    "AWS/ApiGateway": {"Count", "4xx", "5xx", "Latency", "IntegrationLatency"},
}
"""The metrics of AWS that the dashboard uses, as in the AWS documentation."""


@pytest.fixture(scope="module", params=SHOWN)
def made(request: pytest.FixtureRequest) -> Made:
    return all_on(request.param)


def headings(made: Made) -> list[str]:
    texts = [one["properties"]["markdown"] for one in board(made) if one["type"] == "text"]
    return [text.split("\n")[0].lstrip("# ") for text in texts]


def shown(made: Made) -> Iterator[Series]:
    for widget in board(made):
        for line in widget["properties"].get("metrics", []):
            if isinstance(line[0], str):
                plain = [part for part in line if isinstance(part, str)]
                pairs = tuple(sorted(zip(plain[2::2], plain[3::2], strict=True)))
                yield Series(plain[0], plain[1], pairs)


def things(made: Made) -> set[tuple[str, str]]:
    """Return the dimensions that AWS metrics may have."""
    queues = resources(made, "AWS::SQS::Queue")
    return {
        *(("FunctionName", one.properties["FunctionName"]) for one in functions(made).values()),
        *(("QueueName", one.properties["QueueName"]) for one in queues),
        *(("TableName", f"<Data.{one.name}>") for one in resources(made, "AWS::DynamoDB::Table")),
        *(("ApiId", f"<Api.{one.name}>") for one in resources(made, "AWS::ApiGatewayV2::Api")),
    }


def log_groups(made: Made) -> set[str]:
    return {
        followed(made, one.properties["LogGroupName"])
        for one in resources(made, "AWS::Logs::LogGroup")
    }


def test_widgets_do_not_overlap(made: Made) -> None:
    cells = []
    for one in board(made):
        assert one["x"] >= 0
        assert one["x"] + one["width"] <= GRID_WIDTH
        right, below = one["x"] + one["width"], one["y"] + one["height"]
        cells.append((one["x"], one["y"], right, below))
    for (x, y, right, below), (x2, y2, right2, below2) in combinations(cells, 2):
        assert right <= x2 or right2 <= x or below <= y2 or below2 <= y


def test_dashboard_has_its_rows_in_order(made: Made) -> None:
    """First a description and the alarms, then row by row an explanation and graphs."""
    assert headings(made)[1:] == ROWS
    ordered = sorted(board(made), key=lambda one: (one["y"], one["x"]))
    assert [one["type"] for one in ordered[:2]] == ["text", "alarm"]
    for first, second in pairwise(ordered[2:]):
        assert (first["type"], second["type"]) != ("text", "text")
    for one in ordered:
        if one["type"] == "text":
            assert one["width"] == GRID_WIDTH
            assert len(one["properties"]["markdown"].split("\n")) == 2
        else:
            assert one["properties"]["title"]


def test_last_row_links_to_the_cost_page(made: Made) -> None:
    assert "docs/cost.md" in board(made)[-1]["properties"]["markdown"]


def test_all_alarms_are_at_the_top(made: Made) -> None:
    listed = board(made)[1]["properties"]["alarms"]
    names = observed(made, "AWS::CloudWatch::Alarm")
    assert listed == [f"<Observability.{name}.Arn>" for name in names]
    assert len(listed) <= 100  # the maximum of a widget


def test_every_displayed_metric_exists(made: Made) -> None:
    there = things(made)
    found = set(shown(made))
    assert found
    for one in found | watched(made):
        if one.namespace == METRIC_NAMESPACE:
            of = dict(one.of)
            assert set(of) == {"service", "stage"}
            assert of["service"] in EMITTING_FUNCTIONS[Metric(one.name)]
        else:
            assert one.name in FREE[one.namespace]
            assert set(one.of) <= there


def test_every_function_queue_and_table_is_displayed(made: Made) -> None:
    assert {
        pair for one in shown(made) if one.namespace != METRIC_NAMESPACE for pair in one.of
    } == things(made)


def test_dashboard_uses_metrics_if_enabled_and_log_queries_otherwise() -> None:
    paid = {one.name for one in shown(assembly("prod")) if one.namespace == METRIC_NAMESPACE}
    assert paid == set(Metric) - {Metric.TICKS}  # a free metric of AWS counts them
    assert not [one for one in board(assembly("prod")) if one["type"] == "log"]
    assert not [one for one in shown(all_on("dev")) if one.namespace == METRIC_NAMESPACE]
    asked = [one["properties"]["query"] for one in board(all_on("dev")) if one["type"] == "log"]
    assert len(asked) == 4
    for query in asked:
        names = re.findall(r"SOURCE '([^']+)'", query)
        assert names
        assert set(names) <= log_groups(all_on("dev"))


def test_formulas_use_existing_ids(made: Made) -> None:
    for widget in board(made):
        lines = widget["properties"].get("metrics", [])
        ids = {line[-1]["id"] for line in lines if "id" in line[-1]}
        for line in lines:
            if isinstance(line[0], dict) and "expression" in line[0]:
                named = set(re.findall(r"\b[a-z]\w*", line[0]["expression"]))
                assert named
                assert named <= ids


def test_each_question_has_a_saved_query(made: Made) -> None:
    assert set(queries(made)) >= {
        "run by id",
        "job by id",
        "failed runs",
        "latest pick-ups",
        "refused API calls",
        "what the reconciler found",
        "planner ticks",
        "problems only",
    }


def test_queries_read_existing_logs_and_the_widest_read_all(made: Made) -> None:
    for name, one in queries(made).items():
        assert set(one["LogGroupNames"]) <= log_groups(made), name
    for name in ("problems only", "run by id", "job by id"):
        assert set(queries(made)[name]["LogGroupNames"]) == log_groups(made)


def test_queries_filter_by_events_of_the_code(made: Made) -> None:
    code = "".join(
        path.read_text()
        for folder in ("layers/core/python/punctual", "functions")
        for path in (ROOT / folder).rglob("*.py")
    )
    asked = 0
    for name, one in queries(made).items():
        assert one["QueryString"].startswith("# "), f"{name} says how to use it"
        for listed in re.findall(r'message (?:in \[([^]]+)\]|= ("\w+"))', one["QueryString"]):
            for event in re.findall(r'"(\w+)"', "".join(listed)):
                asked += 1
                assert f'"{event}"' in code, event
    assert asked > 10


def test_api_query_uses_fields_of_the_access_log(made: Made) -> None:
    (stage,) = resources(made, "AWS::ApiGatewayV2::Stage")
    written: Any = stage.properties["AccessLogSettings"]["Format"]
    asked = queries(made)["refused API calls"]["QueryString"]
    fields = re.findall(r"\w+", asked.split("fields @timestamp, ")[1].split("\n")[0])
    assert len(fields) > 8
    assert [one for one in fields if f'"{one}":' not in written] == []


def test_outputs_link_to_dashboard_queries_and_outputs(made: Made) -> None:
    outputs = {
        name: followed(made, one["Value"], stack)
        for stack in ("Observability", "Data")
        for name, one in made.templates[stack]["Outputs"].items()
        if name.endswith("Link")
    }
    console = "https://<AWS::Region>.console.aws.amazon.com"
    (bucket,) = (
        one.name
        for one in resources(made, "AWS::S3::Bucket", "Data")
        if "VersioningConfiguration" in one.properties
    )
    (dashboard,) = observed(made, "AWS::CloudWatch::Dashboard").values()
    home = f"{console}/cloudwatch/home?region=<AWS::Region>"
    assert outputs == {
        "DashboardLink": f"{home}#dashboards/dashboard/{dashboard['DashboardName']}",
        "SavedQueriesLink": f"{home}#logsV2:logs-insights",
        "OutputsLink": f"{console}/s3/buckets/<Data.{bucket}>?region=<AWS::Region>&prefix=outputs/",
    }


@pytest.mark.parametrize("stage", STAGES)
def test_stage_has_a_dashboard_by_default(stage: str) -> None:
    assert len(resources(assembly(stage), "AWS::CloudWatch::Dashboard")) == 1


def test_stage_without_dashboard_has_no_link_to_it() -> None:
    made = synthesise("dev", dashboard=False)
    assert resources(made, "AWS::CloudWatch::Dashboard") == []
    assert "DashboardLink" not in made.templates["Observability"]["Outputs"]
