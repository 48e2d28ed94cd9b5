"""What fields mean, model by model: a name may mean something else in another model."""

from collections.abc import Mapping

_NAME_RULE = "Without control characters, otherwise kept as sent."
_PAYLOAD_RULE = "Any JSON to 256 KiB and 64 levels, without U+0000."

_ROLE_MEANING = (
    "viewer reads, operator also runs, pauses and cancels, editor also creates and changes, admin "
    "also makes tokens, reads the audit and sees the secret of webhooks."
)
_ENV_RULE = "Environment variables. Names that begin with PUNCTUAL_ are the scheduler's."
_RESOURCES = "What the task may use."
_NEXT_TOKEN = "Send it as the parameter of the same name for the next page; null on the last."

_SCHEDULE_FIELDS = {
    "schedule_type": "What kind of schedule it is; each knows fields of its own.",
    "schedule_time": "When a FUTURE job runs; up to 5 s past runs at once.",
    "cron_expression": "Five fields, six with seconds first, a name such as `@daily`, or "
    "EventBridge's `cron(…)`, `rate(…)`, `at(…)`; up to 256 characters. What can never fire is "
    "refused.",
    "timezone": "An IANA time zone.",
    "dst_gap": "For a local time that does not exist: NEXT fires at the first instant after the "
    "gap, SKIP not on that day, SHIFT moved by the gap.",
    "dst_fold": "Which of the two where a local time comes twice.",
    "interval_seconds": "How long between two occurrences of an INTERVAL job.",
    "interval_from": "SCHEDULED is a fixed rate; COMPLETED counts from the end of the last run, "
    "and max_concurrency is 1 then.",
    "start_time": "Nothing fires before it; an interval counts from it.",
    "end_time": "Nothing fires at it or after it.",
    "max_runs": "How many scheduled runs may start since the schedule last changed.",
    "exclude": "Dates in the schedule's zone on which it does not fire.",
}
_JOB_FIELDS = {
    **_SCHEDULE_FIELDS,
    "name": _NAME_RULE,
    "jitter_seconds": "A fixed offset in [0, n), derived from the job; times stay nominal.",
    "misfire_policy": "What becomes of missed occurrences: the latest runs, all run, or none.",
    "misfire_grace_seconds": "Up to this an occurrence is merely late, beyond it is missed.",
    "task": "What a run does.",
    "payload": _PAYLOAD_RULE,
    "priority": "Of what is due and not started HIGH goes first.",
    "max_concurrency": "How many runs of this job may be active at the same time.",
    "overlap_policy": "When that many runs are active: wait in line, skip, or replace the oldest.",
    "max_waiting": "Runs in line; beyond it they are SKIPPED, QUEUE_FULL.",
    "timeout_seconds": "Of one attempt: at most 900, for script and container tasks 86,400.",
    "max_retries": "Retries after FAILED or TIMED_OUT attempts; 0 where delivery is AT_MOST_ONCE.",
    "retry": "How long to wait before the next attempt.",
    "deadline_seconds": "A run not started so long after due_time is MISSED.",
    "delivery": "AT_MOST_ONCE: no attempt after one that may have begun, and max_retries is 0.",
    "notify": "Signed webhooks, each told of the outcomes that it names. The definition in force "
    "when a run ends counts.",
    "output": "discard: what a run prints or returns is not stored, so it has no output and no "
    "logs. The definition that the run was made with counts.",
    "tags": "Keys of 1 to 128 characters without `:`, values to 256.",
}
_STATUS_FIELDS = {
    "job_id": "The job's UUIDv7; derived from tenant and key where an Idempotency-Key was sent.",
    "status": "SCHEDULED while a time or the end of a run is to come.",
    "next_run_time": "Null when PAUSED, COMPLETED or CANCELLED.",
    "latest_run": "The run last made that is not SKIPPED or MISSED, else the last of those.",
}
_RUN_FIELDS = {
    "run_id": "The run's UUIDv7.",
    "job_id": "The job that the run belongs to.",
    "job_version": "The definition that the run was made with.",
    "trigger": "What made the run.",
    "retried_from": "The run that this one retries.",
    "status": "Where the run stands; it moves forward only within an attempt.",
    "reason": "Why it waits, was skipped, missed or lost.",
    "scheduled_time": "The nominal time, before jitter.",
    "due_time": "When it should start; lateness counts from here.",
    "start_time": "When its first attempt began.",
    "end_time": "When it ended.",
    "modified_time": "When it last changed.",
    "created_at": "When it was made.",
    "next_attempt_time": "When the next attempt may start, while it waits for one.",
    "lateness_ms": "The first start_time less due_time.",
    "attempt_number": "Of the present or last attempt.",
    "executor_id": "The executor that holds it, or held it last.",
    "error_message": "Of the last attempt that ended; for scripts with the end of standard error.",
    "exit_code": "Of a script or container.",
    "log_url": "Where its log is, if there is one.",
    "output_url": "Where its output is, if there is one.",
    "output_truncated": "Whether the output was longer than what is kept.",
    "log_truncated": "Whether the log was longer than what is kept.",
    "output_discarded": "Whether output and log were discarded, as the job says with `output`.",
    "count": "How many occurrences a bulk entry stands for.",
    "tzdata": "The edition of the time-zone data that its time was computed with.",
    "last_scheduled_time": "Of the last occurrence that a bulk entry stands for.",
    "http_status": "What the called API answered, for http tasks.",
    "http_headers": "The headers of that answer, for http tasks.",
    "payload": "What the run was given instead of the job's payload.",
}
_RETRY_FIELDS = {
    "backoff_seconds": "How long before the first retry.",
    "max_backoff_seconds": "How long before a retry at most.",
    "multiplier": "By how much each delay is longer than the one before.",
    "jitter": "Whether a delay is drawn between half and all of it.",
}
_NOTIFY_FIELDS = {"on": "Which ends of runs are told.", "url": "The address that is called."}
_TOKEN_FIELDS = {
    "token_id": "Names the token without being one.",
    "tenant": "The tenant that the token belongs to.",
    "name": "What the token is called; the audit shows it.",
    "role": _ROLE_MEANING,
    "created_at": "When it was made.",
    "created_by": "The caller that made it.",
    "expires_at": "From then on it is refused; null is never.",
    "last_used_at": "When it was last used; null if never.",
    "revoked_at": "When it was revoked; null if it was not.",
}

