"""The document once more, for people: a page of Markdown, call by call, grouped by noun."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from punctual.web.openapi.document import recorded_examples
from punctual.web.openapi.refusals import ERROR_NAMES

Schema = dict[str, Any]
REF = "#/components/schemas/"
_MAX_REPEATED_LINES = 14  # lines
HTTP_METHODS_IN_ORDER = ("post", "get", "patch", "put", "delete")


def build_reference(document: Schema) -> str:
    return "\n".join(_page(document)).rstrip() + "\n"


def _page(document: Schema) -> Iterator[str]:
    yield "# The API, call by call"
    yield ""
    yield "<!-- Made by `make openapi` from what the routes check by: change that, not this. -->"
    yield ""
    yield document["info"]["description"]
    yield ""
    yield "As OpenAPI 3.1: [`openapi.json`](../openapi.json), served as `/v1/openapi.json`."
    yield ""
    seen: set[str] = set()
    for tag in document["tags"]:
        calls = list(_calls(document, tag["name"]))
        if calls:
            yield from ("", f"## {tag['name']}", "", tag["description"], "")
            for method, path, operation in calls:
                yield from _call(method, path, operation, seen)
    yield from _bodies(document)
    yield from _refusals(document)


def _calls(document: Schema, noun: str) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method in HTTP_METHODS_IN_ORDER:
            if method in methods and noun in methods[method]["tags"]:
                yield method.upper(), path, methods[method]


def _call(method: str, path: str, operation: Schema, seen: set[str]) -> Iterator[str]:
    yield from (f"### {method} {path}", "")
    yield f"{operation['summary']}. {operation['description']} (`{operation['operationId']}`)"
    yield ""
    if operation.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for one in operation["parameters"]:
            name = f"`{one['name']}`" + (" (required)" if one["required"] else "")
            kind = _kind(one["schema"])
            yield f"| {name} | {one['in']} | {kind} | {_cell(one['description'])} |"
        yield ""
    body = operation.get("requestBody")
    if body is not None:
        what = _kind(body["content"]["application/json"]["schema"])
        yield from (f"Body{'' if body['required'] else ', may be left out'}: {what}", "")
    yield from _answers(operation)
    yield from _examples(operation, seen)


def _answers(operation: Schema) -> Iterator[str]:
    refused = []
    yield from ("| status | answers |", "|---|---|")
    for status, answer in operation["responses"].items():
        if "$ref" in answer:
            refused.append(status)
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
    yield f"| {', '.join(refused)} | [refused](#refusals) |"
    yield ""


def _examples(operation: Schema, seen: set[str]) -> Iterator[str]:
    """What the tests send; a long answer of one kind is shown once on the page."""
    for name, one in recorded_examples().get(operation["operationId"], {}).items():
        yield from (f"Example, {name.replace('_', ' ')}:", "", "```http", one["target"])
        yield from (f"{header.title()}: {value}" for header, value in _headers(one))
        if "body" in one:
            yield from ("Content-Type: application/json", "", _json(one["body"]))
        yield from ("```", "")
        yield from _example_answer(operation, one, seen)


def _headers(one: Schema) -> Iterable[tuple[str, str]]:
    headers: Schema = one.get("headers", {})
    return headers.items()


def _example_answer(operation: Schema, one: Schema, seen: set[str]) -> Iterator[str]:
    media, content = next(iter(operation["responses"][str(one["status"])]["content"].items()))
    is_json = media.endswith("json")
    text = _json(one["answer"]) if is_json else one["answer"].rstrip("\n")
    kind = content["schema"].get("$ref", "")
    is_what_it_is_for = operation["operationId"].startswith("get")
    if kind in seen and text.count("\n") > _MAX_REPEATED_LINES and not is_what_it_is_for:
        yield from (f"Answer, {one['status']}: {_kind(content['schema'])}, as above.", "")
        return
    seen.add(kind)
    yield from (f"Answer, {one['status']}:", "", "```json" if is_json else "```text", text)
    yield from ("```", "")


def _bodies(document: Schema) -> Iterator[str]:
    yield from ("", "## Schemas", "")
    for name, schema in document["components"]["schemas"].items():
        yield from (f"### {name}", "")
        if "description" in schema:
            yield from (schema["description"], "")
        if "oneOf" in schema:
            yield from ("One of " + ", ".join(_kind(one) for one in schema["oneOf"]) + ".", "")
        elif "enum" in schema:
            yield from (_kind(schema), "")
        if "properties" in schema:
            yield from ("| field | type | meaning |", "|---|---|---|")
            for field, inner in schema["properties"].items():
                must = " (required)" if field in schema.get("required", ()) else ""
                meaning = _cell(inner.get("description", ""))
                yield f"| `{field}`{must} | {_kind(inner)} | {meaning} |"
            yield ""


def _refusals(document: Schema) -> Iterator[str]:
    yield from ("", "## Refusals", "")
    yield "Each is a [`Problem`](#problem) as `application/problem+json`."
    yield from ("", "| status | name | meaning | headers |", "|---|---|---|---|")
    named = document["components"]["responses"]
    for status, name in ERROR_NAMES.items():
        headers = ", ".join(f"`{one}`" for one in named[name]["headers"] if one != "X-Request-Id")
        yield f"| {status} | {name} | {_cell(named[name]['description'])} | {headers} |"


def _kind(schema: Schema) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    either = schema.get("anyOf") or schema.get("oneOf")
    if either and "properties" not in schema:
        return " or ".join(_kind(one) for one in either)
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one).strip(chr(34))}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kinds = schema.get("type", "any JSON")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if schema.get("items"):
        text = text.replace("array", f"list of {_kind(schema['items'])}")
    return text.replace("array", "list") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None:
        return f", from {low:,}"
    for name, what in (("maxLength", "characters"), ("maxItems", "entries")):
        if name in schema:
            return f", to {schema[name]:,} {what}"
    return f", {schema['format']}" if "format" in schema else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
