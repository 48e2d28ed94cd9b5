"""Which runs wait for the same: the node itself, or a slot for quick or for long work."""

from punctual.domain.job_state import Lane, Priority

INLINE = "inline"  # done by the node itself: takes no slot
INLINE_TYPES = frozenset({"event"})
KINDS = (INLINE, Lane.QUICK, Lane.LONG)
MIXED = len(Priority) * len(KINDS)  # of heads whose queued runs are of several ranks

Rank = tuple[str, Priority]
Place = tuple[int, str, int]  # of a head: when its earliest queued run is due, whose, its row


def kind_of(task_type: str, lane: Lane, inline: frozenset[str] = INLINE_TYPES) -> str:
    return INLINE if task_type in inline else lane


def rank(priority: Priority, kind: str) -> int:
    """As heads are kept by: each kind has ranks of its own, so none is looked for behind others.

    >>> rank(Priority.LOW, INLINE), rank(Priority.HIGH, Lane.LONG)
    (2, 6)
    """
    return len(Priority) * KINDS.index(kind) + priority
