"""Parse the fields of a job as the command line writes them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from punctual_cli.errors import CommandError


def apply_assignments(fields: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return the fields with each `field=value` applied. A value is JSON if it parses, else text.

    >>> apply_assignments({"task": {"type": "http"}}, ["task.url=http://a", "tags.a=b"])
    {'task': {'type': 'http', 'url': 'http://a'}, 'tags': {'a': 'b'}}
    >>> apply_assignments({}, ["max_retries=5"])
    {'max_retries': 5}
    """
    assigned_fields = dict(fields)
    for text in assignments:
        path, equals, value = text.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            raise CommandError(
                f"--set must be field=value, such as task.url=https://…; got {text!r}."
            )
        _assign(assigned_fields, parts, parse_json_or_text(value), text)
    return assigned_fields


def _assign(fields: dict[str, Any], parts: list[str], value: Any, text: str) -> None:
    name, *inner_parts = parts
    if not inner_parts:
        fields[name] = value
        return
    inner = fields.get(name)
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise CommandError(f"--set {text!r}: {name} is not an object.")
    fields[name] = dict(inner)
    _assign(fields[name], inner_parts, value, text)


def parse_json_or_text(text: str) -> Any:
    """Return the JSON value of a text, or the text itself if it is not JSON.

    >>> parse_json_or_text('[1]'), parse_json_or_text('*/5 * * * *'), parse_json_or_text('"5"')
    ([1], '*/5 * * * *', '5')
    """
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


def parse_payload(text: str) -> Any:
    """Return the JSON of a text or of an @file. Any other text is an error."""
    source = _read_content(text[1:]) if text.startswith("@") else text
    try:
        return json.loads(source, parse_constant=_reject_constant)
    except RecursionError as error:
        raise CommandError("The payload is nested too deeply.") from error
    except ValueError as error:
        location = text[1:] if text.startswith("@") else "--payload"
        advice = "Text must be a JSON string: --payload '\"hello\"'."
        raise CommandError(f"{location} is not valid JSON: {error}.", advice=advice) from error


def payload_option(text: str | None) -> dict[str, Any]:
    """Return the field of the option --payload, or no field without the option."""
    return {} if text is None else {"payload": parse_payload(text)}


def parse_tags(pairs: Iterable[str], option: str = "--tag") -> dict[str, str]:
    """Return tags from `key=value` or `key:value` texts.

    >>> parse_tags(["team=data", "env:prod"])
    {'team': 'data', 'env': 'prod'}
    """
    parsed = {}
    for text in pairs:
        separator = min(
            (index for index in (text.find("="), text.find(":")) if index > 0), default=0
        )
        if not separator:
            raise CommandError(f"{option} must be key=value; got {text!r}.")
        parsed[text[:separator]] = text[separator + 1 :]
    return parsed


def parse_webhooks(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return webhooks from `STATUS=URL` texts.

    >>> parse_webhooks(["failed,TIMED_OUT=https://a/?b=c"])
    [{'on': ['FAILED', 'TIMED_OUT'], 'url': 'https://a/?b=c'}]
    """
    parsed = []
    for text in texts:
        status_list, equals, url = text.partition("=")
        if not equals or not status_list.strip() or not url:
            raise CommandError(
                f"--notify must be STATUS=URL, such as FAILED=https://…; got {text!r}."
            )
        parsed.append(
            {"on": [status.strip().upper() for status in status_list.split(",")], "url": url}
        )
    return parsed


def _read_content(name: str) -> str:
    try:
        return Path(name).read_text()
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not valid UTF-8.") from error
