"""Write ids, by which a request recognises its own swaps. A batch numbers one new id."""

from collections.abc import Callable, Sequence

from punctual.domain.job_state import JobState

_WRITE_ID_DIGITS = 12  # hex digits; enough to distinguish the last writers of one job state


def write_id_of(random_id: str) -> str:
    return random_id[-_WRITE_ID_DIGITS:]


def new_write_id(new_id: Callable[[], str]) -> str:
    return write_id_of(new_id())


def new_write_ids(new_id: Callable[[], str], count: int) -> list[str]:
    write_id = new_write_id(new_id)
    return [f"{write_id}.{number}" for number in range(count)]


def has_won(state: JobState, version: int, write_ids: Sequence[str]) -> bool:
    """Return whether the swap to `state` won, although its answer was lost.

    `version` and `write_ids` are those of the stored row. Only the write ids from the version of
    `state` on count. A request that won an earlier swap and lost this one left an earlier id.
    """
    write_id = state.write_ids[-1] if state.write_ids else ""
    later_versions = version - state.version
    return bool(write_id) and later_versions >= 0 and write_id in write_ids[-later_versions - 1 :]
