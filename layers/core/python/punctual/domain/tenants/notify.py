"""The statuses for which each entry of a job's `notify` sends a notification.

The job state holds them as letters, so the end of a run needs no read of the definition.
"""

from collections.abc import Iterable

from punctual.domain.run import RunStatus

_LETTERS = {
    RunStatus.SUCCESS: "S",
    RunStatus.FAILED: "F",
    RunStatus.TIMED_OUT: "T",
    RunStatus.CANCELLED: "C",
    RunStatus.SKIPPED: "K",
    RunStatus.MISSED: "M",
}


def letters(entries: Iterable[Iterable[str]]) -> str:
    """Return the statuses of the entries as letters for the job state, in the same order.

    >>> letters([["FAILED", "TIMED_OUT"], ["SUCCESS"]]), letters([])
    ('FT S', '')
    """
    return " ".join("".join(_LETTERS[RunStatus(one)] for one in entry) for entry in entries)


def told_of(notify: str, status: RunStatus) -> list[int]:
    """Return the indexes of the entries that report `status`.

    >>> told_of("FT S TM", RunStatus.TIMED_OUT), told_of("", RunStatus.FAILED)
    ([0, 2], [])
    """
    letter = _LETTERS.get(status, " ")
    return [place for place, entry in enumerate(notify.split(" ")) if letter in entry]
