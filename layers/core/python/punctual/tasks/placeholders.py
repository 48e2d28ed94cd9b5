"""Find and fill the placeholders of a task. A filled value is not searched again."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from punctual.domain.timestamps import format_time
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.text import as_text

FindSecret = Callable[[str, str], str]  # by tenant and name; KeyError if it is missing

NOT_EXPANDED = frozenset(
    {"type", "runtime", "code", "artifact_id", "interpreter", "working_directory"}
)
# A task may repeat `{{payload}}`, and ten attempts share the memory of one executor.
MAX_FILLED_CHARACTERS = 4 * 1024 * 1024
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s](?:[^{}]*[^{}\s])?)\s*\}\}")
_URL_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]+[/?#]")  # scheme, host, separator
_SECRET_NAME = re.compile(r"[A-Za-z0-9/_+=.@:-]{1,512}")
_PLAIN_PLACEHOLDERS = ("run_id", "scheduled_time", "attempt", "job_id", "payload")


class SecretMissing(BadTask):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no secret named {name!r}")


def no_secrets(_tenant: str, name: str) -> str:
    """Raise SecretMissing. It is the secret lookup of an installation without secrets."""
    raise SecretMissing(name)


def has_placeholders(value: Any) -> bool:
    """Return True if the value contains a placeholder."""
    return any(_PLACEHOLDER.search(text) for _, text in _strings("", value))


def placeholder_problems(task: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return each field with a placeholder that no run can fill, and the reason."""
    unknown = tuple(
        (field, f"{{{{{match[1]}}}}} is not a placeholder: {_PLACEHOLDER_HINT}")
        for field, text in _strings("", task)
        for match in _PLACEHOLDER.finditer(text)
        if not _is_known(match[1])
    )
    url = task.get("url")
    problem = placeholder_url_problem(url, task) if isinstance(url, str) else ""
    return (*unknown, ("url", problem)) if problem else unknown


def placeholder_url_problem(template: str, task: Mapping[str, Any]) -> str:
    """Return why the placeholders in a URL are at a forbidden place, or an empty string.

    A caller may choose the payload although it may only run the job. The payload must not choose
    the server that receives the job's secrets. A secret in the host would reach a name server.
    """
    whole_match = _PLACEHOLDER.fullmatch(template)
    if whole_match:
        is_payload = whole_match[1].partition(".")[0] == "payload"
        if is_payload and _has_secrets(task):
            return (
                "a task with secrets must not take its whole URL from the payload: "
                "write scheme and host"
            )
        return ""
    first_match = _PLACEHOLDER.search(template)
    if first_match and not _URL_SERVER.match(template[: first_match.start()]):
        return "a placeholder must come after the host: begin with https://host/"
    return ""


def _has_secrets(task: Mapping[str, Any]) -> bool:
    return any(
        match[1].startswith("secret:")
        for _, text in _strings("", task)
        for match in _PLACEHOLDER.finditer(text)
    )


def expand(attempt: Attempt, secrets: FindSecret) -> Attempt:
    """Return the attempt with its placeholders filled and with the secrets that were used.

    Filled values are not searched again, so a payload or a secret cannot inject a placeholder.
    """
    if not has_placeholders(attempt.task):
        return attempt
    filler = _Filler(attempt, secrets)
    task = {name: filler.field(name, value) for name, value in attempt.task.items()}
    secret_values = frozenset(value for value in filler.used_secrets.values() if value)
    return replace(attempt, task=task, secrets=secret_values)


_PLACEHOLDER_HINT = "write run_id, scheduled_time, attempt, job_id, payload.key or secret:name"


def _is_known(name: str) -> bool:
    kind, colon, secret_name = name.partition(":")
    if colon and kind == "secret":
        return _SECRET_NAME.fullmatch(secret_name) is not None
    root, dot, path = name.partition(".")
    if root == "payload":
        return not dot or all(path.split("."))
    return name in _PLAIN_PLACEHOLDERS


