"""The statuses for which each entry of a job's `notify` sends a notification.

The job state holds them as letters, so the end of a run needs no read of the definition.
"""

from collections.abc import Iterable

from punctual.domain.run import RunStatus

_STATUS_LETTERS = {
    RunStatus.SUCCESS: "S",
    RunStatus.FAILED: "F",
    RunStatus.TIMED_OUT: "T",
    RunStatus.CANCELLED: "C",
    RunStatus.SKIPPED: "K",
    RunStatus.MISSED: "M",
}


def notify_letters(entries: Iterable[Iterable[str]]) -> str:
    """Return the statuses of the entries as letters for the job state, in the same order.

    >>> notify_letters([["FAILED", "TIMED_OUT"], ["SUCCESS"]]), notify_letters([])
    ('FT S', '')
    """
    return " ".join(
        "".join(_STATUS_LETTERS[RunStatus(status)] for status in entry) for entry in entries
    )


def entries_to_notify(notify: str, status: RunStatus) -> list[int]:
    """Return the indexes of the entries that report `status`.

    >>> entries_to_notify("FT S TM", RunStatus.TIMED_OUT), entries_to_notify("", RunStatus.FAILED)
    ([0, 2], [])
    """
    letter = _STATUS_LETTERS.get(status, " ")
    return [index for index, entry in enumerate(notify.split(" ")) if letter in entry]
