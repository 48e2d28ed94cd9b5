"""The CloudWatch dashboard of a stage."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.config.stage import EXECUTOR_FUNCTIONS, Stage
from infra.stacks.observability.alarms import (
    MAX_LATENESS_MS,
    MAX_LIST_LAG_MS,
    MAX_WATERMARK_LAG_SECONDS,
)
from infra.stacks.observability.metrics import (
    MAXIMUM_STATISTIC,
    OPERATOR_QUEUES,
    Metrics,
    WatchedResources,
)
from infra.stacks.observability.queries import log_group
from punctual.lambdas.telemetry import Metric

GRID_WIDTH = 24  # of CloudWatch's grid
GRAPH_HEIGHT = 6
TEXT_HEIGHT = 2
ALARM_COLOUR = cloudwatch.Color.RED

DashboardRow = tuple[str, Sequence[cloudwatch.IWidget]]


def create_dashboard(
    scope: Construct,
    construct_id: str,
    *,
    stage: Stage,
    watched: WatchedResources,
    alarms: Sequence[cloudwatch.IAlarm],
) -> cloudwatch.Dashboard:
    board = cloudwatch.Dashboard(
        scope,
        construct_id,
        dashboard_name=stage.prefix,
        default_interval=Duration.hours(3),
    )
    board.add_widgets(_text_widget(_welcome_text(stage)))
    if alarms:
        board.add_widgets(
            cloudwatch.AlarmStatusWidget(
                alarms=alarms,
                title="Alarms, latest changes first",
                sort_by=cloudwatch.AlarmStatusWidgetSortBy.STATE_UPDATED_TIMESTAMP,
                width=GRID_WIDTH,
                height=GRAPH_HEIGHT,
            )
        )
    metrics = Metrics(stage)
    for text, widgets in (
        _punctuality_row(stage, metrics),
        _backlog_row(stage, metrics, watched),
        _failure_row(stage, metrics, watched),
        _api_row(metrics, watched),
        _functions_row(metrics, watched),
        _scripts_row(metrics, watched),
        _tables_row(metrics, watched),
    ):
        board.add_widgets(_text_widget(text))
        board.add_widgets(*widgets)
    board.add_widgets(_text_widget(_cost_text(stage)))
    return board


def _welcome_text(stage: Stage) -> str:
    return (
        f"# Punctual ({stage.name})\n"
        "`docs/runbook.md` has a section for each alarm. The queries of the logs are saved in "
        f"Logs Insights under `{stage.prefix}/`."
    )


def _cost_text(stage: Stage) -> str:
    return (
        "## Costs\n"
        "`docs/cost.md` explains each unit. Cost Explorer shows the actual costs, by the tag "
        f"`stage = {stage.name}` together with `application = punctual`."
    )


def _punctuality_row(stage: Stage, metrics: Metrics) -> DashboardRow:
    text = (
        "## Punctuality\n"
        "Lateness of runs (aim: p99 under 2 s), lag of the watermark (two to four minutes are "
        "normal), and ticks of the planner (one a minute)."
    )
    ticks = _graph_widget("Ticks a minute", [metrics.ticks()])
    if not stage.metrics:
        return text, [
            _log_graph_widget(
                stage,
                "Lateness (ms), from the logs",
                EXECUTOR_FUNCTIONS,
                'filter message = "run_ended" and ispresent(lateness)',
                "stats pct(lateness, 50) as p50, pct(lateness, 99) as p99, max(lateness) as max "
                "by bin(1m)",
            ),
            _log_graph_widget(
                stage,
                "Minutes behind, from the logs",
                ["planner"],
                'filter message = "tick"',
                "stats max(behind) as behind by bin(1m)",
            ),
            ticks,
        ]
    lateness_metrics = [
        metrics.own_metric(
            Metric.LATENESS, function, statistic, f"{function.removeprefix('executor-')} {label}"
        )
        for function in EXECUTOR_FUNCTIONS
        for statistic, label in (("p50", "p50"), ("p99", "p99"), (MAXIMUM_STATISTIC, "max"))
    ]
    watermark_lag = metrics.own_metric(
        Metric.WATERMARK_LAG, "planner", MAXIMUM_STATISTIC, "watermark lag"
    )
    list_lag = metrics.own_metric(Metric.LIST_LAG, "status", MAXIMUM_STATISTIC, "lag of lists")
    return text, [
        _graph_widget("Lateness (ms)", lateness_metrics, limit=MAX_LATENESS_MS),
        _graph_widget("Lag of lists (ms)", [list_lag], limit=MAX_LIST_LAG_MS),
        _graph_widget("Watermark lag (s)", [watermark_lag], limit=MAX_WATERMARK_LAG_SECONDS),
        ticks,
    ]


def _backlog_row(stage: Stage, metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## Backlog\n"
        "The numbers of due, dispatched, started and finished runs should differ only by "
        "retries. Queues should be short, without messages older than a minute."
    )
    depths = [
        metrics.queue(queue, "ApproximateNumberOfMessagesVisible", MAXIMUM_STATISTIC)
        for queue in watched.queues
    ]
    ages = [
        metrics.queue(queue, "ApproximateAgeOfOldestMessage", MAXIMUM_STATISTIC)
        for queue in watched.queues
    ]
    return text, [
        _graph_widget(
            "Runs a minute",
            [
                metrics.own_sum(Metric.DUE, "due"),
                metrics.own_sum(Metric.DISPATCHED, "dispatched"),
                metrics.own_sum(Metric.STARTED, "started"),
                metrics.own_sum(Metric.FINISHED, "finished"),
                metrics.own_sum(Metric.LIMITED, "delayed by a limit"),
            ],
        )
        if stage.metrics
        else _log_graph_widget(
            stage,
            "Ended runs, from the logs",
            EXECUTOR_FUNCTIONS,
            'filter message = "run_ended"',
            "stats count(*) as ended by bin(1m)",
        ),
        _graph_widget("Waiting messages, by queue", depths),
        _graph_widget("Oldest message (s), by queue", ages),
    ]


def _failure_row(stage: Stage, metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## Failures\n"
        "Failed runs concern the owners of their jobs. Missed runs, dead letters and finds of "
        "the reconciler concern the operator. Their numbers should be zero."
    )
    dead_letters = [
        metrics.queue(queue, "ApproximateNumberOfMessagesVisible", MAXIMUM_STATISTIC)
        if queue in OPERATOR_QUEUES
        else metrics.dead_letter_count(queue)
        for queue in watched.dead_letter_queues
    ]
    stream_age = metrics.function("status", "IteratorAge", MAXIMUM_STATISTIC)
    return text, [
        _graph_widget(
            "Runs a minute",
            [
                metrics.own_sum(Metric.FAILED, "failed"),
                metrics.own_sum(Metric.RETRIED, "retried"),
                metrics.own_sum(Metric.MISSED, "missed"),
                metrics.own_sum(Metric.WEBHOOKS_GIVEN_UP, "abandoned webhooks"),
                metrics.own_sum(Metric.DEAD_LETTERS, "dead letters"),
                metrics.own_sum(Metric.RECONCILER_FINDS, "reconciler found"),
                metrics.own_sum(Metric.LIST_ROWS_REPAIRED, "list rows repaired"),
            ],
        )
        if stage.metrics
        else _log_graph_widget(
            stage,
            "Failed runs by status, from the logs",
            [*EXECUTOR_FUNCTIONS, "dead-letters"],
            'filter message in ["run_ended", "run_poisoned"] and status != "SUCCESS"',
            "stats count(*) as runs by bin(1m)",
        ),
        _graph_widget("Dead letters, by queue", dead_letters),
        _graph_widget("Age of job changes in the stream (ms)", [stream_age]),
    ]


def _api_row(metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## API\n"
        "4xx are errors of the client (429: throttled), 5xx are errors of the server. The query "
        "`refused API calls` shows the callers and reasons."
    )
    counts = [metrics.api(watched.api, name) for name in ("Count", "4xx", "5xx")]
    latency = [
        metrics.api(watched.api, "Latency", statistic).with_(label=f"total, {statistic}")
        for statistic in ("p50", "p99")
    ]
    integration_latency = metrics.api(watched.api, "IntegrationLatency", "p99").with_(
        label="function, p99"
    )
    return text, [
        _graph_widget("Calls a minute", counts, width=12),
        _graph_widget("Latency (ms)", [*latency, integration_latency], width=12),
    ]


def _functions_row(metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## Functions\n"
        "Errors are crashes, timeouts and lack of memory. Throttles mean that no concurrency is "
        "left. Long durations are normal for pollers and executors of the long lane."
    )
    graphs = (
        ("Duration, p99 (ms)", "Duration", "p99"),
        ("Errors a minute", "Errors", "Sum"),
        ("Throttles a minute", "Throttles", "Sum"),
        ("Concurrent executions", "ConcurrentExecutions", MAXIMUM_STATISTIC),
    )
    return text, [
        _graph_widget(
            title,
            [metrics.function(name, metric, statistic) for name in watched.functions],
            width=6,
        )
        for title, metric, statistic in graphs
    ]


def _scripts_row(metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## Scripts\n"
        "The functions that run scripts. A script that fails is not an error here. A dropped "
        "event is a script that Lambda did not start in time. Its run starts again."
    )
    graphs = (
        ("Duration, maximum (ms)", "Duration", MAXIMUM_STATISTIC),
        ("Errors a minute", "Errors", "Sum"),
        ("Throttles a minute", "Throttles", "Sum"),
        ("Dropped events a minute", "AsyncEventsDropped", "Sum"),
        ("Concurrent executions", "ConcurrentExecutions", MAXIMUM_STATISTIC),
    )
    return text, [
        _graph_widget(
            title,
            [metrics.function(name, metric, statistic) for name in watched.script_functions],
            width=width,
        )
        for (title, metric, statistic), width in zip(graphs, (5, 5, 5, 5, 4), strict=True)
    ]


def _tables_row(metrics: Metrics, watched: WatchedResources) -> DashboardRow:
    text = (
        "## Tables\n"
        "DynamoDB bills the units. A throttle is a call that must be repeated, and should be rare."
    )

    def unit_metrics(metric: str) -> list[cloudwatch.IMetric]:
        return [metrics.table(table, name, metric) for name, table in watched.tables.items()]

    throttles = [metrics.table_throttles(table, name) for name, table in watched.tables.items()]
    return text, [
        _graph_widget("Write units a minute", unit_metrics("ConsumedWriteCapacityUnits")),
        _graph_widget("Read units a minute", unit_metrics("ConsumedReadCapacityUnits")),
        _graph_widget("Throttles a minute", throttles),
    ]


def _text_widget(markdown: str) -> cloudwatch.TextWidget:
    return cloudwatch.TextWidget(
        markdown=markdown,
        width=GRID_WIDTH,
        height=TEXT_HEIGHT,
        background=cloudwatch.TextWidgetBackground.TRANSPARENT,
    )


def _graph_widget(
    title: str,
    series: Sequence[cloudwatch.IMetric],
    *,
    width: int = GRID_WIDTH // 3,
    limit: float | None = None,
) -> cloudwatch.GraphWidget:
    limit_lines = (
        []
        if limit is None
        else [
            cloudwatch.HorizontalAnnotation(
                value=limit, label="alarm threshold", color=ALARM_COLOUR
            )
        ]
    )
    return cloudwatch.GraphWidget(
        title=title,
        left=series,
        left_annotations=limit_lines,
        left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
        legend_position=cloudwatch.LegendPosition.BOTTOM,
        width=width,
        height=GRAPH_HEIGHT,
    )


def _log_graph_widget(
    stage: Stage, title: str, functions: Sequence[str], *lines: str
) -> cloudwatch.LogQueryWidget:
    """Return a graph from the logs, for a stage without metrics.

    CloudWatch bills the bytes that the query reads.
    """
    return cloudwatch.LogQueryWidget(
        title=title,
        log_group_names=[log_group(stage, name) for name in functions],
        query_lines=list(lines),
        view=cloudwatch.LogQueryVisualizationType.LINE,
        width=GRID_WIDTH // 3,
        height=GRAPH_HEIGHT,
    )
