"""The descriptions of fields, by model. A name can mean something else in another model."""

from collections.abc import Mapping

from punctual.web.openapi.artifact_operations import ARTIFACT_DESCRIPTIONS
from punctual.web.openapi.bulk.descriptions import BULK_DESCRIPTIONS
from punctual.web.openapi.change_operations import CHANGE_DESCRIPTIONS
from punctual.web.openapi.operation import NEXT_TOKEN_TEXT
from punctual.web.openapi.overview.descriptions import OVERVIEW_DESCRIPTIONS
from punctual.web.openapi.runs.descriptions import RUN_FIELDS, USED_LIMIT_FIELDS
from punctual.web.openapi.schedules.descriptions import SCHEDULE_DESCRIPTIONS

_NAME_RULE = "It has no control characters, and is kept as sent."
_PAYLOAD_RULE = "Any JSON up to 256 KiB and 64 levels, without U+0000."

_ROLE_MEANING = (
    "`viewer` reads. `operator` also runs, pauses and cancels. `editor` also creates and changes. "
    "`admin` also manages tokens, and reads the audit and the webhook secret."
)
_ENV_RULE = "Environment variables. Names that begin with `PUNCTUAL_` are reserved."
_RESOURCES = "The CPU and memory that the task may use."
_TZDATA = "The version of the time zone data."

_SCHEDULE_FIELDS = {
    "schedule_type": "The kind of schedule. Each kind has its own fields.",
    "schedule_time": "The time when a FUTURE job runs. A time up to 5 s in the past runs at once.",
    "cron_expression": "Five fields, six fields with seconds first, a name such as `@daily`, or "
    "`cron(…)`, `rate(…)` or `at(…)` as in EventBridge. At most 256 characters. An expression that "
    "can never fire is an error.",
    "timezone": "The IANA time zone of the schedule.",
    "dst_gap": "The rule for a local time that does not exist. NEXT fires at the first instant "
    "after the gap, SKIP does not fire on that day, SHIFT fires later by the length of the gap.",
    "dst_fold": "The rule for a local time that comes twice: fire at the first, at the second, or "
    "at both.",
    "interval_seconds": "The seconds between two occurrences of an INTERVAL job.",
    "interval_from": "SCHEDULED fires at a fixed rate. COMPLETED counts from the end of the last "
    "run, and `max_concurrency` must be 1.",
    "start_time": "The schedule does not fire before this time. An interval counts from it.",
    "end_time": "The schedule does not fire at or after this time.",
    "max_runs": "The number of scheduled runs that may start after the last change of the "
    "schedule.",
    "exclude": "Dates in the schedule's time zone on which it does not fire.",
}
_CLAIM = "The signed right to one attempt, as the executor got it."
_CLAIM_FIELDS = {
    "claim": _CLAIM,
    "runner_id": "An id that the executor drew at random. The first one binds the claim.",
    "started_at": "When the work began. A claimed run is RUNNING from the arrival of this call.",
    "log": "The text that was logged since the last call, up to 1 MiB of UTF-8.",
    "log_offset": "Where `log` begins in the whole log, in bytes of UTF-8.",
}
_JOB_FIELDS = {
    **_SCHEDULE_FIELDS,
    "name": f"The name of the job. {_NAME_RULE}",
    "jitter_seconds": "The length of the window for a fixed delay, which is derived from the job. "
    "`scheduled_time` does not include the delay, `due_time` does.",
    "misfire_policy": "What happens with missed occurrences: run the latest, run all, or run none.",
    "misfire_grace_seconds": "An occurrence that is later than this is missed.",
    "task": "What a run does.",
    "payload": f"The input of each run. {_PAYLOAD_RULE}",
    "priority": "Due runs of a higher priority start first.",
    "max_concurrency": "The number of runs of this job that may be active at the same time.",
    "overlap_policy": "What happens with a due run while `max_concurrency` runs are active. QUEUE "
    "lets it wait, SKIP skips it, REPLACE cancels the oldest active run.",
    "max_waiting": "The number of runs that may wait. A further run is SKIPPED with the reason "
    "QUEUE_FULL.",
    "timeout_seconds": "The time limit of one attempt: at most 900, or 86,400 for script and "
    "container tasks.",
    "max_retries": "The number of retries after FAILED or TIMED_OUT attempts. It must be 0 if "
    "`delivery` is AT_MOST_ONCE.",
    "retry": "The delays before retries.",
    "deadline_seconds": "A run that has not started this long after its `due_time` is MISSED.",
    "delivery": "AT_MOST_ONCE allows no second attempt after an attempt that may have begun, so "
    "`max_retries` must be 0.",
    "notify": "Webhooks that get a signed request for the outcomes that they name. The definition "
    "in force at the end of the run counts.",
    "output": "`discard` stores nothing that a run prints or returns, so the run has no output and "
    "no logs. The definition that the run was created with counts.",
    "tags": "Labels by key. A key has 1 to 128 characters without `:`, a value at most 256.",
}
_STATUS_FIELDS = {
    "job_id": "The UUIDv7 of the job. A request with an Idempotency-Key derives it from the tenant "
    "and the key.",
    "status": "SCHEDULED as long as an occurrence or the end of a run is to come.",
    "next_run_time": "The next occurrence that has not begun. It is null if the job is PAUSED, "
    "COMPLETED or CANCELLED.",
    "latest_run": "The newest run that is not SKIPPED or MISSED. Without one it is the newest run.",
}
_SHOWN_JOB_FIELDS = {
    **_JOB_FIELDS,
    **_STATUS_FIELDS,
    "pause": "The pause of a PAUSED job, else null.",
    "usual_duration_ms": "The median duration of the last 30 runs that ended SUCCESS, among the "
    "newest 100 runs of the job. In a list on AWS these are the successes among the last 30 "
    "outcomes. It is null without such a run.",
    "created_at": "The time when the job was accepted.",
    "created_by": "The caller that created the job.",
    "updated_at": "The time of the last change by a client.",
    "version": "The version of the definition, which each change by a client raises. The ETag "
    "is the quoted version.",
}
_RETRY_FIELDS = {
    "backoff_seconds": "The delay before the first retry.",
    "max_backoff_seconds": "The longest delay before a retry.",
    "multiplier": "Each delay is this many times as long as the one before.",
    "jitter": "True draws each delay at random between half of it and all of it.",
}
_NOTIFY_FIELDS = {
    "on": "The outcomes of runs that send a request.",
    "url": "The URL that gets the request.",
}
_TOKEN_FIELDS = {
    "token_id": "The id of the token. It is not a secret.",
    "tenant": "The tenant that the token belongs to.",
    "name": "The name of the token. The audit shows it.",
    "role": _ROLE_MEANING,
    "created_at": "The time when the token was created.",
    "created_by": "The caller that created the token.",
    "expires_at": "The time from which the token is invalid, or null.",
    "last_used_at": "The time of the last use, or null.",
    "revoked_at": "The time when the token was revoked, or null.",
}
_CALLER_TOKEN_ID = "The id of the token of the call. It is null for a JWT."

