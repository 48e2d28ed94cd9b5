"""The functions and queues that the `lambda` and `sqs` tasks of each tenant may name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from punctual.tasks.lambda_function import function_name
from punctual.tasks.placeholders import has_placeholders
from punctual.tasks.sqs import queue_name

REST = "*"
"""Stands for all tenants without an entry of their own."""

Names = Mapping[str, Sequence[str]]


class Reach(NamedTuple):
    """Allowed names by tenant. A name that ends with `*` is a prefix."""

    functions: Names
    queues: Names

    def allows_function(self, tenant: str, function: str) -> bool:
        return _allows(self.functions, tenant, function_name(function))

    def allows_queue(self, tenant: str, url: str) -> bool:
        return _allows(self.queues, tenant, queue_name(url))

    def problems(self, tenant: str, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield each field of a task that names a target outside of the tenant's reach.

        A name with a placeholder is not checked before the run fills it.
        """
        function, url = task.get("function", ""), task.get("queue_url", "")
        kind = task.get("type")
        if kind == "lambda" and _is_whole(function) and not self.allows_function(tenant, function):
            yield "function", NOT_REACHED
        if kind == "sqs" and _is_whole(url) and not self.allows_queue(tenant, url):
            yield "queue_url", NOT_REACHED


NOT_REACHED = "is not one that tasks of this tenant may reach (tasksMayReach)"


def _is_whole(value: Any) -> bool:
    return isinstance(value, str) and not has_placeholders(value)


def _allows(names: Names, tenant: str, name: str) -> bool:
    """
    >>> names = {"acme": ["orders"], "*": ["task-*"]}
    >>> _allows(names, "acme", "orders"), _allows(names, "acme", "task-a")
    (True, False)
    >>> _allows(names, "other", "task-a"), _allows({}, "other", "task-a")
    (True, False)
    """
    patterns = names[tenant] if tenant in names else names.get(REST, ())
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


def text_of(reach: Reach) -> str:
    """Return the reach as one line of JSON, for an environment variable of a function."""
    return msgspec.json.encode([dict(reach.functions), dict(reach.queues)]).decode()


def reach_of(text: str) -> Reach:
    """
    >>> reach_of(text_of(Reach({"*": ["a"]}, {}))).functions
    {'*': ['a']}
    """
    return Reach(*msgspec.json.decode(text, type=tuple[dict[str, list[str]], dict[str, list[str]]]))
