"""The features of the API contract that the node has."""

from collections.abc import Iterator, Mapping
from typing import Any

from punctual.tasks.http.request import url_problem
from punctual.tasks.limits import memory_problems
from punctual.tasks.script.local_paths import path_problems
from punctual.tasks.script.sandbox import Sandbox
from punctual.tasks.validation import task_problems
from punctual.web.features import Features

NODE_FEATURES = Features(
    task_types=frozenset({"event", "http", "script"}),
    secrets=True,
    artifacts=True,
    check_task=task_problems,
    check_url=url_problem,
    node_paths=True,
)


def features_with(sandbox: Sandbox, script_memory_mb: int) -> Features:
    """Return the node's features, without scripts for the tenants that this sandbox refuses.

    A script must fit into `script_memory_mb`.
    """

    def refuse_task_type(tenant: str, task_type: str) -> str:
        return sandbox.refusal_reason(tenant) if task_type == "script" else ""

    def script_problems(tenant: str, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from path_problems(sandbox, tenant, task)
        yield from memory_problems(task, script_memory_mb)

    return NODE_FEATURES._replace(
        refuse_task_type=refuse_task_type, check_allowed_target=script_problems
    )