FIELD_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    **ARTIFACT_DESCRIPTIONS,
    **CHANGE_DESCRIPTIONS,
    "JobFields": _JOB_FIELDS,
    "ScheduleFields": _SCHEDULE_FIELDS,
    **SCHEDULE_DESCRIPTIONS,
    **OVERVIEW_DESCRIPTIONS,
    **BULK_DESCRIPTIONS,
    "PreviewFields": {
        **_SCHEDULE_FIELDS,
        "from": "The preview shows times after this one. Default: now.",
        "count": "The number of times. Default: 10.",
    },
    "Retry": _RETRY_FIELDS,
    "Notify": _NOTIFY_FIELDS,
    "Resources": {
        "cpu": "Virtual CPUs.",
        "memory_mb": "Memory in MiB. A script has 512 by default.",
    },
    "EventTask": {"detail_type": "The detail-type of the event. Default: `Job Run`."},
    "HttpTask": {
        "url": "The URL to call. It may hold placeholders after its host.",
        "method": "The HTTP method. Default: `POST`.",
        "headers": "At most 50 headers with 8 KiB in all. Values may hold placeholders.",
        "body": "The request body. Default: the payload as JSON.",
        "expect_status": "The statuses that count as success. Default: 200 to 299.",
        "follow_redirects": "The number of redirects to follow. Default: 0.",
    },
    "LambdaTask": {"function": "The name or ARN of the function."},
    "SqsTask": {"queue_url": "The URL of the queue."},
    "ScriptTask": {
        "runtime": "The program that runs the code.",
        "code": "The source text, at most 64 KiB.",
        "artifact_id": "An uploaded file to run instead of `code`.",
        "interpreter": "The program that runs the code, by its path on the node. Without `code` "
        "and `artifact_id`, `args` is its command line. On AWS it is an error.",
        "working_directory": "The folder on the node that the script starts in. Default: a folder "
        "of the run. On AWS it is an error.",
        "args": "The arguments of the program.",
        "env": _ENV_RULE,
        "resources": _RESOURCES,
    },
    "ContainerTask": {
        "image": "The image to run.",
        "command": "The command that replaces that of the image.",
        "env": _ENV_RULE,
        "resources": _RESOURCES,
    },
    "BatchFields": {"jobs": "1 to 500 jobs. Each is accepted or rejected by itself."},
    "ResumeFields": {
        "missed": "What happens with the occurrences during the pause. Default: the job's "
        "`misfire_policy`."
    },
    "RunNowFields": {"payload": f"The payload that replaces that of the job. {_PAYLOAD_RULE}"},
    "RetryRunFields": {"payload": f"The payload that replaces that of the run. {_PAYLOAD_RULE}"},
    "BackfillFields": {
        "from": "The start of the range, inclusive.",
        "to": "The end of the range, exclusive.",
        "dry_run": "True returns the times and starts nothing. Default: false.",
    },
    "TokenFields": {
        "name": f"The name of the token. {_NAME_RULE}",
        "role": _ROLE_MEANING,
        "expires_at": "The time from which the token is invalid. Default: never.",
        "tenant": "The tenant of the token. Default: the caller's tenant.",
    },
    "SecretFields": {
        "value": "The value, at most 4 KiB in UTF-8, without text in double braces. No call "
        "returns it."
    },
    "Secret": {
        "name": "The name of the secret.",
        "created_at": "The time when the secret was set first.",
        "updated_at": "The time when the value was last set.",
        "updated_by": "The caller that last set the value.",
    },
    "SecretList": {"secrets": "The secrets, sorted by name."},
    "Job": _SHOWN_JOB_FIELDS,
    "JobDefinition": _JOB_FIELDS,
    "JobVersion": {
        "version": "The number of the version. The ETag of the job was this number, quoted.",
        "at": "The time of the change, or of the creation.",
        "by": "The caller that made the version.",
        "changed": "The fields with another value than in the version before. It is empty for the "
        "first version.",
        "job": "The fields of the job in this version, with the defaults of the others.",
    },
    "JobVersionPage": {"versions": "The versions, newest first.", "next_token": NEXT_TOKEN_TEXT},
    "ListedJob": {
        **_SHOWN_JOB_FIELDS,
        "recent": "The last runs that ended, SKIPPED and MISSED ones too, newest first by "
        "scheduled time. Only with the parameter `recent`.",
    },
    "RecentRun": {
        "status": "How the run ended.",
        "scheduled_time": "The nominal time of the run.",
        "run_id": "The id of the run.",
    },
    "JobPage": {"jobs": "The jobs, in the order of `sort`.", "next_token": NEXT_TOKEN_TEXT},
    "JobStatusAnswer": _STATUS_FIELDS,
    "ShownRetry": _RETRY_FIELDS,
    "ShownNotify": _NOTIFY_FIELDS,
    "RunReason": {"code": "A stable name for programs.", "text": "One sentence for people."},
    "ListedRun": RUN_FIELDS,
    "Run": {
        **RUN_FIELDS,
        "attempts": "All attempts. Lists leave them out.",
        "progress": "What an external executor last reported, while the run goes on.",
    },
    "RunProgress": {
        "percent": "How much of the work is done.",
        "text": "What the work does now.",
    },
    "Attempt": {
        "attempt_number": "The number of the attempt, from 1.",
        "start_time": "The start of the attempt.",
        "end_time": "The end of the attempt. It is null while the attempt runs.",
        "status": "The state of the attempt. LOST means that its executor died.",
        "executor_id": "The executor of the attempt.",
        "error_message": "The error of the attempt. For scripts it ends with the end of standard "
        "error.",
    },
    "RunPage": {"runs": "The runs, newest first.", "next_token": NEXT_TOKEN_TEXT},
    "Problem": {
        "type": "A URN for the kind of error.",
        "title": "The kind of error in a few words.",
        "status": "The HTTP status.",
        "detail": "What is wrong and what to do.",
        "code": "A stable name for programs.",
        "request_id": "The id of this call in the log of Punctual.",
        "errors": "All wrong fields.",
        "job_id": "The job that has the name. Only with the code `NAME_TAKEN`.",
    },
    "FieldProblem": {
        "field": "The path of the field, such as `retry.multiplier`.",
        "message": "What is wrong with the field.",
    },
    "Accepted": {
        "status": "202: the job was accepted.",
        "job_id": "The id of the new job.",
        "location": "The address of the job.",
    },
    "RefusedItem": {
        "status": "The status that `POST /jobs` would answer with.",
        "problem": "The error of this job.",
    },
    "BatchResults": {"results": "One result for each job, in the order of the request."},
    "Backfilled": {"runs": "The number of created runs."},
    "BackfillPreview": {
        "runs": "The number of runs that would be created.",
        "times": "Their times, earliest first.",
    },
    "Preview": {
        "times": "The times, earliest first.",
        "description": "The schedule in plain English.",
        "warnings": "Warnings, for example about a clock change that affects these times.",
        "tzdata": _TZDATA,
    },
    "PreviewTime": {
        "utc": "The time in UTC.",
        "local": "The time in the schedule's time zone.",
    },
    "UpcomingPage": {"times": "The times, earliest first.", "next_token": NEXT_TOKEN_TEXT},
    "UpcomingTime": {
        "job_id": "The job that is due.",
        "name": "The name of the job.",
        "utc": "The time in UTC.",
        "local": "The time in the job's time zone.",
    },
    "Explanation": {
        "job_id": "The job of the request.",
        "at": "The explained time. It is the occurrence, if one is within the same second.",
        "occurrence": "The same time if the schedule fires then, else null.",
        "outcome": "The status of the run, or what the schedule says about that time.",
        "reason": "One sentence for people.",
        "run_id": "The run of that time, if there is one.",
        "previous": "The last time before `at` at which the schedule fires.",
        "next": "The first time after `at` at which the schedule fires.",
    },
    "Stats": {
        "jobs": "The number of jobs by status.",
        "runs": "The number of runs by status.",
        "last_hour": "The counts of each minute of the last hour.",
        "lateness_ms": "The lateness of the runs that started in the last hour.",
        "list_lag_ms": "On AWS: how long after their change lists showed runs, in the last hour. "
        "On a node null, because lists show each change at once.",
        "queue": "The runs that are due and have not started.",
        "limits": "The limits of the tenant that are set, and what all runs share, each with what "
        "is allowed and used.",
        "executors": "The executors with a recent heartbeat.",
    },
    "UsedLimit": USED_LIMIT_FIELDS,
    "MinuteCounts": {
        "minute": "The start of the minute.",
        "started": "The runs that started in this minute.",
        "succeeded": "The runs that succeeded in this minute.",
        "failed": "The runs that failed in this minute.",
        "lateness_ms": "The lateness of the runs that first started in this minute.",
    },
    "Lateness": {
        "p50": "Half of the runs were at most this late.",
        "p99": "99 of 100 runs were at most this late.",
        "max": "The greatest lateness.",
    },
    "Queue": {
        "depth": "The number of runs that are due and have not started.",
        "oldest_seconds": "The waiting time of the oldest of them.",
    },
    "Executor": {
        "executor_id": "The name of the executor.",
        "last_heartbeat": "The time of its last heartbeat.",
        "running": "The number of runs that it holds.",
    },
    "Probe": {"status": "`ok` or `down`. Lateness does not mean `down`."},
    "Health": {
        "status": "`ok`; `late`: later than 15 s; `down`: no job fires, or the store does not "
        "answer.",
        "lateness_ms_p99": "99 of 100 runs of the last minutes started at most this late. A node "
        "counts the runs that became due after its start.",
        "watermark": "All timers before this time are done.",
        "planner_heartbeat": "The time of the last work of the planner.",
        "version": "The version of Punctual.",
        "tzdata": _TZDATA,
        "task_types": "The task types of this installation.",
        "guarantee": "The guarantee for each due run.",
        "margin_seconds": "The seconds after the due time within which a run begins its work, by "
        "task type. A script that runs in a container has the margin of `container`.",
        "sandbox": "The sandbox of scripts. It is null without script tasks.",
        "auth": "The OIDC issuer of accepted JWTs. It is null if only tokens are accepted.",
        "warnings": "Conditions that an operator must fix. It is empty on AWS, which has alarms.",
    },
    "Login": {
        "issuer": "The URL of the issuer.",
        "client_id": "The client that people log in with, or null.",
    },
    "HealthWarning": {
        "code": "A stable name for programs.",
        "text": "One sentence for people. It names no tenant and no file.",
    },
    "Whoami": {
        "tenant": "The tenant of the caller.",
        "name": "The name of the caller. The audit shows it.",
        "role": _ROLE_MEANING,
        "token_id": _CALLER_TOKEN_ID,
        "expires_at": "The time from which the token is invalid, or null.",
        "limits": "The limits of the tenant. Null means no limit.",
    },
    "Limits": {
        "calls_per_second": "Calls a second on average.",
        "burst": "Calls at once.",
        "jobs": "Jobs that are SCHEDULED or PAUSED.",
        "runs_per_minute": "Runs that start in a minute. Further runs wait.",
        "concurrent_runs": "Runs at the same time. Further runs wait.",
        "lane_percent": "The share of each lane's executors that runs may hold. Further runs wait.",
        "payload_bytes": "Bytes of one payload.",
        "artifacts": "Artifacts, with uploads that have not arrived. The default is 1,000.",
        "artifact_mb": "Megabytes of all artifacts together. The default is 20,480.",
    },
    "Token": _TOKEN_FIELDS,
    "NewToken": {
        **_TOKEN_FIELDS,
        "token": "The secret. Only this answer shows it, because only a hash is stored.",
    },
    "TokenPage": {"tokens": "The tokens, newest first.", "next_token": NEXT_TOKEN_TEXT},
    "WebhookSecret": {"secret": "The secret as receivers expect it: `whsec_` and base64."},
    "ClaimRenewals": {"claims": "1 to 500 claims."},
    "RenewalFields": {**_CLAIM_FIELDS, "progress": "The progress of the work."},
    "ProgressFields": {
        "percent": "How much of the work is done. The run shows it while it goes on.",
        "text": "What the work does now. The run shows it while it goes on.",
    },
    "ClaimFinishes": {"claims": "1 to 500 claims."},
    "FinishFields": {
        **_CLAIM_FIELDS,
        "status": "How the attempt ended. RELEASED returns a run that was not begun.",
        "output": "What the task returned: any JSON up to 256 KiB.",
        "output_text": "What the task printed: text up to 256 KiB, instead of `output`.",
        "output_upload": "Names the uploaded output, instead of `output`.",
        "output_truncated": "True if a part of the output is missing.",
        "error_message": "Why the attempt failed.",
        "retryable": "False if another attempt would fail as well.",
        "exit_code": "The exit code of the process.",
        "logs_truncated": "True if a part of the log is missing.",
    },
    "UploadFields": {
        "claim": _CLAIM,
        "size": "The size of the output in bytes. The upload must have exactly this size.",
        "content_type": "The content type of the output.",
    },
    "RenewalResult": {
        "status": "OK, CANCEL or LOST.",
        "lease_until": "The end of the lease, unless the claim is LOST.",
    },
    "RenewalResults": {"results": "One result for each claim, in order."},
    "FinishResult": {"status": "OK, or LOST if nothing was recorded."},
    "FinishResults": {"results": "One result for each claim, in order."},
    "UploadLink": {
        "upload_url": "Send the output there with one PUT.",
        "upload_headers": "The headers of the PUT. All are required.",
        "output_upload": "Name this in the finish of the same claim.",
    },
    "ArtifactFields": {
        "sha256": "The SHA-256 digest of the file, in hexadecimal.",
        "size": "The size of the file in bytes, at most 250 MiB.",
        "name": "The name of the file, for people. A later name of the same content is ignored.",
    },
    "AuditEntry": {
        "audit_id": "The UUIDv7 of the entry.",
        "at": "The time of the change.",
        "caller": "The name of the caller.",
        "token_id": _CALLER_TOKEN_ID,
        "address": "The IP address of the caller.",
        "request_id": "The id of the call in the log of Punctual.",
        "action": "The kind of change.",
        "job_id": "The changed job.",
        "run_id": "The changed run.",
        "subject_token_id": "The created or revoked token.",
        "before": "The values before the change.",
        "after": "The values after the change.",
        "count": "The number of changed jobs or runs.",
    },
    "AuditPage": {"entries": "The entries, newest first.", "next_token": NEXT_TOKEN_TEXT},
}
