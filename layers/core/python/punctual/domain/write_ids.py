"""Find out by write ids whether a swap won after its answer was lost."""

from collections.abc import Sequence

from punctual.domain.job_state import JobState


def has_won(state: JobState, version: int, write_ids: Sequence[str]) -> bool:
    """Return whether the stored row contains the effect of the swap to `state`.

    `version` and `write_ids` are those of the stored row. Only the write ids from the version of
    `state` on count. A request that won an earlier swap and lost this one left an earlier id.
    """
    write_id = state.write_ids[-1] if state.write_ids else ""
    later_versions = version - state.version
    return bool(write_id) and later_versions >= 0 and write_id in write_ids[-later_versions - 1 :]
