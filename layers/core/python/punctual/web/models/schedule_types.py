"""Which schedule fields belong to which types; apart from what checks them, for who only shows."""

RECURRING = ("CRON", "INTERVAL")

# A schedule field, and the types of schedule that know it.
OF_TYPE: dict[str, tuple[str, ...]] = {
    "schedule_time": ("FUTURE",),
    "cron_expression": ("CRON",),
    "timezone": RECURRING,
    "dst_gap": ("CRON",),
    "dst_fold": ("CRON",),
    "interval_seconds": ("INTERVAL",),
    "interval_from": ("INTERVAL",),
    "start_time": RECURRING,
    "end_time": RECURRING,
    "max_runs": RECURRING,
    "exclude": RECURRING,
}
