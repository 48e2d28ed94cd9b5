"""Handle the limit of open files of the process and of the system.

Before the attempt begins, `NotBegun` ends it. It then does not count as an attempt, and the run
waits. After it has begun, the action is repeated until a file can be opened.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import TypeVar

T = TypeVar("T")
FULL = (errno.EMFILE, errno.ENFILE)
# Half a minute in total. Other attempts close files meanwhile.
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 29)
NO_MORE = f"{os.strerror(errno.EMFILE)}: the attempt could not begin."
_SAID = tuple(os.strerror(number) for number in FULL)


class NotBegun(Exception):
    """The limit of open files was reached before the attempt started or sent anything."""

    def __init__(self) -> None:
        super().__init__(NO_MORE)


def is_full(error: BaseException | None) -> bool:
    """Return True if the error or its cause is the limit of open files."""
    if error is None or isinstance(error, NotBegun):
        return error is not None
    both = (error, error.__cause__)
    return any(isinstance(one, OSError) and one.errno in FULL for one in both)


def says_full(text: str) -> bool:
    """Return True if the error text of a program names the limit of open files."""
    return any(said in text for said in _SAID)


@contextmanager
def beginning() -> Iterator[None]:
    """Convert an error about the limit of open files into `NotBegun`."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise NotBegun from error
        raise


def retried(action: Callable[[], T], wait: Callable[[float], object]) -> T:
    """Return the action's result. Repeat it for half a minute while it raises `NotBegun`.

    `wait` sleeps the given seconds and returns True if the work must stop.
    """
    for pause in PAUSES:
        try:
            return action()
        except NotBegun:
            if wait(pause):
                raise
    return action()


def until_free(action: Callable[[], T], wait: Callable[[float], object] | None = None) -> T:
    """Return the action's result. Repeat it while no file can be opened.

    It serves attempts that have begun. Their result would be lost without the action.
    """
    wait = wait or threading.Event().wait
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            return action()
        except Exception as error:
            if not is_full(error):
                raise
        wait(next(pauses))
