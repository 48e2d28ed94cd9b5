"""Who is told of a run's end: for which statuses each entry of a job's `notify` is.

The head keeps this in a few letters, so that whoever ends a run need not read the definition.
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
    """What the head keeps of some entries' statuses, in the entries' order.

    >>> letters([["FAILED", "TIMED_OUT"], ["SUCCESS"]]), letters([])
    ('FT S', '')
    """
    return " ".join("".join(_LETTERS[RunStatus(one)] for one in entry) for entry in entries)


def told_of(notify: str, status: RunStatus) -> list[int]:
    """The entries that are for a status, by their place.

    >>> told_of("FT S TM", RunStatus.TIMED_OUT), told_of("", RunStatus.FAILED)
    ([0, 2], [])
    """
    letter = _LETTERS.get(status, " ")
    return [place for place, entry in enumerate(notify.split(" ")) if letter in entry]
