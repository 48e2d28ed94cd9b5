"""Reader of a stage in cdk.json: one error message names all wrong fields."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).parents[2]
CDK_JSON = PROJECT_ROOT / "cdk.json"

LOG_RETENTION_DAYS = frozenset(
    {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922}
    | {3288, 3653}
)
"""The retention times, in days, that CloudWatch Logs takes."""

ORIGIN_PATTERN = r"https?://[A-Za-z0-9.-]+(:\d{1,5})?"
EMAIL_PATTERN = r"[^@\s]+@[^@\s]+\.[^@\s]+"
CLAIM_PATTERN = r"[\x21-\x7e]{1,512}"
DOMAIN_PATTERN = r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"
CERTIFICATE_ARN_PATTERN = r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]{36}"
# Excludes the names of Punctual's own functions and queues, and patterns that match them.
TARGET_NAME_PATTERN = (
    r"(?!punctual-|(p|pu|pun|punc|punct|punctu|punctua|punctual)\*$)[A-Za-z0-9_-]{1,75}(\.fifo|\*)?"
)
IMAGE_PATTERN = r"[a-z0-9][A-Za-z0-9._:/@-]{0,510}"
SUBNET_PATTERN = r"subnet-[0-9a-f]{8,17}"
SECURITY_GROUP_PATTERN = r"sg-[0-9a-f]{8,17}"


class Fields:
    """One object of cdk.json: `take` reads a field, `finish` reports the unread fields."""

    def __init__(self, values: Any, path: str = "", problems: list[str] | None = None) -> None:
        self.problems: list[str] = [] if problems is None else problems
        self._path = path
        self._names_read: set[str] = set()
        self._values: Mapping[str, Any] = {}
        if isinstance(values, dict):
            self._values = values
        else:
            self.problems.append(f"`{path}` must be an object; got {values!r}")

    def take(
        self,
        name: str,
        expected: str,
        is_valid: Callable[[Any], bool],
        fallback: Any,
        allow_null: bool = False,
    ) -> Any:
        """Return the value of a field. Note an error and return `fallback` if it is wrong."""
        self._names_read.add(name)
        # jsii drops null values from the context, so an absent field and null are the same.
        if self._values.get(name) is None and not allow_null:
            self.problems.append(f"`{self._path}{name}` is not set")
            return fallback
        value = self._values.get(name)
        if (allow_null and value is None) or (value is not None and is_valid(value)):
            return value
        allowed = f"{expected} or null" if allow_null else expected
        self.problems.append(f"`{self._path}{name}` must be {allowed}; got {value!r}")
        return fallback

    def switch(self, name: str) -> bool:
        return bool(self.take(name, "true or false", lambda value: isinstance(value, bool), False))

    def number(self, name: str, minimum: int, maximum: int) -> int:
        expected = f"{minimum} to {maximum}"
        return int(
            self.take(
                name, expected, lambda value: _is_integer_between(value, minimum, maximum), minimum
            )
        )

    def number_or_null(self, name: str, minimum: int, maximum: int) -> int | None:
        expected = f"{minimum} to {maximum}"
        number = self.take(
            name,
            expected,
            lambda value: _is_integer_between(value, minimum, maximum),
            None,
            allow_null=True,
        )
        return None if number is None else int(number)

    def one_of(self, name: str, allowed: Collection[Any]) -> Any:
        choices = ", ".join(str(choice) for choice in sorted(allowed))
        fallback = next(iter(allowed))
        return self.take(
            name,
            f"one of {choices}",
            lambda value: not isinstance(value, bool) and value in allowed,
            fallback,
        )

    def text(self, name: str, pattern: str, expected: str) -> str:
        return str(self.take(name, expected, lambda value: _matches(value, pattern), ""))

    def text_or_null(self, name: str, pattern: str, expected: str) -> str | None:
        text = self.take(
            name, expected, lambda value: _matches(value, pattern), None, allow_null=True
        )
        return None if text is None else str(text)

    def texts(self, name: str, pattern: str, expected: str, min_count: int = 0) -> tuple[str, ...]:
        def is_valid(value: Any) -> bool:
            is_list = isinstance(value, list) and len(value) >= min_count
            return is_list and all(_matches(item, pattern) for item in value)

        return tuple(self.take(name, expected, is_valid, ()))

    def numbers(
        self,
        name: str,
        allowed: Collection[str],
        minimum: int,
        maximum: int,
        all_required: bool = False,
    ) -> dict[str, int]:
        """Return numbers by name; `all_required` requires all of the `allowed` names."""
        values = self.take(name, "an object", lambda value: isinstance(value, dict), {})
        for key, value in values.items():
            if key not in allowed:
                choices = ", ".join(sorted(allowed))
                self.problems.append(
                    f"`{self._path}{name}.{key}` is unknown; allowed are {choices}"
                )
            elif not _is_integer_between(value, minimum, maximum):
                self.problems.append(
                    f"`{self._path}{name}.{key}` must be {minimum} to {maximum}; got {value!r}"
                )
        for key in sorted(set(allowed) - set(values)) if all_required else ():
            self.problems.append(f"`{self._path}{name}.{key}` is not set")
        return dict(values)

    @property
    def names(self) -> list[str]:
        """Return the names of all fields, for an object with free names."""
        return list(self._values)

    def nested(self, name: str) -> "Fields":
        values = self.take(name, "an object", lambda value: isinstance(value, dict), {})
        return Fields(values, f"{self._path}{name}.", self.problems)

    def nested_or_null(self, name: str) -> "Fields | None":
        values = self.take(
            name, "an object", lambda value: isinstance(value, dict), None, allow_null=True
        )
        return None if values is None else Fields(values, f"{self._path}{name}.", self.problems)

    def finish(self) -> None:
        for name in self._values:
            if name not in self._names_read:
                self.problems.append(f"`{self._path}{name}` is unknown")


def _is_integer_between(value: Any, minimum: int, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _matches(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None
