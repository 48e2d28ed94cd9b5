"""How an operation goes on after slices that failed.

Each failure doubles the delay. The next slices have one item each. After more failures this item
is given up, so that one item never stops all others.
"""

from enum import Enum

MIN_RETRY_SECONDS, MAX_DOUBLINGS = 1.0, 5  # of the delay after a failed slice
MAX_ITEM_TRIES = 6  # failed slices, after which the item is given up


class NextSlice(Enum):
    FULL = "FULL"
    ONE_ITEM = "ONE_ITEM"
    GIVE_UP = "GIVE_UP"


def next_slice(failed_tries: int) -> NextSlice:
    """Return what comes after so many slices that failed since one worked.

    >>> next_slice(0), next_slice(MAX_ITEM_TRIES)
    (<NextSlice.FULL: 'FULL'>, <NextSlice.GIVE_UP: 'GIVE_UP'>)
    """
    if failed_tries >= MAX_ITEM_TRIES:
        return NextSlice.GIVE_UP
    return NextSlice.ONE_ITEM if failed_tries else NextSlice.FULL


def retry_delay_seconds(failed_tries: int) -> float:
    """Return the delay after the latest of so many failures.

    >>> [retry_delay_seconds(tries) for tries in (1, 2, 6, 9)]
    [1.0, 2.0, 32.0, 32.0]
    """
    return MIN_RETRY_SECONDS * 2.0 ** min(failed_tries - 1, MAX_DOUBLINGS)
