"""What an installation has: the rest of the contract is refused by name, never in silence."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

NOT_HERE = "not in this installation yet"


def _nothing(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


def _no_problem(_url: str) -> str:
    return ""


class Features(NamedTuple):
    """`check_task` answers (field, problem) for a task by the rules of who would run it,
    `check_reach` for what a tenant may name.

    `check_url` answers why a URL cannot be called, or nothing.
    """

    task_types: frozenset[str] = frozenset({"event"})
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _nothing
    check_url: Callable[[str], str] = _no_problem
    check_reach: Callable[[str, Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None

    def of(self, tenant: str) -> "Features":
        """What this tenant may use of it."""
        reached = self.check_reach
        if reached is None:
            return self

        def check(task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
            return chain(self.check_task(task), reached(tenant, task))

        return self._replace(check_task=check, check_reach=None)