FIELD_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "JobFields": _JOB_FIELDS,
    "PreviewFields": {
        **_SCHEDULE_FIELDS,
        "from": "The times shown come after this moment. Default: now.",
        "count": "How many times. Default: 10.",
    },
    "Retry": _RETRY_FIELDS,
    "Notify": _NOTIFY_FIELDS,
    "Resources": {
        "cpu": "Virtual CPUs.",
        "memory_mb": "Memory in MiB; a script has 512 by default.",
    },
    "EventTask": {"detail_type": "The event's detail-type. Default: `Job Run`."},
    "HttpTask": {
        "url": "The address to call. It may hold placeholders behind its host.",
        "method": "Default: `POST`.",
        "headers": "Up to 50 headers, 8 KiB together. Values may hold placeholders.",
        "body": "Left out: the payload as JSON.",
        "expect_status": "The statuses that are a success, usually 200 to 299.",
        "follow_redirects": "How many redirects are followed. Default: 0.",
    },
    "LambdaTask": {"function": "The function's name or ARN."},
    "SqsTask": {"queue_url": "The queue's URL."},
    "ScriptTask": {
        "runtime": "What runs the code.",
        "code": "The program's text, to 64 KiB.",
        "artifact_id": "An uploaded file to run instead of `code`.",
        "args": "The program's arguments.",
        "env": _ENV_RULE,
        "resources": _RESOURCES,
    },
    "ContainerTask": {
        "image": "The image to run.",
        "command": "What to run in place of the image's own command.",
        "env": _ENV_RULE,
        "resources": _RESOURCES,
    },
    "BatchFields": {"jobs": "1 to 500 jobs, each accepted or refused on its own."},
    "ResumeFields": {
        "missed": "What becomes of the occurrences of the pause, instead of the job's "
        "misfire_policy."
    },
    "RunNowFields": {"payload": f"Instead of the job's payload. {_PAYLOAD_RULE}"},
    "BackfillFields": {
        "from": "The first moment of the range.",
        "to": "The first moment after the range.",
        "dry_run": "Only say what would run. Default: false.",
    },
    "TokenFields": {
        "name": f"What to call the token. {_NAME_RULE}",
        "role": _ROLE_MEANING,
        "expires_at": "From then on it is refused. Left out: never.",
        "tenant": "Another tenant; left out, the caller's own.",
    },
    "Job": {
        **_JOB_FIELDS,
        **_STATUS_FIELDS,
        "created_at": "When the job was accepted.",
        "created_by": "The caller that made it.",
        "updated_at": "When a client last changed it.",
        "version": "Raised by each change of a client; in quotes it is the ETag.",
    },
    "JobPage": {"jobs": "The newest first.", "next_token": _NEXT_TOKEN},
    "JobStatusAnswer": _STATUS_FIELDS,
    "ShownRetry": _RETRY_FIELDS,
    "ShownNotify": _NOTIFY_FIELDS,
    "RunReason": {"code": "Its name, for programs.", "text": "One sentence, for people."},
    "ListedRun": _RUN_FIELDS,
    "Run": {**_RUN_FIELDS, "attempts": "Every attempt; lists leave them out."},
    "Attempt": {
        "attempt_number": "From 1.",
        "start_time": "When the attempt began.",
        "end_time": "When the attempt ended; null while it runs.",
        "status": "Of the attempt; LOST where its executor died.",
        "executor_id": "The executor that holds it, or held it.",
        "error_message": "Why the attempt failed; for scripts with the end of standard error.",
    },
    "RunPage": {"runs": "The newest first.", "next_token": _NEXT_TOKEN},
    "Problem": {
        "type": "A URN that names the kind of problem.",
        "title": "The kind of problem in a few words.",
        "status": "The HTTP status.",
        "detail": "What is wrong and what to do.",
        "code": "Its name, for programs.",
        "request_id": "Names this call in Punctual's log.",
        "errors": "Every wrong field at once.",
    },
    "FieldProblem": {
        "field": "The field's path, such as `retry.multiplier`.",
        "message": "What is wrong with it.",
    },
    "Accepted": {
        "status": "The job was accepted.",
        "job_id": "The new job.",
        "location": "Where the job is.",
    },
    "RefusedItem": {
        "status": "As if the job had been sent alone.",
        "problem": "Why it was refused.",
    },
    "BatchResults": {"results": "One for each job, in the order sent."},
    "Backfilled": {"runs": "How many runs were made."},
    "BackfillPreview": {"runs": "How many would run.", "times": "In order, soonest first."},
    "Preview": {
        "times": "In order, soonest first.",
        "description": "The schedule in plain English.",
        "warnings": "A clock change that touches these times, among others.",
        "tzdata": "The edition of the time-zone data.",
    },
    "PreviewTime": {"utc": "In UTC.", "local": "In the schedule's zone."},
    "UpcomingPage": {"times": "In order, soonest first.", "next_token": _NEXT_TOKEN},
    "UpcomingTime": {
        "job_id": "The job that is due.",
        "name": "The job's name.",
        "utc": "In UTC.",
        "local": "In the job's zone.",
    },
    "Explanation": {
        "job_id": "The job that was asked for.",
        "at": "The moment that is explained: the occurrence, where one lies in its second.",
        "occurrence": "The same if the schedule fires then, else null.",
        "outcome": "A run's status, or what the schedule says of that time.",
        "reason": "One sentence, for people.",
        "run_id": "The run of that time, if there is one.",
        "previous": "The schedule's last time before.",
        "next": "The schedule's first time after.",
    },
    "Stats": {
        "jobs": "How many jobs there are, by status.",
        "runs": "How many runs there are, by status.",
        "last_hour": "What happened in each minute of the last hour.",
        "lateness_ms": "How late the runs of the last hour started.",
        "queue": "What is due and has not started.",
        "executors": "The executors that have been heard of lately.",
    },
    "MinuteCounts": {
        "minute": "When the minute begins.",
        "started": "Runs that started in it.",
        "succeeded": "Runs that succeeded in it.",
        "failed": "Runs that failed in it.",
        "lateness_ms": "How late the runs that first started in it were.",
    },
    "Lateness": {
        "p50": "Half of the runs were at most this late.",
        "p99": "99 of 100 runs were at most this late.",
        "max": "The latest.",
    },
    "Queue": {
        "depth": "How many runs are due and have not started.",
        "oldest_seconds": "How long the first of them has waited.",
    },
    "Executor": {
        "executor_id": "The executor's name.",
        "last_heartbeat": "When it was last heard of.",
        "running": "How many runs it holds.",
    },
    "Probe": {"status": "ok, or down. Lateness is no reason for down."},
    "Health": {
        "status": "ok; late: later than 15 s; down: nothing fires, or the store does not answer.",
        "lateness_ms_p99": "How late 99 of 100 runs of the last minutes started at most. A node "
        "counts those that became due since its start.",
        "watermark": "All that was due before this time has been handled.",
        "planner_heartbeat": "When the planner last worked.",
        "version": "Of Punctual.",
        "tzdata": "The edition of the time-zone data.",
        "task_types": "What a job of this installation may do.",
        "guarantee": "What is promised of each due run.",
        "margin_seconds": "How late a run may start.",
        "sandbox": "What scripts run in; null where there are no script tasks.",
        "auth": "The OIDC issuer whose JWTs are accepted besides tokens; null is none.",
        "warnings": "What a person should see to; empty on AWS, which has alarms.",
    },
    "Login": {
        "issuer": "The issuer's address.",
        "client_id": "The client that people log in with; null where none is configured.",
    },
    "HealthWarning": {
        "code": "What it is.",
        "text": "The same for people. It names no tenant and no file.",
    },
    "Whoami": {
        "tenant": "The caller's tenant.",
        "name": "The caller's name, which the audit shows.",
        "role": _ROLE_MEANING,
        "token_id": "Of the token that was used; null where it was none of Punctual's.",
        "expires_at": "From then on the token is refused; null is never.",
        "limits": "What the tenant may; null is no limit.",
    },
    "Limits": {
        "calls_per_second": "Calls a second over time.",
        "burst": "Calls at once.",
        "jobs": "Jobs that are not over.",
        "runs_per_minute": "Runs that start in a minute; the others wait.",
        "concurrent_runs": "Runs at the same time; the others wait.",
        "lane_percent": "Part of each lane's executors that runs may hold; the others wait.",
        "payload_bytes": "Bytes of one payload.",
    },
    "Token": _TOKEN_FIELDS,
    "NewToken": {
        **_TOKEN_FIELDS,
        "token": "The secret. It is shown this once: only a hash is stored.",
    },
    "TokenPage": {"tokens": "The newest first.", "next_token": _NEXT_TOKEN},
    "WebhookSecret": {"secret": "As receivers take it: `whsec_` and base64."},
    "AuditEntry": {
        "audit_id": "The entry's UUIDv7.",
        "at": "When it was changed.",
        "caller": "The name of the caller.",
        "token_id": "Of the token that was used; null where it was none of Punctual's.",
        "address": "Where the call came from.",
        "request_id": "Names the call in Punctual's log.",
        "action": "What was done.",
        "job_id": "The job that was changed.",
        "run_id": "The run that was changed.",
        "subject_token_id": "The token that was made or revoked.",
        "before": "What the change found.",
        "after": "What the change left.",
        "count": "How many jobs or runs it changed.",
    },
    "AuditPage": {"entries": "The newest first.", "next_token": _NEXT_TOKEN},
}
