"""The settings of a stage in tests and benches that reach no AWS."""

from typing import Any

from punctual.settings import Settings

NO_HOST = "https://sqs.invalid/1"  # a host that never resolves


def a_settings(stage: str = "dev", **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "stage": stage,
        "jobs_table": "jobs",
        "timers_table": "timers",
        "runs_table": "runs",
        "control_table": "control",
        "audit_table": "audit",
        "lists_table": "lists",
        "bucket": "bucket",
        "wake_queue": f"{NO_HOST}/wake",
        "operation_queue": f"{NO_HOST}/operations",
        "event_bus": "bus",
        "knobs": f"/punctual/{stage}/",
        "queues": {
            "quick-normal": f"{NO_HOST}/quick-normal.fifo",
            "long": f"{NO_HOST}/long.fifo",
        },
    }
    return Settings(**{**values, **changes})
