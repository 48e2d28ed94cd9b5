"""What an installation has: the rest of the contract is refused by name, never in silence."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

NOT_HERE = "not in this installation yet"


def _nothing(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


def _no_problem(_url: str) -> str:
    return ""


class Features(NamedTuple):
    """`check_task` answers (field, problem) for a task by the rules of who would run it.

    `check_url` answers why a URL cannot be called, or nothing.
    """

    task_types: frozenset[str] = frozenset({"event"})
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _nothing
    check_url: Callable[[str], str] = _no_problem
