"""Validate the tasks of a job before the job is accepted."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from punctual.tasks.container.sizes import MAX_FARGATE_VCPU
from punctual.tasks.container.validation import container_problems, script_problems
from punctual.tasks.contract import BadTask
from punctual.tasks.event import detail_type_problem
from punctual.tasks.http.request import url_problem
from punctual.tasks.http.status import parse_expected
from punctual.tasks.lambda_function import function_problem
from punctual.tasks.limits import RESERVED_HEADERS
from punctual.tasks.placeholders import has_placeholders, placeholder_problems
from punctual.tasks.sqs import queue_problem


def task_problems(
    task: Mapping[str, Any],
    max_container_vcpu: float = MAX_FARGATE_VCPU,
    container_scripts: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yield each invalid field of a task and its problem. The types must be valid already.

    `max_container_vcpu` are the processors of all containers of the installation. With
    `container_scripts` a script that is too large for a function must fit into a container.
    """
    yield from placeholder_problems(task)
    kind = task.get("type")
    if kind == "http":
        yield from _http_problems(task)
    elif kind == "event":
        yield from _check_plain_value(task, "detail_type", detail_type_problem)
    elif kind == "lambda":
        yield from _check_plain_value(task, "function", function_problem)
    elif kind == "container":
        yield from container_problems(task, max_container_vcpu)
    elif kind == "script" and container_scripts:
        yield from script_problems(task, max_container_vcpu)
    elif kind == "sqs":
        yield from _check_plain_value(task, "queue_url", queue_problem)


def _check_plain_value(
    task: Mapping[str, Any], field: str, problem_of: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    value = task.get(field)
    if isinstance(value, str) and not has_placeholders(value):
        problem = problem_of(value)
        if problem:
            yield field, problem


def _http_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    url = task.get("url")
    # A URL with placeholders is not checked before the run fills it.
    if url is not None and not has_placeholders(url):
        problem = url_problem(url)
        if problem:
            yield "url", problem
    expected = task.get("expect_status")
    if expected is not None and not has_placeholders(expected):
        try:
            parse_expected(expected)
        except BadTask as error:
            yield "expect_status", str(error)
    for name in task.get("headers") or {}:
        if name.lower() in RESERVED_HEADERS:
            yield f"headers.{name}", "is set by Punctual: leave it out"
