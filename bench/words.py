"""Explain each billed unit. Every line of docs/cost.md has a sentence here."""

import re

from bench.accounts import Line

_EXPLANATIONS = (
    # runs
    (r"dynamodb-write executor\S* jobs: head", "the claim, and the end, each a swap that fences"),
    (r"dynamodb-write poller jobs: head", "the firing: the run stands QUEUED, for all to see"),
    (r"dynamodb-write job-service jobs: head", "the job itself, durable before the answer"),
    (r"dynamodb-write job-service jobs: body", "what the job does, and its payload"),
    (
        r"dynamodb-write \S+ timers: timer$",
        "the next look: nothing comes without; those of one moment share",
    ),
    (
        r"dynamodb-write \S+ timers: timer gone",
        "the timer deleted, last of all; shared as it was put",
    ),
    (r"dynamodb-write \S+ runs: run", "the line of history"),
    (r"dynamodb-write \S+ runs: attempt", "what an attempt left that was not the last"),
    (
        r"dynamodb-write \S+ runs: pack",
        "what a batch left, until each of its runs has a row",
    ),
    (r"dynamodb-write poller control: #lease", "one poller at a time has the minute: taken, back"),
    (r"dynamodb-write planner control: #lease", "one poller at a time has the minute"),
    (r"dynamodb-write planner control: #watermark", "how far everything is done; kept every 5 min"),
    (r"dynamodb-write \S+ audit: row", "who changed what, packed"),
    (r"dynamodb-write status control: #runs", "the list of runs over all jobs, packed"),
    (r"dynamodb-write status control: #(minutes|totals)", "the counts that GET /stats answers"),
    (r"dynamodb-write status control: #counted", "which changes are counted, so none is twice"),
    (r"dynamodb-write status control: #\w+", "what `status` keeps for lists over all jobs"),
    (r"dynamodb-(write|read) reconciler control: #\w+", "how far the walk has come"),
    # reads
    (r"dynamodb-read reconciler jobs: scan", "every head there is"),
    (r"dynamodb-read executor\S* jobs: head", "the job state, to claim and to finish"),
    (r"dynamodb-read executor\S* jobs: body", "what to do, with its payload"),
    (r"dynamodb-read poller jobs: head", "the job state, to fire"),
    (r"dynamodb-read (poller|executor\S*) runs: run", "whether the last run's history is written"),
    (r"dynamodb-read status runs: run", "the line of history, for lists over all jobs"),
    (r"dynamodb-read status control: query", "which changes are counted already"),
    (r"dynamodb-read \S+ timers: query", "what is to come: each minute is looked at, and again"),
    (r"dynamodb-read \S+ control: #lease", "whether a nudge came"),
    (r"dynamodb-read \S+ control: #shards", "shards in force, and the kill switch"),
    (r"dynamodb-read \S+ control: #watermark", "how far everything is done"),
    # messages and events
    (r"sqs-fifo dead-letters \S+: ReceiveMessage", "whether a message came back too often"),
    (r"sqs-fifo \S+ \S+: SendMessageBatch", "the run, to an executor; ten a request"),
    (r"sqs-fifo \S+ \S+: ReceiveMessage", "handed out by Lambda's poller; ten a request"),
    (r"sqs-fifo \S+ \S+: DeleteMessageBatch", "acknowledged; ten a request"),
    (r"sqs-fifo \S+ \S+: ChangeMessage\S+", "hidden no longer than a claim's lease"),
    (r"sqs-standard \S+ \S+: \w+", "the wake-up of a poller, shared by all that are due near"),
    (r"event status Run State Change", "told on the bus that it ended; `runEvents` turns it off"),
    (r"event status Job State Change", "told on the bus that the job is there, or has ended"),
    # objects, functions, logs
    (r"s3-put reconciler payloads: ListObjectsV2", "names of payloads, a thousand a request"),
    (r"s3-put \S+ \S+: PutObject", "the output of one attempt, in an object of its own"),
    (r"s3-get \S+ \S+: GetObject", "a payload too large for a row"),
    (r"lambda-request \S+ ", "an invocation"),
    (r"lambda-gb-second executor\S* waiting", "an executor that waits for the moment"),
    (r"lambda-gb-second \S+ waiting", "a function that waits for the moment"),
    (r"lambda-gb-second \S+ ", "time to make its calls, as assumed above"),
    (r"log-byte gateway access log", "a line for each request"),
    (r"log-byte \S+ platform", "what Lambda itself logs of an invocation"),
    (r"log-byte \S+ ", "one structured line an event"),
    (r"http-api-request gateway ", "the request"),
)


def explain(line: Line) -> str:
    """Return the sentence of a line, or raise LookupError if it is missing."""
    text = f"{line.unit} {short_role(line.role)} {line.purpose}"
    for pattern, sentence in _EXPLANATIONS:
        if re.match(pattern, text):
            return sentence
    raise LookupError(f"nobody has written what this buys: {text}")


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
