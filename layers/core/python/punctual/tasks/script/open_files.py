"""What to do when the process, or the system, may open no more files.

Before an attempt has begun it is given up as `NotBegun`: it is no attempt, and the run waits. After
that the action that lacks a file is repeated until one can be opened.
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
# Half a minute in all: files of others close meanwhile.
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 29)
NO_MORE = f"{os.strerror(errno.EMFILE)}: the attempt could not begin."
_SAID = tuple(os.strerror(number) for number in FULL)


class NotBegun(Exception):
    """No file could be opened before the attempt began: nothing of it was started or sent."""

    def __init__(self) -> None:
        super().__init__(NO_MORE)


def is_full(error: BaseException | None) -> bool:
    """Return whether this, or what caused it, is that no more files may be opened."""
    if error is None or isinstance(error, NotBegun):
        return error is not None
    both = (error, error.__cause__)
    return any(isinstance(one, OSError) and one.errno in FULL for one in both)


def says_full(text: str) -> bool:
    """Return whether a program that could not start says that no more files may be opened."""
    return any(said in text for said in _SAID)


@contextmanager
def beginning() -> Iterator[None]:
    """Raise `NotBegun` where no file can be opened inside: the attempt has not begun there."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise NotBegun from error
        raise


def retried(action: Callable[[], T], wait: Callable[[float], object]) -> T:
    """Return the action's result; repeat it for half a minute while it raises `NotBegun`.

    `wait` waits so many seconds and returns whether the work is to stop instead.
    """
    for pause in PAUSES:
        try:
            return action()
        except NotBegun:
            if wait(pause):
                raise
    return action()


def until_free(action: Callable[[], T], wait: Callable[[float], object] | None = None) -> T:
    """Return the action's result; repeat it for as long as no file can be opened.

    For what an attempt that has begun still needs: without it, its result would be lost.
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
