"""Describe what an installation offers. A field that needs anything else is an error."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

NOT_INSTALLED = "not in this installation yet"


def _no_task_errors(_task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ()


def _no_url_error(_url: str) -> str:
    return ""


def _no_refusal(_tenant: str, _task_type: str) -> str:
    return ""


class Features(NamedTuple):
    """What an installation offers, and the rules of its executors.

    - `check_task` returns (field, message) pairs for a task by the rules of its executor.
    - `check_url` returns the reason why a URL cannot be called, or an empty string.
    - `check_allowed_target` returns (field, message) pairs for targets that a tenant may not use.
    - `node_paths` says whether scripts may name paths of the executor's machine.
    - `max_script_seconds` and `max_script_memory_mb` limit scripts further than the contract does.
      `script_limit_hint` says what raises these limits.
    - `refuse_task_type` returns the reason why a tenant may not use a task type, or an empty
      string.
    """

    task_types: frozenset[str] = frozenset({"event"})
    artifacts: bool = False
    secrets: bool = False
    check_task: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = _no_task_errors
    check_url: Callable[[str], str] = _no_url_error
    check_allowed_target: Callable[[str, Mapping[str, Any]], Iterable[tuple[str, str]]] | None = (
        None
    )
    refuse_task_type: Callable[[str, str], str] = _no_refusal
    tenant: str = ""  # the tenant of the call
    node_paths: bool = False
    max_script_seconds: int | None = None
    max_script_memory_mb: int | None = None
    script_limit_hint: str = ""

    def for_tenant(self, tenant: str) -> "Features":
        """Return what this tenant may use."""
        return self._replace(tenant=tenant)

    def refusal(self, task_type: str) -> str:
        """Return the reason why the tenant may not use this task type, or an empty string."""
        return self.refuse_task_type(self.tenant, task_type)

    def task_errors(self, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield (field, message) pairs for a task, and for a target that the tenant may not use."""
        yield from self.check_task(task)
        if self.check_allowed_target is not None:
            yield from self.check_allowed_target(self.tenant, task)
