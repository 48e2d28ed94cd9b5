"""Describe what an installation offers. A field that needs anything else is an error."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

NOT_INSTALLED = "not in this installation yet"


def _no_task_errors(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


def _no_url_error(_url: str) -> str:
    return ""


def _all_task_types_allowed(_tenant: str) -> Mapping[str, str]:
    return MappingProxyType({})


class Features(NamedTuple):
    """What an installation offers, and the rules of its executors.

    - `check_task` returns (field, message) pairs for a task by the rules of its executor.
    - `check_url` returns the reason why a URL cannot be called, or an empty string.
    - `check_allowed_target` returns (field, message) pairs for targets that a tenant may not use.
    - `refused_task_types` returns the task types that a tenant may not use, with reasons.
    """

    task_types: frozenset[str] = frozenset({"event"})
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _no_task_errors
    check_url: Callable[[str], str] = _no_url_error
    check_allowed_target: Callable[[str, Mapping[str, Any]], Iterable[tuple[str, str]]] | None = (
        None
    )
    refused_task_types: Callable[[str], Mapping[str, str]] = _all_task_types_allowed
    refused_types: Mapping[str, str] = MappingProxyType({})  # to the tenant of the call

    def for_tenant(self, tenant: str) -> "Features":
        """Return what this tenant may use."""
        refused_types, check_target = self.refused_task_types(tenant), self.check_allowed_target
        if check_target is None:
            return self._replace(refused_types=refused_types) if refused_types else self

        def check(task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
            return chain(self.check_task(task), check_target(tenant, task))

        return self._replace(
            check_task=check, check_allowed_target=None, refused_types=refused_types
        )
