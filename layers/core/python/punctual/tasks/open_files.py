"""What to do when the process, or the system, may open no more files: wait, and try again."""

import errno
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
FULL = (errno.EMFILE, errno.ENFILE)
# Half a minute in all: files of others close meanwhile.
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 29)
NO_MORE = f"{os.strerror(errno.EMFILE)}: the attempt could not begin."


def is_full(error: BaseException) -> bool:
    """Whether this, or what caused it, is that no more files may be opened."""
    both = (error, error.__cause__)
    return any(isinstance(one, OSError) and one.errno in FULL for one in both)


def retried(action: Callable[[], T], wait: Callable[[float], object]) -> T:
    """Do it, again and again while no file can be opened; the last error is raised.

    `wait` waits so many seconds and answers whether the work is to stop instead.
    """
    for pause in PAUSES:
        try:
            return action()
        except Exception as error:
            if not is_full(error) or wait(pause):
                raise
    return action()
