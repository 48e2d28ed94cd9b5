"""The kinds of alarms, and the choice of a stage."""

from collections.abc import Collection
from typing import Any

from infra.config.cdk_json import EMAIL_PATTERN, Fields

ALARM_KINDS = (
    "no-tick",
    "lateness",
    "watermark",
    "oldest-message",
    "dead-letters",
    "stream-age",
    "list-lag",
    "errors",
    "throttles",
    "concurrency",
    "dropped-events",
    "duration",
    "table-throttles",
    "api-5xx",
    "reconciler",
)
"""Kinds of alarms; each has its section in docs/runbook.md."""

KINDS_WITH_OWN_METRICS = ("lateness", "watermark", "reconciler", "list-lag")
"""The kinds that need Punctual's own metrics."""


KINDS_WITH_RESERVATIONS = ("concurrency",)
"""The kinds that watch only functions with reserved concurrency."""


def chosen_alarms(fields: Fields, metrics: bool) -> tuple[str, ...]:
    """Return the chosen kinds; `true` stands for all that the metrics of the stage allow."""
    allowed = tuple(kind for kind in ALARM_KINDS if metrics or kind not in KINDS_WITH_OWN_METRICS)

    def is_valid(value: Any) -> bool:
        if isinstance(value, list):
            are_kinds = bool(value) and all(item in allowed for item in value)
            return are_kinds and len(set(value)) == len(value)
        return isinstance(value, bool)

    expected = f"true, false, or a list from {', '.join(allowed)}"
    expected += "" if metrics else f" ({', '.join(KINDS_WITH_OWN_METRICS)} need `metrics`)"
    chosen = fields.take("alarms", expected, is_valid, False)
    if isinstance(chosen, bool):
        return allowed if chosen else ()
    return tuple(kind for kind in ALARM_KINDS if kind in chosen)


def read_alarm_email(fields: Fields, alarms: Collection[str], budget: int | None) -> str | None:
    address = fields.text_or_null("alarmEmail", EMAIL_PATTERN, "an address")
    if address is not None and not alarms and budget is None:
        fields.problems.append("`alarmEmail` requires `alarms` or `budgetDollars`")
    return address
