"""Conversion between Python values and DynamoDB attributes."""

from collections.abc import Mapping
from typing import Any

Attribute = Mapping[str, Any]
Item = dict[str, Any]


def to_attribute(value: Any) -> dict[str, Any]:
    """Return the DynamoDB attribute for a value.

    >>> to_attribute({"a": [1, 2.5, "x", None, True]})
    {'M': {'a': {'L': [{'N': '1'}, {'N': '2.5'}, {'S': 'x'}, {'NULL': True}, {'BOOL': True}]}}}
    """
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case float():
            return {"N": repr(value)}
        case bytes():
            return {"B": value}
        case list() | tuple():
            return {"L": [to_attribute(part) for part in value]}
        case dict():
            return {"M": {str(name): to_attribute(part) for name, part in value.items()}}
    raise TypeError(f"no attribute for a {type(value).__name__}")


def from_attribute(attribute: Attribute) -> Any:
    """Return the Python value of a DynamoDB attribute.

    >>> from_attribute({"M": {"a": {"L": [{"N": "1"}, {"N": "2.5"}]}}})
    {'a': [1, 2.5]}
    """
    ((kind, value),) = attribute.items()
    match kind:
        case "NULL":
            return None
        case "N":
            return int(value) if value.lstrip("-").isdigit() else float(value)
        case "L":
            return [from_attribute(part) for part in value]
        case "M":
            return {name: from_attribute(part) for name, part in value.items()}
    return value


def to_item(values: Mapping[str, Any]) -> Item:
    return {name: to_attribute(value) for name, value in values.items()}


def from_item(item: Mapping[str, Attribute]) -> dict[str, Any]:
    return {name: from_attribute(attribute) for name, attribute in item.items()}
