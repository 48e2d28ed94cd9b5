"""Classify the status codes of an `http` task: expected, retryable, or final."""

import re
from typing import Any

from punctual.tasks.contract import BadTask

ExpectedStatuses = tuple[tuple[int, int], ...]

DEFAULT_EXPECTED_STATUSES: ExpectedStatuses = ((200, 299),)
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_STATUS_RANGE = re.compile(r"([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")


def parse_expected(value: Any) -> ExpectedStatuses:
    """Return the ranges for a status, a range, or a list of them.

    >>> parse_expected([200, "300-399"]), parse_expected(404), parse_expected(None)
    (((200, 200), (300, 399)), ((404, 404),), ((200, 299),))
    """
    if value is None:
        return DEFAULT_EXPECTED_STATUSES
    items = value if isinstance(value, list | tuple) else [value]
    if not items:
        raise BadTask("expect_status must name at least one status")
    return tuple(_parse_range(item) for item in items)


def is_expected(status: int, expected: ExpectedStatuses) -> bool:
    return any(low <= status <= high for low, high in expected)


def is_retryable_status(status: int) -> bool:
    """Return True if a retry of the same request may succeed."""
    return not 400 <= status <= 499 or status in _RETRYABLE_STATUSES


def _parse_range(item: Any) -> tuple[int, int]:
    match = None if isinstance(item, bool) else _STATUS_RANGE.fullmatch(str(item))
    if match is None:
        raise BadTask(f'expect_status takes 100 to 599 or a range such as "200-299", not {item!r}')
    low = int(match[1])
    high = int(match[2] or low)
    if high < low:
        raise BadTask(f"expect_status has a range that ends before it begins: {item}")
    return low, high
