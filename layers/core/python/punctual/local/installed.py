"""What the node has of the contract."""

from punctual.tasks.http_request import url_problem
from punctual.tasks.rules import task_problems
from punctual.web.features import Features

FEATURES = Features(
    task_types=frozenset({"event", "http", "script"}),
    check_task=task_problems,
    check_url=url_problem,
)
