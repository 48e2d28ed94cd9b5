"""Write the document as a Markdown page for people, grouped by tag."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from punctual.web.openapi.document import recorded_examples
from punctual.web.openapi.error_responses import ERROR_NAMES
from punctual.web.openapi.operation import Schema
from punctual.web.openapi.schemas import REF

_MAX_REPEATED_LINES = 14
HTTP_METHODS_IN_ORDER = ("post", "get", "patch", "put", "delete")


def build_reference(document: Schema) -> str:
    return "\n".join(_page(document)).rstrip() + "\n"


def _page(document: Schema) -> Iterator[str]:
    yield "# The API, call by call"
    yield ""
    yield "<!-- `make openapi` writes this page from the models. Do not edit it. -->"
    yield ""
    yield document["info"]["description"]
    yield ""
    yield "The OpenAPI 3.1 document is [`openapi.json`](../openapi.json), at `/v1/openapi.json`."
    yield ""
    shown_types: set[str] = set()
    for tag in document["tags"]:
        calls = list(_calls(document, tag["name"]))
        if calls:
            yield from ("", f"## {tag['name']}", "", tag["description"], "")
            for method, path, operation in calls:
                yield from _call(method, path, operation, shown_types)
    yield from _schemas(document)
    yield from _errors(document)


def _calls(document: Schema, tag: str) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method in HTTP_METHODS_IN_ORDER:
            if method in methods and tag in methods[method]["tags"]:
                yield method.upper(), path, methods[method]


def _call(method: str, path: str, operation: Schema, shown_types: set[str]) -> Iterator[str]:
    yield from (f"### {method} {path}", "")
    yield f"{operation['summary']}. {operation['description']} (`{operation['operationId']}`)"
    yield ""
    if operation.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for parameter in operation["parameters"]:
            name = f"`{parameter['name']}`" + (" (required)" if parameter["required"] else "")
            kind, text = _kind(parameter["schema"]), _cell(parameter["description"])
            yield f"| {name} | {parameter['in']} | {kind} | {text} |"
        yield ""
    body = operation.get("requestBody")
    if body is not None:
        kind = _kind(body["content"]["application/json"]["schema"])
        yield from (f"Body{'' if body['required'] else ' (optional)'}: {kind}", "")
    yield from _answers(operation)
    yield from _examples(operation, shown_types)


def _answers(operation: Schema) -> Iterator[str]:
    error_statuses = []
    yield from ("| status | answers |", "|---|---|")
    for status, answer in operation["responses"].items():
        if "$ref" in answer:
            error_statuses.append(status)
            continue
        kinds = [
            media if media != "application/json" else _kind(content["schema"])
            for media, content in answer.get("content", {}).items()
        ]
        headers = [f"`{name}`" for name in answer["headers"] if name != "X-Request-Id"]
        parts = [answer["description"], *(f"{kind}." for kind in kinds)]
        if headers:
            parts.append(f"Headers: {', '.join(headers)}.")
        yield f"| {status} | {_cell(' '.join(parts))} |"
    yield f"| {', '.join(error_statuses)} | [errors](#errors) |"
    yield ""


def _examples(operation: Schema, shown_types: set[str]) -> Iterator[str]:
    """Yield the examples. A long answer of one type is shown once on the page."""
    for name, example in recorded_examples().get(operation["operationId"], {}).items():
        yield from (f"Example, {name.replace('_', ' ')}:", "", "```http", example["target"])
        yield from (f"{header.title()}: {value}" for header, value in _headers(example))
        if "body" in example:
            yield from ("Content-Type: application/json", "", _json(example["body"]))
        yield from ("```", "")
        yield from _example_answer(operation, example, shown_types)


def _headers(example: Schema) -> Iterable[tuple[str, str]]:
    headers: Schema = example.get("headers", {})
    return headers.items()


def _example_answer(operation: Schema, example: Schema, shown_types: set[str]) -> Iterator[str]:
    response = operation["responses"][str(example["status"])]
    if "content" not in response:
        yield from (f"Answer, {example['status']}, without a body.", "")
        return
    media, content = next(iter(response["content"].items()))
    is_json = media.endswith("json")
    text = _json(example["answer"]) if is_json else example["answer"].rstrip("\n")
    kind = content["schema"].get("$ref", "")
    is_read = operation["operationId"].startswith("get")
    if kind in shown_types and text.count("\n") > _MAX_REPEATED_LINES and not is_read:
        yield from (f"Answer, {example['status']}: {_kind(content['schema'])}, as above.", "")
        return
    shown_types.add(kind)
    yield from (f"Answer, {example['status']}:", "", "```json" if is_json else "```text", text)
    yield from ("```", "")


def _schemas(document: Schema) -> Iterator[str]:
    yield from ("", "## Schemas", "")
    for name, schema in document["components"]["schemas"].items():
        yield from (f"### {name}", "")
        if "description" in schema:
            yield from (schema["description"], "")
        if "oneOf" in schema:
            yield from (
                "One of " + ", ".join(_kind(choice) for choice in schema["oneOf"]) + ".",
                "",
            )
        elif "enum" in schema:
            yield from (_kind(schema), "")
        if "properties" in schema:
            yield from ("| field | type | meaning |", "|---|---|---|")
            for field, inner in schema["properties"].items():
                required = " (required)" if field in schema.get("required", ()) else ""
                meaning = _cell(inner.get("description", ""))
                yield f"| `{field}`{required} | {_kind(inner)} | {meaning} |"
            yield ""


def _errors(document: Schema) -> Iterator[str]:
    yield from ("", "## Errors", "")
    yield "Each error is a [`Problem`](#problem) as `application/problem+json`."
    yield from ("", "| status | name | meaning | headers |", "|---|---|---|---|")
    responses = document["components"]["responses"]
    for status, name in ERROR_NAMES.items():
        response = responses[name]
        headers = ", ".join(f"`{key}`" for key in response["headers"] if key != "X-Request-Id")
        yield f"| {status} | {name} | {_cell(response['description'])} | {headers} |"


def _kind(schema: Schema) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and "properties" not in schema:
        return " or ".join(_kind(choice) for choice in choices)
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    types = schema.get("type", "any JSON")
    text = " or ".join(types) if isinstance(types, list) else str(types)
    if schema.get("items"):
        text = text.replace("array", f"list of {_kind(schema['items'])}")
    return text.replace("array", "list") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None:
        return f", at least {low:,}"
    for name, unit in (("maxLength", "characters"), ("maxItems", "entries")):
        if name in schema:
            return f", at most {schema[name]:,} {unit}"
    return f", {schema['format']}" if "format" in schema else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
