"""Find out by write ids whether a swap won after its answer was lost."""

from collections.abc import Sequence

from punctual.domain.job_state import JobState


def is_own(mine: JobState, version: int, writers: Sequence[str]) -> bool:
    """Return whether the stored row contains the effect of the swap to `mine`.

    `version` and `writers` are those of the stored row. Only the write ids from the version of
    `mine` on count. A request that won an earlier swap and lost this one left an earlier id.
    """
    mark = mine.writers[-1] if mine.writers else ""
    newer = version - mine.version
    return bool(mark) and newer >= 0 and mark in writers[-newer - 1 :]
