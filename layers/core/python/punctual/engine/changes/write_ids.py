"""Marks by which a request knows its own swaps again: one drawn id, numbered through a batch."""

from punctual.engine.ports.clock import NewId

_RANDOM = 12  # hex digits: enough to tell the last few writers of one head apart


def mark_of(drawn: str) -> str:
    return drawn[-_RANDOM:]


def mark(new_id: NewId) -> str:
    return mark_of(new_id())


def marks(new_id: NewId, count: int) -> list[str]:
    drawn = mark(new_id)
    return [f"{drawn}.{number}" for number in range(count)]
