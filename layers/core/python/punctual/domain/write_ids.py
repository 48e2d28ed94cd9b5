"""Who wrote the last few versions of a head, and so whose a swap was whose answer was lost."""

from collections.abc import Sequence

from punctual.domain.job_state import JobState


def is_own(mine: JobState, version: int, writers: Sequence[str]) -> bool:
    """Whether what stands, of this version and by these writers, holds the effect of my swap.

    Only among the writers from its version on: a request that won one swap and lost a later one
    has left its mark before.
    """
    mark = mine.writers[-1] if mine.writers else ""
    newer = version - mine.version
    return bool(mark) and newer >= 0 and mark in writers[-newer - 1 :]
