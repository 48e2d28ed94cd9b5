"""What an installation has: the rest of the contract is refused by name, never in silence."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

NOT_INSTALLED = "not in this installation yet"


def _nothing(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


def _no_problem(_url: str) -> str:
    return ""


def _none_refused(_tenant: str) -> Mapping[str, str]:
    return MappingProxyType({})


class Features(NamedTuple):
    """`check_task` answers (field, problem) for a task by the rules of who would run it,
    `check_reach` for what a tenant may name.

    `check_url` answers why a URL cannot be called, or nothing. `refused_to` answers the types of
    task that a tenant may not have, each with the reason.
    """

    task_types: frozenset[str] = frozenset({"event"})
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _nothing
    check_url: Callable[[str], str] = _no_problem
    check_allowed_target: Callable[[str, Mapping[str, Any]], Iterable[tuple[str, str]]] | None = (
        None
    )
    refused_task_types: Callable[[str], Mapping[str, str]] = _none_refused
    refused: Mapping[str, str] = MappingProxyType({})  # to the tenant of the call

    def of(self, tenant: str) -> "Features":
        """Return what this tenant may use of it."""
        refused, reached = self.refused_task_types(tenant), self.check_allowed_target
        if reached is None:
            return self._replace(refused=refused) if refused else self

        def check(task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
            return chain(self.check_task(task), reached(tenant, task))

        return self._replace(check_task=check, check_allowed_target=None, refused=refused)
