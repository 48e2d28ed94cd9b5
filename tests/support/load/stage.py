"""The stage that the load runs on: its settings, its functions, and its stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    shards: int = 16
    list_slots: int = 64
    feed_slots: int = 4
    stream_shards: int = 40  # one for each partition of the jobs table
    batch_size: int = 200
    batching_window: float = 1.0
    batches_at_a_time: int = 4  # of one shard
    memory_mb: Mapping[str, int] = field(
        default_factory=lambda: {PLANNER: 512, POLLER: 1_769, EXECUTOR: 1_024, STATUS: 1_024}
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
            event_bus="bus",
            knobs="/load/",
            list_slots=self.list_slots,
            feed_slots=self.feed_slots,
            queues={"quick-normal": RUN_QUEUE, "long": "https://sqs.invalid/1/long.fifo"},
        )
