"""The kinds of alarms, and the choice of a stage."""

from collections.abc import Collection
from typing import Any

from infra.config.cdk_json import EMAIL, Fields

ALARMS = (
    "no-tick",
    "lateness",
    "watermark",
    "oldest-message",
    "dead-letters",
    "stream-age",
    "errors",
    "throttles",
    "table-throttles",
    "api-5xx",
    "reconciler",
)
"""Kinds of alarms; each has its section in docs/runbook.md."""

MEASURED = ("lateness", "watermark", "reconciler")
"""The kinds that need Punctual's own metrics."""


def chosen_alarms(fields: Fields, metrics: bool) -> tuple[str, ...]:
    """Return the chosen kinds; `true` stands for all that the metrics of the stage allow."""
    allowed = tuple(kind for kind in ALARMS if metrics or kind not in MEASURED)

    def fits(value: Any) -> bool:
        if isinstance(value, list):
            known = bool(value) and all(one in allowed for one in value)
            return known and len(set(value)) == len(value)
        return isinstance(value, bool)

    meant = f"true, false, or a list from {', '.join(allowed)}"
    meant += "" if metrics else f" ({', '.join(MEASURED)} need `metrics`)"
    chosen = fields.take("alarms", meant, fits, False)
    if isinstance(chosen, bool):
        return allowed if chosen else ()
    return tuple(kind for kind in ALARMS if kind in chosen)


def alarm_email(fields: Fields, alarms: Collection[str], budget: int | None) -> str | None:
    address = fields.text_or_null("alarmEmail", EMAIL, "an address")
    if address is not None and not alarms and budget is None:
        fields.wrong.append(
            "`alarmEmail` would get no mail: `alarms` chooses none, and there is no `budgetDollars`"
        )
    return address
