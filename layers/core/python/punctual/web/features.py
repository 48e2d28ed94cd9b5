"""What an installation has: the rest of the contract is refused by name, never in silence."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

NOT_HERE = "not in this installation yet"


def _nothing(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


class Features(NamedTuple):
    """`check_task` answers (field, problem) for a task by the rules of who would run it."""

    task_types: frozenset[str] = frozenset({"event"})
    notify: bool = False
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _nothing
