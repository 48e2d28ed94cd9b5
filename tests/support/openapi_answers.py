"""Check answers against the OpenAPI document: status, headers and body."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "layers/core/python/punctual/web/openapi/openapi.json"
PROBLEM = "application/problem+json"
SCHEMAS = "#/components/schemas/"
_OPEN = ("OpenApi",)  # the document itself may have any field


@cache
def document() -> Any:
    return json.loads(DOCUMENT.read_text())


def operation_of(method: str, path: str) -> Any:
    """Return the operation of a call below the root, or None."""
    parts = [unquote(part) for part in path.split("/")]
    if len(parts) > 2 and not parts[-1]:
        parts.pop()
    for template in _templates():
        template_parts = template.split("/")
        if len(template_parts) == len(parts) and all(
            part and (template_part == part or template_part.startswith("{"))
            for template_part, part in zip(template_parts[1:], parts[1:], strict=True)
        ):
            named = "get" if method == "HEAD" else method.lower()
            return document()["paths"][template].get(named)
    return None


def check_sent(method: str, path: str, status: int, body: bytes) -> None:
    """Check that the document allows an accepted request.

    The document must not be narrower than the routes.
    """
    operation = operation_of(method, path)
    if status >= 300 or not body.strip() or operation is None or "requestBody" not in operation:
        return
    (content,) = operation["requestBody"]["content"].values()
    if operation["operationId"] != "createJobs":  # each item is accepted or rejected by itself
        name = content["schema"]["$ref"].removeprefix(SCHEMAS)
        _check_body(closed(name), body, f"{operation['operationId']} took")


def check(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Check an answer. `path` is below the root, and header names are in lower case."""
    operation = operation_of(method, path)
    if status == 500:
        _check_body(closed("Problem"), body, f"{method} {path}")
        return
    if operation is None:
        assert status >= 300 or method == "OPTIONS", f"{method} {path} is in no document: {status}"
        if status >= 400 and method != "HEAD":
            _check_body(closed("Problem"), body, f"{method} {path}")
        return
    label = f"{operation['operationId']} {status}"
    if status == 308 and path.endswith("/"):  # on AWS, a redirect to the exact address
        assert headers["location"].partition("?")[0].endswith(path.rstrip("/")), label
        return
    assert str(status) in operation["responses"], f"{label} is not in the document"
    answer = _resolved(operation["responses"][str(status)])
    for name, header in answer.get("headers", {}).items():
        _check_header(name, _resolved(header), headers, label)
    if method == "HEAD":
        return
    if "content" not in answer:
        assert body == b"", f"{label} has no body"
        return
    kind = headers.get("content-type", "").partition(";")[0]
    content = answer["content"].get(kind) or answer["content"].get("*/*")
    assert content is not None, f"{label} is {kind}, not {', '.join(answer['content'])}"
    if kind.endswith("json") and "$ref" in content["schema"]:
        _check_body(closed(content["schema"]["$ref"].removeprefix(SCHEMAS)), body, label)


@cache
def closed(name: str) -> Any:
    """Return a validator that allows only fields of the document."""
    components = json.loads(json.dumps(document()["components"]["schemas"]))
    for title, schema in components.items():
        if "properties" in schema and title not in _OPEN and "unevaluatedProperties" not in schema:
            schema.setdefault("additionalProperties", False)
    schema_document = {"$ref": SCHEMAS + name, "components": {"schemas": components}}
    return jsonschema_rs.Draft202012Validator(schema_document, validate_formats=True)


@cache
def _templates() -> list[str]:
    """Return the paths with the fewest names first, because an exact path takes precedence."""
    return sorted(document()["paths"], key=lambda path: path.count("{"))


def _resolved(value: Any) -> Any:
    while "$ref" in value:
        value_found = document()
        for part in value["$ref"].removeprefix("#/").split("/"):
            value_found = value_found[part]
        value = value_found
    return value


def _check_header(name: str, header: Any, headers: Mapping[str, str], label: str) -> None:
    value = headers.get(name.lower())
    assert value is not None, f"{label} lacks the header {name}"
    schema = header["schema"]
    if schema["type"] == "integer":
        assert value.isdecimal(), f"{label}: {name} is no number"
        assert int(value) >= schema.get("minimum", 0), f"{label}: {name} is {value}"
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), f"{label}: {name} is {value!r}"
    if "enum" in schema:
        assert value in schema["enum"], f"{label}: {name} is {value!r}"


def _check_body(validator: Any, body: bytes, label: str) -> None:
    for error in validator.iter_errors(json.loads(body)):
        raise AssertionError(f"{label}: {list(error.instance_path)}: {error.message[:500]}")
