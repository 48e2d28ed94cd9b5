"""The descriptions of the fields of runs, and of the limits that they share."""

RUN_FIELDS = {
    "run_id": "The UUIDv7 of the run.",
    "job_id": "The job of the run.",
    "job_name": "The name of the job. After a change of the name, an ended run may keep the former "
    "name in the list over all jobs. It is null if the job cannot be read.",
    "task_type": "The type of the task that the run carries out.",
    "job_version": "The version of the definition that the run was created with.",
    "trigger": "What created the run.",
    "retried_from": "The run that this run retries.",
    "status": "The state of the run. It moves forward only within an attempt.",
    "reason": "Why the run waits, or why it was skipped, missed or lost.",
    "scheduled_time": "The nominal time, without jitter.",
    "due_time": "The time when the run should start. Lateness counts from it.",
    "queued_at": "The time when the run last became QUEUED: a retry, a lost attempt and a returned "
    "claim queue it again. It may be shortly before `due_time`. It is null while the run is "
    "WAITING, or if it ended so.",
    "claimed_at": "The time when an executor claimed the current or last attempt. It is null while "
    "no executor holds the run, or if it ended between two attempts.",
    "start_time": "The start of the first attempt.",
    "end_time": "The end of the run.",
    "modified_time": "The time of the last change.",
    "created_at": "The time when the run was created.",
    "next_attempt_time": "The time when the next attempt may start, while the run waits for it.",
    "lateness_ms": "The milliseconds from `due_time` to the first `start_time`.",
    "duration_ms": "The milliseconds from the start of the last attempt to the end of the run. It "
    "is null while the run has not ended, if nothing began, or if it ended between two attempts.",
    "attempt_number": "The number of the current or last attempt.",
    "executor_id": "The executor of the current or last attempt.",
    "error_message": "The error of the last attempt that ended. For scripts it ends with the end "
    "of standard error.",
    "exit_code": "The exit code of a script or container.",
    "log_url": "The address of the log, if there is one.",
    "output_url": "The address of the output, if there is one.",
    "output_truncated": "True if the output was longer than the stored part.",
    "log_truncated": "True if the log was longer than the stored part.",
    "output_discarded": "True if the output and log were not stored, because the job has "
    "`output: discard`.",
    "count": "The number of occurrences that a bulk entry stands for.",
    "tzdata": "The version of the time zone data that gave the scheduled time.",
    "last_scheduled_time": "The last occurrence that a bulk entry stands for.",
    "http_status": "The status that the called API answered with, for http tasks.",
    "http_headers": "The headers of that answer, for http tasks.",
    "payload": "The payload of this run, if it replaces the payload of the job.",
}
USED_LIMIT_FIELDS = {
    "limit": "The name of the limit: of a limit of the tenant that is set, or of one that "
    "all tenants share. Those are on a node `script_memory_mb`, the memory of its scripts, and "
    "on AWS `script_python_places` and so on, the reserved concurrency of the function of each "
    "runtime, and `container_vcpu`, the processors of all containers.",
    "allowed": "The most that may be used.",
    "used": "What is used now. `runs_per_minute` counts the runs of the last minute, started "
    "or requested, whichever are more. `calls_per_second` is a mean of the last seconds. On "
    "AWS what an instance has reserved in advance counts as used. `lane_percent` is that of "
    "the fullest queue.",
}
