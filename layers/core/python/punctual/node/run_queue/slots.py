"""The slots of the node. Runs of one slot compete for the same threads."""

from punctual.domain.job_state import Lane, Rules

INLINE_SLOT = "inline"  # the node's own thread: an `event` task takes no worker
SLOT_NUMBERS: dict[str, int] = {
    INLINE_SLOT: 0,
    Lane.QUICK: 1,
    Lane.LONG: 2,
}  # the number of each slot in rows


def slot_number(rules: Rules) -> int:
    """Return the number of the slot that a run by these rules waits for."""
    return SLOT_NUMBERS[INLINE_SLOT if rules.task_type == "event" else rules.lane]
