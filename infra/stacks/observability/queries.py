"""Saved queries of CloudWatch Logs Insights."""

from dataclasses import dataclass

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.config.stage import EXECUTOR_FUNCTIONS, Stage

API_LOG_NAME = "api"
"""The name of the access log, which the gateway writes."""

RUN_ENDING_FUNCTIONS = (*EXECUTOR_FUNCTIONS, "dead-letters")
FAILED_STATUS_LIST = '["FAILED", "TIMED_OUT"]'


@dataclass(frozen=True, slots=True)
class Query:
    """A saved query: `logs` are names of functions, None for all; `query_text` is its text."""

    name: str
    logs: tuple[str, ...] | None
    query_text: str


QUERY_BY_ID = """\
# Replace ID by the id of the {what}, and choose a time range.
fields @timestamp, coalesce(service, route) as origin, coalesce(message, method) as event, \
coalesce(status, attempt) as state, lateness, error, @message
| filter @message like "ID"
| sort @timestamp asc
| limit 1000"""

SAVED_QUERIES = (
    Query("run by id", None, QUERY_BY_ID.format(what="run")),
    Query("job by id", None, QUERY_BY_ID.format(what="job")),
    Query(
        "failed runs",
        RUN_ENDING_FUNCTIONS,
        f"""\
# Failed runs, newest first. Time range: 1 hour.
fields @timestamp, status, error, attempt, job_id, run_id, tenant, service
| filter message in ["run_ended", "run_poisoned"] and status in {FAILED_STATUS_LIST}
| sort @timestamp desc
| limit 1000""",
    ),
    Query(
        "failed runs by error",
        RUN_ENDING_FUNCTIONS,
        f"""\
# The most frequent errors, with their numbers of runs and jobs. Time range: 1 hour.
filter message in ["run_ended", "run_poisoned"] and status in {FAILED_STATUS_LIST}
| stats count(*) as runs, count_distinct(job_id) as jobs, latest(run_id) as latest_run_id \
by error, status
| sort runs desc
| limit 100""",
    ),
    Query(
        "latest pick-ups",
        EXECUTOR_FUNCTIONS,
        """\
# Runs by lateness in milliseconds, highest first.
fields @timestamp, lateness, service, job_id, run_id, attempt, status
| filter message = "run_ended" and ispresent(lateness)
| sort lateness desc
| limit 200""",
    ),
    Query(
        "lateness by minute",
        EXECUTOR_FUNCTIONS,
        """\
# Lateness of runs in milliseconds, by minute.
filter message = "run_ended" and ispresent(lateness)
| stats count(*) as runs, pct(lateness, 50) as p50, pct(lateness, 99) as p99, \
max(lateness) as latest by bin(1m), service
| limit 1000""",
    ),
    Query(
        "refused API calls",
        (API_LOG_NAME,),
        """\
# Calls that failed, with their callers and errors.
fields @timestamp, status, method, path, route, tenant, ip, ms, integrationError, \
authorizerError, requestId, agent
| filter status >= 400
| sort @timestamp desc
| limit 1000""",
    ),
    Query(
        "what the reconciler found",
        ("reconciler",),
        """\
# Repaired jobs, late timers, removed payloads, completed walks. \
Time range: 2 days.
fields @timestamp, message, number, jobs.0, jobs.1, jobs.2, timers, finds, over, @message
| filter message in ["reconciler_mended", "head_unreadable", "timers_behind_watermark", \
"orphans_removed", "walked"]
| sort @timestamp desc
| limit 1000""",
    ),
    Query(
        "planner ticks",
        ("planner",),
        """\
# Each tick: watermark, minutes behind, woken pollers, and changes of the settings.
fields @timestamp, message, watermark, behind, calls, places, shards, error, names.0, names.1
| filter message in ["tick", "dispatch_is_off", "shards_grown", "knobs_wrong", "knobs_unread", \
"places_unread", "timers_of_a_later_version"]
| sort @timestamp desc
| limit 500""",
    ),
    Query(
        "problems only",
        None,
        """\
# Problems for an operator: errors, crashes, timeouts, out of memory.
fields @timestamp, coalesce(service, @log) as origin, message, error, job_id, run_id, @message
| filter level in ["ERROR", "CRITICAL"] or @message like /Task timed out|Runtime\\.|\\[ERROR\\]/
| sort @timestamp desc
| limit 1000""",
    ),
)


class Queries(Construct):
    """The saved queries, in a folder with the name of the stage. A saved query costs nothing."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: Stage, functions: tuple[str, ...]
    ) -> None:
        super().__init__(scope, construct_id)
        for query in SAVED_QUERIES:
            logs.CfnQueryDefinition(
                self,
                query.name,
                name=f"{stage.prefix}/{query.name}",
                query_string=query.query_text,
                log_group_names=[
                    log_group(stage, name) for name in query.logs or (*functions, API_LOG_NAME)
                ],
            )


def log_group(stage: Stage, name: str) -> str:
    """Return the name of a log group.

    A name, and not a reference, keeps this stack independent of the stack of the function.
    """
    return stage.api_log_group if name == API_LOG_NAME else stage.function_log_group(name)
