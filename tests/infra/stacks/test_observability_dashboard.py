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
from tests.support.infra.observability import (
    SHOWN,
    Series,
    all_on,
    board,
    followed,
    observed,
    queries,
    watched,
)
from tests.support.infra.synthesis import (
    STAGES,
    Synthesis,
    assembly,
    functions,
    resources,
    script_functions,
    synthesise,
)

ROOT = Path(__file__).parents[3]
ROWS = [
    "Punctuality",
    "Backlog",
    "Failures",
    "API",
    "Functions",
    "Scripts",
    "Tables",
    "Costs",
]
FREE = {
    "AWS/Lambda": {
        "Invocations",
        "Errors",
        "Throttles",
        "Duration",
        "ConcurrentExecutions",
        "IteratorAge",
        "AsyncEventsDropped",
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
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return all_on(request.param)


def headings(synthesis: Synthesis) -> list[str]:
    texts = [
        widget["properties"]["markdown"] for widget in board(synthesis) if widget["type"] == "text"
    ]
    return [text.split("\n")[0].lstrip("# ") for text in texts]


def displayed(synthesis: Synthesis) -> Iterator[Series]:
    for widget in board(synthesis):
        for line in widget["properties"].get("metrics", []):
            if isinstance(line[0], str):
                plain = [part for part in line if isinstance(part, str)]
                pairs = tuple(sorted(zip(plain[2::2], plain[3::2], strict=True)))
                yield Series(plain[0], plain[1], pairs)


def things(synthesis: Synthesis) -> set[tuple[str, str]]:
    """Return the dimensions that AWS metrics may have."""
    queues = resources(synthesis, "AWS::SQS::Queue")
    return {
        *(
            ("FunctionName", function.properties["FunctionName"])
            for function in (*functions(synthesis).values(), *script_functions(synthesis).values())
        ),
        *(("QueueName", queue.properties["QueueName"]) for queue in queues),
        *(
            ("TableName", f"<Data.{table.name}>")
            for table in resources(synthesis, "AWS::DynamoDB::Table")
        ),
        *(("ApiId", f"<Api.{api.name}>") for api in resources(synthesis, "AWS::ApiGatewayV2::Api")),
    }


def log_groups(synthesis: Synthesis) -> set[str]:
    return {
        followed(synthesis, group.properties["LogGroupName"])
        for group in resources(synthesis, "AWS::Logs::LogGroup")
    }


def test_widgets_do_not_overlap(synthesis: Synthesis) -> None:
    cells = []
    for widget in board(synthesis):
        assert widget["x"] >= 0
        assert widget["x"] + widget["width"] <= GRID_WIDTH
        right, below = widget["x"] + widget["width"], widget["y"] + widget["height"]
        cells.append((widget["x"], widget["y"], right, below))
    for (x, y, right, below), (x2, y2, right2, below2) in combinations(cells, 2):
        assert right <= x2 or right2 <= x or below <= y2 or below2 <= y


def test_dashboard_has_its_rows_in_order(synthesis: Synthesis) -> None:
    """First a description and the alarms, then row by row an explanation and graphs."""
    assert headings(synthesis)[1:] == ROWS
    ordered = sorted(board(synthesis), key=lambda widget: (widget["y"], widget["x"]))
    assert [widget["type"] for widget in ordered[:2]] == ["text", "alarm"]
    for first, second in pairwise(ordered[2:]):
        assert (first["type"], second["type"]) != ("text", "text")
    for widget in ordered:
        if widget["type"] == "text":
            assert widget["width"] == GRID_WIDTH
            assert len(widget["properties"]["markdown"].split("\n")) == 2
        else:
            assert widget["properties"]["title"]


def test_last_row_links_to_the_cost_page(synthesis: Synthesis) -> None:
    assert "docs/cost.md" in board(synthesis)[-1]["properties"]["markdown"]


def test_all_alarms_are_at_the_top(synthesis: Synthesis) -> None:
    listed = board(synthesis)[1]["properties"]["alarms"]
    names = observed(synthesis, "AWS::CloudWatch::Alarm")
    assert listed == [f"<Observability.{name}.Arn>" for name in names]
    assert len(listed) <= 100  # the maximum of a widget


def test_every_displayed_metric_exists(synthesis: Synthesis) -> None:
    existing = things(synthesis)
    metrics = set(displayed(synthesis))
    assert metrics
    for metric in metrics | watched(synthesis):
        if metric.namespace == METRIC_NAMESPACE:
            dimensions = dict(metric.of)
            assert set(dimensions) == {"service", "stage"}
            assert dimensions["service"] in EMITTING_FUNCTIONS[Metric(metric.name)]
        else:
            assert metric.name in FREE[metric.namespace]
            assert set(metric.of) <= existing


def test_every_function_queue_and_table_is_displayed(synthesis: Synthesis) -> None:
    assert {
        pair
        for metric in displayed(synthesis)
        if metric.namespace != METRIC_NAMESPACE
        for pair in metric.of
    } == things(synthesis)


def test_dashboard_uses_metrics_if_enabled_and_log_queries_otherwise() -> None:
    paid = {
        metric.name
        for metric in displayed(assembly("prod"))
        if metric.namespace == METRIC_NAMESPACE
    }
    assert paid == set(Metric) - {Metric.TICKS}  # a free metric of AWS counts them
    assert not [widget for widget in board(assembly("prod")) if widget["type"] == "log"]
    assert not [
        metric for metric in displayed(all_on("dev")) if metric.namespace == METRIC_NAMESPACE
    ]
    log_queries = [
        widget["properties"]["query"] for widget in board(all_on("dev")) if widget["type"] == "log"
    ]
    assert len(log_queries) == 4
    for query in log_queries:
        names = re.findall(r"SOURCE '([^']+)'", query)
        assert names
        assert set(names) <= log_groups(all_on("dev"))


def test_formulas_use_existing_ids(synthesis: Synthesis) -> None:
    for widget in board(synthesis):
        lines = widget["properties"].get("metrics", [])
        ids = {line[-1]["id"] for line in lines if "id" in line[-1]}
        for line in lines:
            if isinstance(line[0], dict) and "expression" in line[0]:
                named = set(re.findall(r"\b[a-z]\w*", line[0]["expression"]))
                assert named
                assert named <= ids


def test_each_question_has_a_saved_query(synthesis: Synthesis) -> None:
    assert set(queries(synthesis)) >= {
        "run by id",
        "job by id",
        "failed runs",
        "latest pick-ups",
        "refused API calls",
        "what the reconciler found",
        "planner ticks",
        "problems only",
    }


def test_queries_read_existing_logs_and_the_widest_read_all(synthesis: Synthesis) -> None:
    for name, query in queries(synthesis).items():
        assert set(query["LogGroupNames"]) <= log_groups(synthesis), name
    for name in ("problems only", "run by id", "job by id"):
        assert set(queries(synthesis)[name]["LogGroupNames"]) == log_groups(synthesis)


def test_queries_filter_by_events_of_the_code(synthesis: Synthesis) -> None:
    code = "".join(
        path.read_text()
        for folder in ("layers/core/python/punctual", "functions")
        for path in (ROOT / folder).rglob("*.py")
    )
    count = 0
    for name, query in queries(synthesis).items():
        assert query["QueryString"].startswith("# "), f"{name} says how to use it"
        for listed in re.findall(r'message (?:in \[([^]]+)\]|= ("\w+"))', query["QueryString"]):
            for event in re.findall(r'"(\w+)"', "".join(listed)):
                count += 1
                assert f'"{event}"' in code, event
    assert count > 10


def test_api_query_uses_fields_of_the_access_log(synthesis: Synthesis) -> None:
    (stage,) = resources(synthesis, "AWS::ApiGatewayV2::Stage")
    written: Any = stage.properties["AccessLogSettings"]["Format"]
    query = queries(synthesis)["refused API calls"]["QueryString"]
    fields = re.findall(r"\w+", query.split("fields @timestamp, ")[1].split("\n")[0])
    assert len(fields) > 8
    assert [name for name in fields if f'"{name}":' not in written] == []


def test_outputs_link_to_dashboard_queries_and_outputs(synthesis: Synthesis) -> None:
    outputs = {
        name: followed(synthesis, output["Value"], stack)
        for stack in ("Observability", "Data")
        for name, output in synthesis.templates[stack]["Outputs"].items()
        if name.endswith("Link")
    }
    console = "https://<AWS::Region>.console.aws.amazon.com"
    (bucket,) = (
        candidate.name
        for candidate in resources(synthesis, "AWS::S3::Bucket", "Data")
        if "VersioningConfiguration" in candidate.properties
    )
    (dashboard,) = observed(synthesis, "AWS::CloudWatch::Dashboard").values()
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
    synthesis = synthesise("dev", dashboard=False)
    assert resources(synthesis, "AWS::CloudWatch::Dashboard") == []
    assert "DashboardLink" not in synthesis.templates["Observability"]["Outputs"]
