"""Write ids, by which a request recognises its own swaps. A batch numbers one drawn id."""

from punctual.engine.ports.clock import NewId

_WRITE_ID_DIGITS = 12  # hex digits; enough to distinguish the last writers of one job state


def write_id_of(random_id: str) -> str:
    return random_id[-_WRITE_ID_DIGITS:]


def new_write_id(new_id: NewId) -> str:
    return write_id_of(new_id())


def new_write_ids(new_id: NewId, count: int) -> list[str]:
    write_id = new_write_id(new_id)
    return [f"{write_id}.{number}" for number in range(count)]
