"""Which schedule fields belong to which types; apart from what checks them, for who only shows."""

RECURRING_TYPES = ("CRON", "INTERVAL")

# A schedule field, and the types of schedule that know it.
TYPES_OF_FIELD: dict[str, tuple[str, ...]] = {
    "schedule_time": ("FUTURE",),
    "cron_expression": ("CRON",),
    "timezone": RECURRING_TYPES,
    "dst_gap": ("CRON",),
    "dst_fold": ("CRON",),
    "interval_seconds": ("INTERVAL",),
    "interval_from": ("INTERVAL",),
    "start_time": RECURRING_TYPES,
    "end_time": RECURRING_TYPES,
    "max_runs": RECURRING_TYPES,
    "exclude": RECURRING_TYPES,
}
