"""The schedule types that each schedule field belongs to.

A reader imports this module without the models that check requests.
"""

RECURRING_TYPES = ("CRON", "INTERVAL")

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
