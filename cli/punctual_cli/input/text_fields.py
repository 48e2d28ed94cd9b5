"""Parse the fields of a job as the command line writes them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from punctual_cli.errors import Trouble


def assigned(fields: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return the fields with each `field=value` applied. A value is JSON if it parses, else text.

    >>> assigned({"task": {"type": "http"}}, ["task.url=http://a", "max_retries=5", "tags.a=b"])
    {'task': {'type': 'http', 'url': 'http://a'}, 'max_retries': 5, 'tags': {'a': 'b'}}
    """
    found = dict(fields)
    for text in assignments:
        path, equals, value = text.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            raise Trouble(f"--set {text!r}: write field=value, such as task.url=https://….")
        _assign(found, parts, json_or_text(value), text)
    return found


def _assign(fields: dict[str, Any], parts: list[str], value: Any, text: str) -> None:
    first, *rest = parts
    if not rest:
        fields[first] = value
        return
    inner = fields.get(first)
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise Trouble(f"--set {text!r}: {first} holds no fields.")
    fields[first] = dict(inner)
    _assign(fields[first], rest, value, text)


def json_or_text(text: str) -> Any:
    """Return the JSON value of a text, or the text itself if it is not JSON.

    >>> json_or_text('[1]'), json_or_text('*/5 * * * *'), json_or_text('"5"')
    ([1], '*/5 * * * *', '5')
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def payload(text: str) -> Any:
    """Return the JSON of a text or of an @file. Any other text is an error."""
    source = _content(text[1:]) if text.startswith("@") else text
    try:
        return json.loads(source, parse_constant=_no_constant)
    except RecursionError as error:
        raise Trouble("The payload is nested too deep.") from error
    except ValueError as error:
        where = text[1:] if text.startswith("@") else "--payload"
        advice = "A text is JSON in quotes: --payload '\"hello\"'."
        raise Trouble(f"{where} is no JSON: {error}.", advice=advice) from error


def tags(pairs: Iterable[str], option: str = "--tag") -> dict[str, str]:
    """Return tags from `key=value` or `key:value` texts.

    >>> tags(["team=data", "env:prod"])
    {'team': 'data', 'env': 'prod'}
    """
    found = {}
    for text in pairs:
        cut = min((at for at in (text.find("="), text.find(":")) if at > 0), default=0)
        if not cut:
            raise Trouble(f"{option} {text!r}: write key=value.")
        found[text[:cut]] = text[cut + 1 :]
    return found


def webhooks(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return webhooks from `STATUS=URL` texts.

    >>> webhooks(["failed,TIMED_OUT=https://a/?b=c"])
    [{'on': ['FAILED', 'TIMED_OUT'], 'url': 'https://a/?b=c'}]
    """
    found = []
    for text in texts:
        on, equals, url = text.partition("=")
        if not equals or not on.strip() or not url:
            raise Trouble(f"--notify {text!r}: write STATUS=URL, such as FAILED=https://….")
        found.append({"on": [one.strip().upper() for one in on.split(",")], "url": url})
    return found


def _content(name: str) -> str:
    try:
        return Path(name).read_text()
    except UnicodeDecodeError as error:
        raise Trouble(f"{name} is no text in UTF-8.") from error
