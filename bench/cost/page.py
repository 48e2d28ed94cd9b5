"""Count the cost of a run, a submission and an idle month for `make cost`; writes docs/cost.md."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.cost.accounts import call_seconds, sum_amounts, sum_dollars
from bench.cost.ceiling import ceiling_section
from bench.cost.choices import optional_settings_section
from bench.cost.followers import followers_section
from bench.cost.idle import (
    IdleDollars,
    MonthlyItem,
    Template,
    free_requests_discount,
    monthly_items,
)
from bench.cost.levers import levers_section
from bench.cost.meter import Unit
from bench.cost.operations import operations_section
from bench.cost.prices import MILLION, Prices, prices
from bench.cost.task_runs import (
    MINUTES_A_MONTH,
    added_dollars,
    large_output_section,
    sweep_dollars,
    task_runs_section,
)
from bench.cost.words import explain, short_role, short_what
from infra.app import read_context
from infra.config.stage import read_stage
from punctual.engine.changes.effects import ATTEMPT_RESULT_RETENTION
from tests.support.artifact_costs import ARTIFACT_CALLS, artifact_call_cost
from tests.support.claims.costs import CLAIM_CALLS, claim_call_cost
from tests.support.deployed.latency import DELIVERIES
from tests.support.deployed.scenes import IDLE, SCENES, Counted, measured, metrics_of
from tests.support.deployed.template import synthesised
from tests.support.operations.costs import operation_costs

DOCUMENT = Path(__file__).parents[2] / "docs" / "cost.md"
GIGABYTE = 1_000_000_000
RUNS_A_DAY = 100 * MILLION
RUN_DAYS = 30  # retention of history
# Left out of storage: objects, and rows for each minute or tenant. They expire within hours.
EXPIRING_ROWS = (
    "outputs",
    "lists: jobcounts",
    *(f"control: #{kind}" for kind in ("lease", "minutes", "totals", "counted")),
)
BATCH_ROW, BATCH_ROW_SHARE = (
    "runs: results",
    ATTEMPT_RESULT_RETENTION.days / RUN_DAYS,
)  # a batch's row lives for this share only
AIM_DOLLARS = 6.0
PEAK_RUNS_A_SECOND = 10_000  # runs a second
STAGES = ("dev", "prod")
MEMORY_SIZES_MB = (256, 512, 1024, 1769)
TRACED_SCENES = ("ten", "alone")
LEAST_DOLLARS = 0.00005  # dollars a million; smaller amounts get no line


def build_document(scenes: Mapping[str, Counted]) -> str:
    price_list = prices()
    submission_lines = scenes["submission"].lines
    parts = [
        *_head_section(price_list),
        *_recurring_section(scenes),
        *_units_section(scenes),
        *_lines_table("## A one-shot job's run", scenes["one-shot"]),
        *_lines_table("## A submission", scenes["submission"]),
        *_large_payload_section(scenes),
        *task_runs_section(read_stage("dev", read_context()["stages"]), price_list),
        *large_output_section(price_list),
        *_claims_section(),
        *followers_section(price_list),
        *operations_section(
            [read_stage(name, read_context()["stages"]) for name in STAGES], operation_costs()
        ),
        *_artifacts_section(),
        *_secrets_section(),
        *_storage_section(scenes),
        *_day_section(scenes, price_list),
        *_idle_section(scenes, price_list),
        *optional_settings_section(
            _templates("prod"), {name: scenes[name].lines for name in TRACED_SCENES}, price_list
        ),
        *ceiling_section(
            read_stage("prod", read_context()["stages"]),
            scenes["output"].lines,
            submission_lines,
            price_list,
        ),
        *_memory_section(scenes, price_list),
        *levers_section(scenes["ten"].lines, LEAST_DOLLARS),
    ]
    return "\n".join(parts) + "\n"


def _head_section(price_list: Prices) -> Iterator[str]:
    assumed = price_list.assumed
    yield "# What it costs"
    yield ""
    yield (
        "`make cost` generates this page, and a test compares it with the behaviour of the code. "
        "The units are counted at the boto3 boundary while the deployed functions run the scenes "
        "below, by AWS's rules and the real sizes of rows. The prices are the published ones of "
        f"{price_list.region} on {price_list.noted_on}; `bench/cost/prices.json` names their "
        "pages. Free tiers are not counted. The free million requests of SQS's price table are "
        "shown in lines of their own."
    )
    yield ""
    yield (
        "These values are assumed, not counted. AWS answers a call in "
        f"{assumed['call_answer_ms']:g} ms, and the call takes {assumed['call_cpu_ms']:g} ms of a "
        "processor. A function has a share of a processor by its memory (see below), so a call "
        f"takes {call_seconds(512, price_list) * 1000:.1f} ms with 512 MB. The start of an "
        f"invocation takes {assumed['lambda_ms_an_invocation']:g} ms, and Lambda itself logs "
        f"{assumed['platform_lines_bytes']:g} bytes for it. The waiting time of functions is "
        f"counted. Messages arrive {_deliveries_text()} ms after they are sent or their delay is "
        "over, in turn. So pollers start at many fractions of a second, and the result is a "
        "mean. The costs of the tasks themselves are not counted: their functions, queues and "
        "running time."
    )


def _deliveries_text() -> str:
    return ", ".join(f"{seconds * 1000:.0f}" for seconds in DELIVERIES)


def _recurring_section(scenes: Mapping[str, Counted]) -> Iterator[str]:
    yield ""
    yield "## A recurring run"
    yield ""
    yield (
        "A `lambda` task runs each minute with 1 KB of payload. Its QUEUED status is visible, and "
        "its history is kept. The cost of a minute without runs is subtracted. The task returns "
        "nothing unless the scene names an output. An output is one object in S3, which costs a "
        "PUT (`docs/decisions/0010-outputs.md`)."
    )
    yield ""
    yield "| runs due at the same time | write units | read units | dollars a million |"
    yield "|---|---:|---:|---:|"
    for name in ("hundred", "many", "ten", "discards", "outputs", "alone", "output"):
        scene = scenes[name]
        yield (
            f"| {scene.label} | {sum_amounts(scene.lines, Unit.WRITE):.2f} | "
            f"{sum_amounts(scene.lines, Unit.READ):.2f} | {sum_dollars(scene.lines):.2f} |"
        )
    yield ""
    yield _verdict_text(scenes["ten"])
    yield ""
    yield _outputs_text(scenes["ten"], scenes["discards"], scenes["outputs"])
    yield ""
    yield _waiting_text(scenes["hundred"])
    yield from _lines_table("### Ten at a time, line by line", scenes["ten"])
    yield from _lines_table("### Alone, line by line", scenes["alone"])


def _waiting_text(scene: Counted) -> str:
    cost = sum_dollars(scene.lines)
    waiting = sum(line.dollars for line in scene.lines if line.purpose == "waiting")
    month = 100 * MINUTES_A_MONTH / MILLION
    return (
        f"A hundred jobs that run each minute cost {month * cost:.2f} dollars a month. Waiting "
        f"functions are {month * waiting:.2f} of it, {waiting / cost:.1%}."
    )


def _units_section(scenes: Mapping[str, Counted]) -> Iterator[str]:
    """Yield the table of write units against their aims."""
    yield ""
    yield "## Write units and their aims"
    yield ""
    yield "| | aim | own rows | shared with the batch | total | |"
    yield "|---|---:|---:|---:|---:|---|"
    for label, name, aim in (
        ("a recurring run, ten at a time", "ten", 6),
        ("a run of a one-shot job, ten at a time, submitted one by one", "one-shot", 5),
        ("a submission, ten in one batch of the stream", "submission", 3),
    ):
        units = [line.amount for line in scenes[name].lines if line.unit is Unit.WRITE]
        all_units, own_units = sum(units), sum(amount for amount in units if amount >= 1)
        met = "met" if round(all_units, 2) <= aim else f"**over by {all_units - aim:.2f}**"
        shared_units = all_units - own_units
        yield f"| {label} | {aim} | {own_units:g} | {shared_units:.2f} | {all_units:.2f} | {met} |"
    yield ""
    yield (
        "Larger batches reduce the shared units, not the own units. The timer of a one-shot job "
        "is put alone, so its deletion is an own unit. One-shot jobs of one batch and time share "
        "it, as recurring runs do."
    )


def _outputs_text(silent: Counted, discards: Counted, stored: Counted) -> str:
    stored_dollars = sum_dollars(stored.lines) - sum_dollars(silent.lines)
    put_dollars = sum(line.dollars for line in stored.lines if line.unit is Unit.PUT)
    discard_dollars = sum_dollars(discards.lines) - sum_dollars(silent.lines)
    return (
        f"A stored output costs {stored_dollars:.2f} dollars a million runs, of which "
        f"{put_dollars:.2f} is the PUT of S3. Each attempt that returns or prints something writes "
        "one object. A run without output writes none. A run of an `event` or `sqs` task writes "
        "none either, because its row holds the id of the message. A job with "
        f'`"output": "discard"` costs {discard_dollars:.2f} more than a job that returns nothing.'
    )


def _verdict_text(scene: Counted) -> str:
    cost = sum_dollars(scene.lines)
    waiting = sum(line.dollars for line in scene.lines if line.purpose == "waiting")
    met = "met" if cost <= AIM_DOLLARS else "**not met**"
    event_dollars = sum(line.dollars for line in scene.lines if line.unit is Unit.EVENT)
    return (
        f"The aim is {AIM_DOLLARS:.2f} dollars a million in total, in batches of ten. It is {met}: "
        f"the cost is {cost:.2f}. Waiting functions are {waiting:.2f} of it, and events are "
        f"{event_dollars:.2f}. A stage can turn events off (`runEvents`). Without waiting the cost "
        f"is {cost - waiting:.2f}, without both {cost - waiting - event_dollars:.2f}."
    )


def _lines_table(title: str, scene: Counted) -> Iterator[str]:
    yield ""
    yield title
    yield ""
    yield "| unit | function | purpose | units | $ a million | explanation |"
    yield "|---|---|---|---:|---:|---|"
    for line in scene.lines:
        if abs(line.dollars) < LEAST_DOLLARS:
            continue
        yield (
            f"| {line.unit} | {short_role(line.role)} | {short_what(line)} | {line.amount:,.4g} | "
            f"{line.dollars:.4f} | {explain(line)} |"
        )
    yield (
        f"| **all** | | | {sum_amounts(scene.lines, Unit.WRITE):g} writes, "
        f"{sum_amounts(scene.lines, Unit.READ):g} reads | **{sum_dollars(scene.lines):.2f}** | |"
    )


def _large_payload_section(scenes: Mapping[str, Counted]) -> Iterator[str]:
    small, large = scenes["submission"], scenes["large submission"]
    yield ""
    yield (
        f"With {large.label} instead of {small.label} a submission costs "
        f"{sum_amounts(large.lines, Unit.WRITE):g} write units and {sum_dollars(large.lines):.2f} "
        "dollars a million, because the row of the payload is then over a kilobyte."
    )
    yield (
        "One of the write units is for the row of the name. Only recurring jobs have it: one-time "
        "jobs and runs take none."
    )


def _claims_section() -> Iterator[str]:
    yield ""
    yield "## A call by claim"
    yield ""
    yield (
        "A runner of a script or a container makes these calls. The numbers are those of a call "
        "with one claim. A call may carry up to 500 claims, which then share the requests of API "
        "Gateway and Lambda. The first renewal of a claim also binds it: it writes the job state "
        "and a timer. A runner that lives under 4 s makes none of these calls where its executor "
        "waits for it."
    )
    yield ""
    yield "| call | write units | read units | puts and lists of S3 | dollars a million |"
    yield "|---|---:|---:|---:|---:|"
    for name in CLAIM_CALLS:
        counted = claim_call_cost(name)
        amounts = [sum_amounts(counted.lines, unit) for unit in (Unit.WRITE, Unit.READ, Unit.PUT)]
        shown = " | ".join(f"{amount:.2f}" for amount in amounts)
        yield f"| {counted.label} | {shown} | {sum_dollars(counted.lines):.2f} |"


def _artifacts_section() -> Iterator[str]:
    yield ""
    yield "## Artifacts"
    yield ""
    yield (
        "An upload is one put of S3 more, 0.005 dollars for 1,000, and takes no function. Bytes "
        "at rest cost what outputs cost. They are kept until the artifact is deleted, and for up "
        "to a day after. A new artifact reads the rows of all artifacts of its tenant, for the "
        "limits. A job with an artifact reads one unit and writes one more when it is created. "
        f"Each of its runs costs {added_dollars('artifact', 'long'):.2f} dollars a million more: a "
        "read of the row, and a GET of S3. The download within the region is free. The daily walk "
        "makes one list of S3 for each 1,000 artifacts, and reads two units for each."
    )
    yield ""
    yield "| call | write units | read units | dollars a million |"
    yield "|---|---:|---:|---:|"
    for name in ARTIFACT_CALLS:
        counted = artifact_call_cost(name)
        amounts = [sum_amounts(counted.lines, unit) for unit in (Unit.WRITE, Unit.READ)]
        shown = " | ".join(f"{amount:.2f}" for amount in amounts)
        yield f"| {counted.label} | {shown} | {sum_dollars(counted.lines):.2f} |"


def _secrets_section() -> Iterator[str]:
    yield ""
    yield "## Secrets"
    yield ""
    yield (
        "Standard parameters of SSM cost nothing, so a secret at rest and an idle month cost "
        "nothing more. An executor reads a secret at most once a minute in each environment. Each "
        "read and each change is one request of KMS: 0.03 dollars for 10,000, after 20,000 free "
        f"ones a month. So a run that reads one costs {added_dollars('secret', 'short'):.2f} "
        "dollars a million more, and a run that finds it in the cache nothing. `PUT` and `DELETE` "
        "also write three units of DynamoDB and read two, and `GET /secrets` reads one unit for "
        "each 4 KB of names. A name that is not in SSM is then read from Secrets Manager: 0.05 "
        "dollars for 10,000 reads, and 0.40 dollars a month for each secret that an operator "
        "stores there."
    )


def _storage_section(scenes: Mapping[str, Counted]) -> Iterator[str]:
    yield ""
    yield "## Stored bytes"
    yield ""
    yield (
        "The sizes include the 100 bytes that DynamoDB adds to each row. The row with the results "
        f"of a batch (`{BATCH_ROW}`) expires after {ATTEMPT_RESULT_RETENTION.days} days."
    )
    yield ""
    yield "| owner | row | bytes |"
    yield "|---|---|---:|"
    for owner, name in (("a job", "submission"), ("a run", "ten")):
        for kind, size in scenes[name].stored.items():
            yield f"| {owner} | {kind} | {size:,.0f} |"
        yield f"| {owner} | **all** | **{sum(scenes[name].stored.values()):,.0f}** |"


def _day_section(scenes: Mapping[str, Counted], price_list: Prices) -> Iterator[str]:
    runs, one_shots = (
        sum_dollars(scenes["many"].lines) * 100,
        sum_dollars(scenes["one-shot"].lines) * 100,
    )
    submitted = sum_dollars(scenes["submission"].lines) * 100
    rows = sum(
        size * (BATCH_ROW_SHARE if kind == BATCH_ROW else 1)
        for kind, size in scenes["many"].stored.items()
        if kind not in EXPIRING_ROWS
    )
    stored_gb_a_byte = RUNS_A_DAY * RUN_DAYS / GIGABYTE
    stored = stored_gb_a_byte * rows * price_list.monthly["dynamodb-gb"]
    outputs = stored_gb_a_byte * scenes["outputs"].stored["outputs"]
    puts = (sum_dollars(scenes["outputs"].lines) - sum_dollars(scenes["ten"].lines)) * 100
    backups = stored_gb_a_byte * rows * price_list.monthly["dynamodb-pitr-gb"]
    yield ""
    yield "## 100 million runs a day"
    yield ""
    yield "| | dollars |"
    yield "|---|---:|"
    yield f"| 100 M recurring runs, a day | {runs:,.0f} |"
    yield f"| 100 M one-shot jobs, submitted and run, a day | {submitted + one_shots:,.0f} |"
    yield (
        f"| history of {RUN_DAYS} days ({stored_gb_a_byte * rows:,.0f} GB), a month | "
        f"{stored:,.0f} |"
    )
    yield f"| point-in-time recovery of these rows, a month | {backups:,.0f} |"
    yield f"| storing an output of each of 100 M runs, a day | {puts:,.0f} |"
    yield (
        f"| these outputs of 2 KB, for {RUN_DAYS} days ({outputs:,.0f} GB), a month | "
        f"{outputs * price_list.monthly['s3-gb']:,.0f} |"
    )
    yield ""
    yield (
        "At this rate provisioned capacity and reserved prices cost a fraction of the prices on "
        "demand. A shorter retention of history also lowers the costs."
    )


def _idle_section(scenes: Mapping[str, Counted], price_list: Prices) -> Iterator[str]:
    yield ""
    yield "## An idle month"
    yield ""
    writes, reads = (sum_amounts(scenes["minute"].lines, unit) for unit in (Unit.WRITE, Unit.READ))
    yield (
        f"A minute without due timers costs {reads:g} reads, two of them for each shard, and "
        "starts one function. Each minute writes the watermark "
        f"({writes:g} a minute, ${MINUTES_A_MONTH * writes * price_list.units[Unit.WRITE]:.3f} a "
        "month). `GET /health` reads it as the heartbeat of the planner, and a new planner starts "
        "from it. A stage with `containers` on also has a sweep each minute, "
        f"{sweep_dollars():.2f} dollars a month. Scripts, artifacts and secrets cost nothing while "
        "they are not used."
    )
    for stage in STAGES:
        lines, free_dollars = idle_costs(stage)
        needed = [item for item in lines if not item.is_optional]
        chosen = [item for item in lines if item.is_optional]
        yield ""
        yield f"### Stage {stage}"
        yield ""
        yield "| item | number | $ a month | explanation |"
        yield "|---|---:|---:|---|"
        for item in needed:
            yield _item_row(item)
        yield f"| **scheduling** | | **{_sum_items(needed):.2f}** | |"
        yield (
            f"| the first million requests to SQS | 1,000,000 | -{free_dollars:.2f} | free in each "
            "account and month, also after the first year |"
        )
        total_dollars = _sum_items(needed) - free_dollars
        yield f"| **scheduling, with free requests** | | **{total_dollars:.2f}** | |"
        for item in chosen:
            yield _item_row(item)
        yield f"| **optional items of the stage** | | **{_sum_items(chosen):.2f}** | |"
    yield ""
    yield (
        "The aim for `dev` is less than $2 a month for scheduling, without the free requests of "
        "SQS. Nearly all of it is Lambda's polling of empty queues. By AWS's documentation a "
        "source has five pollers, which wait up to 20 s each. The quick lane has a source for "
        "each priority, so that HIGH goes first, and the long lane has one. Wake-ups and "
        "operations have one each. Dead letters have no source, because a function fetches them "
        "every five minutes. The free million requests are counted once for both kinds of queues, "
        "as if nothing else in the account used them."
    )


def idle_costs(stage: str) -> tuple[list[MonthlyItem], float]:
    """Return the costs of an idle month, and the discount of SQS's free requests."""
    templates = _templates(stage)
    idle_dollars = IdleDollars(
        *(sum_dollars(measured(name, stage).lines) / MILLION for name in IDLE)
    )
    lines = monthly_items(templates, idle_dollars, prices(), metrics_of(stage))
    return lines, free_requests_discount(templates, prices())


