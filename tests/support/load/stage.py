"""The stage that the load runs on: its settings, its functions, and its stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.config.concurrency import (
    MAX_STATUS_BATCHES,
    STREAM_BATCH_SIZE,
    STREAM_WINDOW_SECONDS,
)
from punctual.settings import Settings

PLANNER, POLLER, EXECUTOR, STATUS = "planner", "poller", "executor", "status"
WAKE_QUEUE = "https://sqs.invalid/1/wake"
RUN_QUEUE = "https://sqs.invalid/1/quick-normal.fifo"
# A call through boto3 takes a processor about so long (`make bench-poller`: 1.2 ms for a job).
CALL_PROCESSOR_SECONDS = 0.001
CORE_MB = 1_769


@dataclass(frozen=True)
class LoadStage:
    """What bounds the runs of one tenant. The stream is as the stack declares it."""

    shards: int = 4
    list_slots: int = 4
    feed_slots: int = 1
    stream_shards: int = 4  # one for each partition of the jobs table, as AWS starts a new one
    batch_size: int = STREAM_BATCH_SIZE
    batching_window: float = STREAM_WINDOW_SECONDS
    batches_at_a_time: int = MAX_STATUS_BATCHES  # of one shard
    memory_mb: Mapping[str, int] = field(
        default_factory=lambda: {PLANNER: 512, POLLER: 512, EXECUTOR: 512, STATUS: 1_024}
    )

    def processor_share(self, function: str) -> float:
        return min(1.0, self.memory_mb[function] / CORE_MB)

    def settings(self) -> Settings:
        return Settings(
            stage="load",
            jobs_table="jobs",
            timers_table="timers",
            runs_table="runs",
            control_table="control",
            audit_table="audit",
            lists_table="lists",
            bucket="bucket",
            wake_queue=WAKE_QUEUE,
            operation_queue="https://sqs.invalid/1/operations",
            event_bus="bus",
            knobs="/load/",
            list_slots=self.list_slots,
            feed_slots=self.feed_slots,
            queues={"quick-normal": RUN_QUEUE, "long": "https://sqs.invalid/1/long.fifo"},
        )


# Runs change job states about 30,000 times a second, and a partition takes 1,000 of these.
SIZED_FOR_10_000 = LoadStage(
    shards=16,
    list_slots=32,
    feed_slots=4,
    stream_shards=40,
    memory_mb={PLANNER: 512, POLLER: 1_769, EXECUTOR: 1_024, STATUS: 1_024},
)
