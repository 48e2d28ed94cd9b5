"""Compute an item's size and its read and write units by AWS's documented rules.

Amazon DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "read and write operations".
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

WRITE_BYTES = 1_024
READ_BYTES = 4_096
CHUNK_BYTES = 65_536  # the billing unit of SQS and EventBridge
ITEM_OVERHEAD_BYTES = 100  # overhead of an item in storage, not in requests


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item in bytes.

    >>> item_bytes({"pk": {"S": "ab"}, "n": {"N": "100"}, "ok": {"BOOL": True}})
    10
    """
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(attribute: Mapping[str, Any]) -> int:
    """Return the size of a value. A list or map takes three bytes, plus one for each element.

    >>> value_bytes({"L": [{"S": "a"}, {"NULL": True}]})
    7
    >>> value_bytes({"M": {"k": {"S": "a"}}})
    6
    >>> value_bytes({"SS": ["a", "bc"]})
    3
    """
    ((kind, value),) = attribute.items()
    match kind:
        case "S":
            return len(value.encode())
        case "N":
            return number_bytes(value)
        case "B":
            return len(value)
        case "BOOL" | "NULL":
            return 1
        case "L":
            return 3 + sum(1 + value_bytes(element) for element in value)
        case "M":
            return 3 + sum(
                1 + len(name.encode()) + value_bytes(element) for name, element in value.items()
            )
        case "SS":
            return sum(len(element.encode()) for element in value)
        case "NS":
            return sum(number_bytes(element) for element in value)
        case "BS":
            return sum(len(element) for element in value)
    raise ValueError(f"{kind} is not a type of attribute")


def number_bytes(text: str) -> int:
    """Return the size of a number in bytes.

    A number takes one byte for two significant digits, one more, and one for a minus.

    >>> [number_bytes(text) for text in ("0", "7", "100", "-12", "1796990400", "1.5")]
    [1, 2, 2, 3, 5, 2]
    """
    sign, digits, _ = Decimal(text).normalize().as_tuple()
    if not any(digits):
        return 1
    return sign + 1 + -(-len(digits) // 2)


def write_units(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> int:
    """Return the write units of the larger image. A failed condition pays for the present row.

    >>> write_units(None, None), write_units({"a": {"S": "x" * 1024}}, {"a": {"S": "x"}})
    (1, 2)
    """
    largest = max(item_bytes(before or {}), item_bytes(after or {}))
    return max(1, -(-largest // WRITE_BYTES))


def read_units(sizes: Iterable[int], consistent: bool, per_item: bool) -> float:
    """Return the read units. `per_item` rounds up every item; a range is rounded up as a whole.

    >>> read_units([100, 5000], consistent=True, per_item=True)
    3.0
    >>> read_units([100, 5000], consistent=False, per_item=False)
    1.0
    >>> read_units([], consistent=True, per_item=False)
    1.0
    """
    if per_item:
        units = sum(max(1, -(-size // READ_BYTES)) for size in sizes)
    else:
        units = max(1, -(-sum(sizes) // READ_BYTES))
    return units * (1.0 if consistent else 0.5)


def chunks(size: int) -> int:
    """Return the number of billed chunks.

    >>> chunks(0), chunks(65_536), chunks(65_537)
    (1, 1, 2)
    """
    return max(1, -(-size // CHUNK_BYTES))
