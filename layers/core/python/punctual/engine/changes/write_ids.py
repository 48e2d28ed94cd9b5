"""Write ids, by which a request recognises its own swaps. A batch numbers one drawn id."""

from punctual.engine.ports.clock import NewId

_RANDOM = 12  # hex digits; enough to distinguish the last writers of one job state


def mark_of(drawn: str) -> str:
    return drawn[-_RANDOM:]


def mark(new_id: NewId) -> str:
    return mark_of(new_id())


def marks(new_id: NewId, count: int) -> list[str]:
    drawn = mark(new_id)
    return [f"{drawn}.{number}" for number in range(count)]
