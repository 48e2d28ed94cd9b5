"""Builders for the `task` field of a job."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET

from punctual.client.fields import Task

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Runtime = Literal["python", "node", "bash", "binary"]


def event(detail_type: str | None = None) -> Task:
    """Return a task that publishes the payload as an event.

    >>> event("Nightly")
    {'type': 'event', 'detail_type': 'Nightly'}
    """
    return _make_task("event", detail_type=detail_type)


def http(
    url: str,
    *,
    method: Method | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = UNSET,
    expect_status: Any = None,
    follow_redirects: int | None = None,
) -> Task:
    """Return a task that calls a URL. Without a body it sends the payload as JSON.

    >>> http("https://example.com/hook", method="PUT")
    {'type': 'http', 'url': 'https://example.com/hook', 'method': 'PUT'}
    """
    task = _make_task(
        "http",
        url=url,
        method=method,
        headers=headers,
        expect_status=expect_status,
        follow_redirects=follow_redirects,
    )
    return task if body is UNSET else {**task, "body": body}


def invoke(function: str) -> Task:
    """Return a task that invokes a Lambda function with the payload."""
    return _make_task("lambda", function=function)


def queue(queue_url: str) -> Task:
    """Return a task that sends the payload to an SQS queue."""
    return _make_task("sqs", queue_url=queue_url)


def script(
    code: str | None = None,
    *,
    runtime: Runtime = "python",
    artifact_id: str | None = None,
    interpreter: str | None = None,
    working_directory: str | None = None,
    args: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, float] | None = None,
) -> Task:
    """Return a task that runs code in a sandbox. The payload is on its standard input.

    >>> script("print(1)")
    {'type': 'script', 'runtime': 'python', 'code': 'print(1)'}

    A node also runs a program of its own machine. Then `args` may be the whole command line.

    >>> script(interpreter="/srv/app/venv/bin/python", args=["-m", "mypackage"])["args"]
    ['-m', 'mypackage']
    """
    return _make_task(
        "script",
        runtime=runtime,
        code=code,
        artifact_id=artifact_id,
        interpreter=interpreter,
        working_directory=working_directory,
        args=args,
        env=env,
        resources=resources,
    )


def container(
    image: str,
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, float] | None = None,
) -> Task:
    """Return a task that runs an image on Fargate."""
    return _make_task("container", image=image, command=command, env=env, resources=resources)


def _make_task(task_type: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": task_type,
        **{name: value for name, value in fields.items() if value is not None},
    }
