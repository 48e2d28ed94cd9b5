"""What the tasks say about theirs before a job is taken: each wrong field and its fault."""

from collections.abc import Iterator, Mapping
from typing import Any

from punctual.tasks.contract import BadTask
from punctual.tasks.http_request import url_problem
from punctual.tasks.http_status import parse_expected
from punctual.tasks.limits import RESERVED_HEADERS
from punctual.tasks.placeholders import has_placeholders, problems


def task_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each wrong field of a task whose types are right, and what is wrong with it."""
    yield from problems(task)
    if task.get("type") == "http":
        yield from _http_problems(task)


def _http_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    url = task.get("url")
    # What a placeholder makes of a URL shows only when it is filled in.
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
            yield f"headers.{name}", "is Punctual's to set"
