"""The slots of the node: runs of one slot wait for the same place to run in."""

from punctual.domain.job_state import Lane, Rules

INLINE = "inline"  # the node itself: an `event` task takes no thread
SLOTS: dict[str, int] = {INLINE: 0, Lane.QUICK: 1, Lane.LONG: 2}  # and their numbers in rows


def slot_number(rules: Rules) -> int:
    """Return the number of the slot that a run by these rules waits for."""
    return SLOTS[INLINE if rules.task_type == "event" else rules.lane]
