"""Explain each billed unit. Every line of docs/cost.md has an explanation here."""

import re

from bench.cost.accounts import Line

_EXPLANATIONS = (
    # runs
    (
        r"dynamodb-write executor\S* jobs: state",
        "the claim and the end of the run, each a conditional write",
    ),
    (r"dynamodb-write poller jobs: state", "firing the run, which becomes QUEUED"),
    (r"dynamodb-write job-service jobs: state", "the job state, durable before the answer"),
    (r"dynamodb-write job-service jobs: definition", "the definition with the payload"),
    (r"dynamodb-write job-service jobs: names", "the row of the name, before the job state"),
    (r"dynamodb-read reconciler lists: \w+", "the rows of jobs in the lists, each day"),
    (
        r"dynamodb-write \S+ timers: timer$",
        "the timer of the next evaluation; timers of one time share a row",
    ),
    (
        r"dynamodb-write \S+ timers: timer deleted",
        "deleting the timer after its evaluation; shared like the put",
    ),
    (r"dynamodb-write \S+ runs: run", "the history row of the run"),
    (r"dynamodb-write \S+ runs: attempt", "the result of an attempt that was not the last"),
    (
        r"dynamodb-write \S+ runs: results",
        "the results of a batch, until each of its runs has a row",
    ),
    (
        r"dynamodb-write poller control: #lease",
        "the lease of a partition, taken and released by a poller",
    ),
    (r"dynamodb-write planner control: #lease", "the lease of a partition"),
    (
        r"dynamodb-write planner control: #watermark",
        "the watermark, stored each minute",
    ),
    (r"dynamodb-write \S+ audit: row", "audit entries, several in a row"),
    (r"dynamodb-write status lists: runs", "the list of runs over all jobs, several in a row"),
    (r"dynamodb-write status control: #totals", "the counts of GET /stats"),
    (
        r"dynamodb-write status control: #counted",
        "the log of counted changes, and the sums of ten seconds",
    ),
    (r"dynamodb-write status control: #uncounted", "marks of logs that are not folded yet"),
    (r"dynamodb-read status control: #counted", "the sums of ten seconds, before they are folded"),
    (r"dynamodb-write reconciler lists: runs", "entries of runs that live longer than an hour"),
    (r"dynamodb-(write|read) reconciler control: #\w+", "the progress of the walk"),
    (r"dynamodb-write status lists: feed", "the batch in the feed of changes"),
    (r"dynamodb-(write|read) status lists: failures", "the open failures of a job"),
    (r"dynamodb-write status lists: jobs", "the row of the job in the list of jobs"),
    (
        r"dynamodb-write status lists: jobcounts",
        "the counts of jobs, for a batch that creates or ends some",
    ),
    # reads
    (r"dynamodb-read reconciler jobs: scan", "all job states, with their definitions"),
    (r"dynamodb-read reconciler jobs: definition", "the name and tags of a job, for its row"),
    (r"dynamodb-read reconciler lists: scan", "all rows of lists, to find those without a job"),
    (r"dynamodb-(write|read) reconciler lists: jobs", "the row of a job, compared or repaired"),
    (r"dynamodb-read executor\S* jobs: state", "the job state, for the claim and the end"),
    (r"dynamodb-read executor\S* jobs: definition", "the definition with the payload"),
    (r"dynamodb-read poller jobs: state", "the job state, for firing"),
    (r"dynamodb-read (poller|executor\S*) runs: run", "check for the history row of the last run"),
    (r"dynamodb-read status runs: run", "the history row, for lists over all jobs"),
    (r"dynamodb-read status control: query", "the log of counted changes, and its marks"),
    (r"dynamodb-read status lists: jobs", "the row with the last outcomes, to add one"),
    (r"dynamodb-read status lists: jobcounts", "whether earlier changes of the jobs are counted"),
    (r"dynamodb-read reconciler lists: jobcounts", "the counts of jobs, compared with the jobs"),
    (r"dynamodb-read status jobs: definition", "the name and tags of a job, for its row"),
    (r"dynamodb-read planner jobs: query", "running operations, to continue those that stall"),
    (r"dynamodb-read \S+ timers: query", "the timers of a partition, read repeatedly"),
    (r"dynamodb-read \S+ control: #lease", "check for notifications of new timers"),
    (r"dynamodb-read \S+ control: #shards", "the number of shards, and the dispatch switch"),
    (r"dynamodb-read \S+ control: #watermark", "the watermark"),
    # messages and events
    (r"sqs-fifo dead-letters \S+: ReceiveMessage", "polling for dead letters"),
    (r"sqs-fifo \S+ \S+: SendMessageBatch", "sending the run to an executor; ten per request"),
    (r"sqs-fifo \S+ \S+: ReceiveMessage", "received by Lambda's poller; ten per request"),
    (r"sqs-fifo \S+ \S+: DeleteMessageBatch", "acknowledging the message; ten per request"),
    (r"sqs-fifo \S+ \S+: ChangeMessage\S+", "hiding the message for the lease of a claim"),
    (
        r"sqs-standard \S+ \S+: \w+",
        "the wake-up of a poller, shared by runs due at about the same time",
    ),
    (r"event status Run State Change", "the event of the ended run; `runEvents` turns it off"),
    (r"event status Job State Change", "the event of the created or ended job"),
    # objects, functions, logs
    (r"s3-put reconciler payloads: ListObjectsV2", "listing payloads, a thousand per request"),
    (r"s3-put reconciler artifacts: ListObjectsV2", "listing artifacts, a thousand per request"),
    (r"s3-put \S+ \S+: PutObject", "the output of one attempt, in its own object"),
    (r"s3-get \S+ \S+: GetObject", "a payload too large for a row"),
    (r"lambda-request \S+ ", "an invocation"),
    (r"lambda-gb-second executor\S* waiting", "an executor that waits for the due time"),
    (r"lambda-gb-second \S+ waiting", "a function that waits for the due time"),
    (r"lambda-gb-second \S+ ", "time of its calls, as assumed above"),
    (r"log-byte gateway access log", "a line for each request"),
    (r"log-byte \S+ platform", "Lambda's own log lines of an invocation"),
    (r"log-byte \S+ ", "one structured line per event"),
    (r"http-api-request gateway ", "the request"),
)


def explain(line: Line) -> str:
    """Return the sentence of a line, or raise LookupError if it is missing."""
    text = f"{line.unit} {short_role(line.role)} {line.purpose}"
    for pattern, sentence in _EXPLANATIONS:
        if re.match(pattern, text):
            return sentence
    raise LookupError(f"bench/cost/words.py has no explanation of {text}")


def short_role(role: str) -> str:
    """Return a role without its stage prefix.

    >>> short_role("punctual-dev-executor-quick")
    'executor-quick'
    """
    return re.sub(r"^punctual-[a-z0-9]+-", "", role)


def short_what(line: Line) -> str:
    """Return the purpose without the stage, so it reads the same for all stages."""
    purpose = re.sub(r"punctual-[a-z0-9]+-", "", line.purpose)
    return "its calls" if purpose == short_role(line.role) and "gb-second" in line.unit else purpose