def _templates(stage: str) -> list[Template]:
    return [stack.template for stack in synthesised(stage)]


def _memory_section(scenes: Mapping[str, Counted], price_list: Prices) -> Iterator[str]:
    waiting_dollars = sum(
        line.dollars
        for line in scenes["ten"].lines
        if short_role(line.role) == "poller" and line.purpose == "waiting"
    )
    processor_mb, cpu = (
        price_list.assumed["memory_of_a_processor"],
        price_list.assumed["poller_cpu_ms_a_job"],
    )
    gb_second_dollars = price_list.units[Unit.GB_SECOND]
    yield ""
    yield "## Memory and throughput"
    yield ""
    yield (
        f"A function with {processor_mb:,.0f} MB has one processor. Less memory gives a smaller "
        f"share. A recurring job takes {cpu:g} ms of a processor through boto3 in a poller "
        "(`make bench-poller`), and threads do not shorten it. Waiting costs by memory. So `dev` "
        "has pollers of 256 MB, and `prod` of 512 MB for the throughput of its shards. A "
        "deployment with bursts raises `memory` of poller and executors in `cdk.json`. A poller "
        "starts as early as its due timers need at its throughput. More memory makes a batch "
        "shorter and waiting more expensive: with 512 MB the waiting of pollers costs "
        f"{2 * waiting_dollars:.2f} dollars a million in batches of ten, with 256 MB "
        f"{waiting_dollars:.2f}."
    )
    yield ""
    yield (
        "| memory of the poller, MB | processors | recurring jobs a second for each poller | "
        "pollers for 10,000 a second | dollars an hour of one |"
    )
    yield "|---:|---:|---:|---:|---:|"
    for size in MEMORY_SIZES_MB:
        processor_share = min(1.0, size / processor_mb)
        pace = int(processor_share * 1000 / cpu)
        hour_dollars = gb_second_dollars * size / 1024 * 3600
        pollers = -(-PEAK_RUNS_A_SECOND // pace)
        yield f"| {size:,} | {processor_share:.2f} | {pace:,} | {pollers} | {hour_dollars:.3f} |"


def _item_row(item: MonthlyItem) -> str:
    return f"| {item.label} | {item.number:,.0f} | {item.dollars:.2f} | {item.buys} |"


def _sum_items(items: Sequence[MonthlyItem]) -> float:
    return sum(item.dollars for item in items)


def main() -> None:
    text = build_document({name: measured(name) for name in SCENES})
    DOCUMENT.write_text(text)
    print(text)
