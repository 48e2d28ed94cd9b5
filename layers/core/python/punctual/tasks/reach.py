"""The functions and queues that the `lambda` and `sqs` tasks of each tenant may name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from punctual.tasks.lambda_function import function_name
from punctual.tasks.placeholders import has_placeholders
from punctual.tasks.sqs import queue_name

ALL_OTHER_TENANTS = "*"
"""Stands for all tenants without an entry of their own."""

NamesByTenant = Mapping[str, Sequence[str]]


class AllowedTargets(NamedTuple):
    """Allowed names by tenant. A name that ends with `*` is a prefix."""

    functions: NamesByTenant
    queues: NamesByTenant

    def allows_function(self, tenant: str, function: str) -> bool:
        return _is_allowed(self.functions, tenant, function_name(function))

    def allows_queue(self, tenant: str, url: str) -> bool:
        return _is_allowed(self.queues, tenant, queue_name(url))

    def target_problems(self, tenant: str, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield each field of a task that names a target outside of the tenant's reach.

        A name with a placeholder is not checked before the run fills it.
        """
        function, url = task.get("function", ""), task.get("queue_url", "")
        kind = task.get("type")
        if (
            kind == "lambda"
            and _has_no_placeholder(function)
            and not self.allows_function(tenant, function)
        ):
            yield "function", TARGET_NOT_ALLOWED
        if kind == "sqs" and _has_no_placeholder(url) and not self.allows_queue(tenant, url):
            yield "queue_url", TARGET_NOT_ALLOWED


TARGET_NOT_ALLOWED = "is not one that tasks of this tenant may reach (tasksMayReach)"


def _has_no_placeholder(value: Any) -> bool:
    return isinstance(value, str) and not has_placeholders(value)


def _is_allowed(names: NamesByTenant, tenant: str, name: str) -> bool:
    """Return whether a tenant may name this target.

    >>> names = {"acme": ["orders"], "*": ["task-*"]}
    >>> _is_allowed(names, "acme", "orders"), _is_allowed(names, "acme", "task-a")
    (True, False)
    >>> _is_allowed(names, "other", "task-a"), _is_allowed({}, "other", "task-a")
    (True, False)
    """
    patterns = names[tenant] if tenant in names else names.get(ALL_OTHER_TENANTS, ())
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


def encode_targets(targets: AllowedTargets) -> str:
    """Return the targets as one line of JSON, for an environment variable of a function."""
    return msgspec.json.encode([dict(targets.functions), dict(targets.queues)]).decode()


def decode_targets(text: str) -> AllowedTargets:
    """Return the targets that `encode_targets` wrote.

    >>> decode_targets(encode_targets(AllowedTargets({"*": ["a"]}, {}))).functions
    {'*': ['a']}
    """
    return AllowedTargets(
        *msgspec.json.decode(text, type=tuple[dict[str, list[str]], dict[str, list[str]]])
    )
