"""The features of the API contract that the node has."""

from collections.abc import Mapping

from punctual.tasks.http.request import url_problem
from punctual.tasks.script.sandbox import Sandbox
from punctual.tasks.validation import task_problems
from punctual.web.features import Features

NODE_FEATURES = Features(
    task_types=frozenset({"event", "http", "script"}),
    check_task=task_problems,
    check_url=url_problem,
)


def features_with(sandbox: Sandbox) -> Features:
    """Return the node's features, without scripts for the tenants that this sandbox refuses."""

    def refused_task_types(tenant: str) -> Mapping[str, str]:
        refusal = sandbox.refusal_reason(tenant)
        return {"script": refusal} if refusal else {}

    return NODE_FEATURES._replace(refused_task_types=refused_task_types)
