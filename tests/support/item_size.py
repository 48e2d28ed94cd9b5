"""The size of a row as DynamoDB bills it."""

from collections.abc import Mapping
from typing import Any

from punctual.aws.dynamodb.attributes import Attribute


def item_size(item: Mapping[str, Attribute]) -> int:
    """Return the bytes of a row: its names, its values, and the overhead of lists and maps.

    >>> item_size({"pk": {"S": "ab"}, "n": {"N": "123"}, "l": {"L": [{"BOOL": True}]}})
    14
    """
    return sum(len(name.encode()) + _weight(value) for name, value in item.items())


def _weight(attribute: Attribute) -> int:
    kind: str
    value: Any
    ((kind, value),) = attribute.items()
    match kind:
        case "S":
            return len(value.encode())
        case "B":
            return len(value)
        case "N":
            # One byte for two digits, and one more. A sign costs one.
            digits = len(value.strip("-").replace(".", "").strip("0")) or 1
            return (digits + 1) // 2 + 1 + int(value.startswith("-"))
        case "L":
            return 3 + sum(1 + _weight(part) for part in value)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _weight(part) for name, part in value.items())
    return 1