def _strings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if path or key not in NOT_EXPANDED:
                yield from _strings(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _strings(f"{path}.{index}", inner)


class _Filler:
    """Fills the placeholders of one task. It looks up each secret once."""

    def __init__(self, attempt: Attempt, secrets: FindSecret) -> None:
        self._attempt = attempt
        self._secrets = secrets
        self.used_secrets: dict[str, str] = {}
        self._filled_characters = 0
        self._lengths: dict[str, int] = {}

    def field(self, name: str, value: Any) -> Any:
        if name in NOT_EXPANDED:
            return value
        if name == "url" and isinstance(value, str):
            return self._fill_url(value)
        return self._fill(value)

    def _fill(self, value: Any) -> Any:
        if isinstance(value, str):
            whole_match = _PLACEHOLDER.fullmatch(value)
            if whole_match:
                return self._checked_value(whole_match[1])
            return _PLACEHOLDER.sub(lambda match: as_text(self._checked_value(match[1])), value)
        if isinstance(value, Mapping):
            return {key: self._fill(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._fill(inner) for inner in value]
        return value

    def _fill_url(self, template: str) -> Any:
        problem = placeholder_url_problem(template, self._attempt.task)
        if problem:
            raise BadTask(f"url: {problem}")
        whole_match = _PLACEHOLDER.fullmatch(template)
        if whole_match:
            return self._checked_value(whole_match[1])

        def part(match: re.Match[str]) -> str:
            is_in_path = not set(template[: match.start()]) & {"?", "#"}
            return _encode_url_part(match[1], self._checked_value(match[1]), is_in_path)

        return _PLACEHOLDER.sub(part, template)

    def _checked_value(self, name: str) -> Any:
        value = self._resolve(name)
        if name not in self._lengths:
            self._lengths[name] = len(as_text(value))
        self._filled_characters += self._lengths[name]
        if self._filled_characters > MAX_FILLED_CHARACTERS:
            raise BadTask(
                f"The values of all placeholders have over {MAX_FILLED_CHARACTERS:,} characters"
            )
        return value

    def _resolve(self, name: str) -> Any:
        if not _is_known(name):
            raise BadTask(f"{{{{{name}}}}} is not a placeholder: {_PLACEHOLDER_HINT}")
        if name.startswith("secret:"):
            return self._secret(name.removeprefix("secret:"))
        if name.partition(".")[0] == "payload":
            return _payload_value(self._attempt.payload, name.split(".")[1:])
        return {
            "run_id": self._attempt.run_id,
            "job_id": self._attempt.job_id,
            "attempt": self._attempt.attempt_number,
            "scheduled_time": format_time(self._attempt.scheduled_at),
        }[name]

    def _secret(self, name: str) -> str:
        if name not in self.used_secrets:
            try:
                self.used_secrets[name] = self._secrets(self._attempt.tenant, name)
            except KeyError:
                raise SecretMissing(name) from None
        return self.used_secrets[name]


def _payload_value(payload: Any, keys: list[str]) -> Any:
    value = payload
    for depth, key in enumerate(keys):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and _in_range(key, value):
            value = value[int(key)]
        else:
            raise BadTask(f"The payload has no {'.'.join(keys[: depth + 1])!r}")
    return value


def _in_range(digits: str, items: list[Any]) -> bool:
    # Check the length first. Python raises an error for integers of thousands of digits.
    return digits.isascii() and len(digits) < 10 and int(digits) < len(items)


def _encode_url_part(name: str, value: Any, is_in_path: bool) -> str:
    text = as_text(value)
    if is_in_path and not text:
        # An empty value makes another resource: /users//keys instead of /users/7/keys.
        raise BadTask(f"{{{{{name}}}}} is empty, which may not stand in the path of a URL")
    if text in (".", ".."):
        # Percent-encoding keeps `.` and `..`, so the server resolves them to another path.
        raise BadTask(f"{{{{{name}}}}} is {text!r}, which may not stand in a URL")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise BadTask(f"{{{{{name}}}}} holds a character that is not valid Unicode") from None
