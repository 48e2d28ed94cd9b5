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
FILE_LIMIT_ERRORS = (errno.EMFILE, errno.ENFILE)
# Half a minute in total. Other attempts close files meanwhile.
RETRY_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 29)
NOT_BEGUN_MESSAGE = f"{os.strerror(errno.EMFILE)}: the attempt could not begin."
_FILE_LIMIT_TEXTS = tuple(os.strerror(number) for number in FILE_LIMIT_ERRORS)


class NotBegun(Exception):
    """The limit of open files was reached before the attempt started or sent anything."""

    def __init__(self) -> None:
        super().__init__(NOT_BEGUN_MESSAGE)


def is_file_limit(error: BaseException | None) -> bool:
    """Return True if the error or its cause is the limit of open files."""
    if error is None or isinstance(error, NotBegun):
        return error is not None
    causes = (error, error.__cause__)
    return any(isinstance(cause, OSError) and cause.errno in FILE_LIMIT_ERRORS for cause in causes)


def mentions_file_limit(text: str) -> bool:
    """Return True if the error text of a program names the limit of open files."""
    return any(limit_text in text for limit_text in _FILE_LIMIT_TEXTS)


@contextmanager
def not_begun_at_file_limit() -> Iterator[None]:
    """Convert an error about the limit of open files into `NotBegun`."""
    try:
        yield
    except Exception as error:
        if is_file_limit(error):
            raise NotBegun from error
        raise


def retry_not_begun(action: Callable[[], T], wait: Callable[[float], object]) -> T:
    """Return the action's result. Repeat it for half a minute while it raises `NotBegun`.

    `wait` sleeps the given seconds and returns True if the work must stop.
    """
    for pause in RETRY_PAUSE_SECONDS:
        try:
            return action()
        except NotBegun:
            if wait(pause):
                raise
    return action()


def retry_until_free(action: Callable[[], T], wait: Callable[[float], object] | None = None) -> T:
    """Return the action's result. Repeat it while no file can be opened.

    It serves attempts that have begun. Their result would be lost without the action.
    """
    wait = wait or threading.Event().wait
    pauses = chain(RETRY_PAUSE_SECONDS, repeat(RETRY_PAUSE_SECONDS[-1]))
    while True:
        try:
            return action()
        except Exception as error:
            if not is_file_limit(error):
                raise
        wait(next(pauses))
