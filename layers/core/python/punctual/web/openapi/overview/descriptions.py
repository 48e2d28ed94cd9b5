"""The descriptions of fields of the overview, of failures and of pauses, by model."""

from collections.abc import Mapping

OVERVIEW_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "AcknowledgeFields": {
        "note": "What is known about the failure, for people. It has no control characters.",
    },
    "Acknowledgement": {
        "by": "The caller that acknowledged the failure.",
        "at": "The time of the acknowledgement.",
        "note": "What is known about the failure, or null.",
    },
    "Failure": {
        "failure_id": "The id of the failure: that of its job, and the kind of error.",
        "job_id": "The job that failed.",
        "job_name": "The name of the job, or null if the job cannot be read.",
        "error": "The first line of the last error of this kind.",
        "status": "How the last run of this kind ended.",
        "count": "The number of runs that ended so since the failure opened.",
        "first_at": "The end of the first of these runs.",
        "last_at": "The end of the last of these runs.",
        "last_run_id": "The last of these runs.",
        "acknowledged": "The acknowledgement by a person, or null.",
    },
    "FailurePage": {
        "failures": "The failures. The one that happened last comes first.",
        "next_token": "Send it as the parameter `next_token` to get the next page. It is null on "
        "the last page.",
    },
    "PauseFields": {
        "until": "The time at which the job resumes by itself, at most 366 days ahead. An "
        "occurrence at this time is not missed. Default: a client resumes the job.",
        "note": "Why the job is paused, for people. It has no control characters.",
    },
    "JobPause": {
        "until": "The time at which the job resumes by itself, or null.",
        "note": "Why the job is paused, or null.",
        "by": "The caller that paused the job.",
        "at": "The time when the job was paused.",
    },
    "Overview": {
        "verdict": "`BLIND`: no word came from the planner or from all executors for 60 s. On AWS "
        "the planner speaks each minute, so the 60 s begin when its word was due. `BAD`: runs are "
        "late, or a failure is not acknowledged. `WARN`: all failures are known, or a job is "
        "paused past its time, or a limit is used over 80 %. The worst that holds counts.",
        "sentence": "The texts of all facts.",
        "since": "The earliest known cause of the verdict. It is null for `OK`.",
        "facts": "What the verdict follows from, the most urgent first.",
    },
    "OverviewFact": {
        "code": "A stable name for programs.",
        "text": "One sentence for people.",
        "count": "The number in the sentence: jobs, failures, or the used part of a limit.",
    },
}
