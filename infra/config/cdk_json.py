"""Reader of a stage in cdk.json: one error message names all wrong fields."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).parents[2]
CDK_JSON = PROJECT_ROOT / "cdk.json"

LOG_RETENTIONS = frozenset(
    {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922}
    | {3288, 3653}
)
"""The retention times, in days, that CloudWatch Logs takes."""

ORIGIN = r"https?://[A-Za-z0-9.-]+(:\d{1,5})?"
EMAIL = r"[^@\s]+@[^@\s]+\.[^@\s]+"
CLAIM = r"[\x21-\x7e]{1,512}"
DOMAIN = r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"
CERTIFICATE = r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]{36}"
# Excludes the names of Punctual's own functions and queues, and patterns that match them.
TARGET_NAME = (
    r"(?!punctual-|(p|pu|pun|punc|punct|punctu|punctua|punctual)\*$)[A-Za-z0-9_-]{1,75}(\.fifo|\*)?"
)
SUBNET = r"subnet-[0-9a-f]{8,17}"
SECURITY_GROUP = r"sg-[0-9a-f]{8,17}"


class Fields:
    """One object of cdk.json: `take` reads a field, `finish` reports the unread fields."""

    def __init__(self, values: Any, path: str = "", wrong: list[str] | None = None) -> None:
        self.wrong: list[str] = [] if wrong is None else wrong
        self._path = path
        self._taken: set[str] = set()
        self._values: Mapping[str, Any] = {}
        if isinstance(values, dict):
            self._values = values
        else:
            self.wrong.append(f"`{path}` must be an object, not {values!r}")

    def take(
        self, name: str, meant: str, fits: Callable[[Any], bool], otherwise: Any, null: bool = False
    ) -> Any:
        """Return the value of a field. Note an error and return `otherwise` if it is wrong."""
        self._taken.add(name)
        # jsii drops null values from the context, so an absent field and null are the same.
        if self._values.get(name) is None and not null:
            self.wrong.append(f"`{self._path}{name}` is not set")
            return otherwise
        value = self._values.get(name)
        if (null and value is None) or (value is not None and fits(value)):
            return value
        allowed = f"{meant} or null" if null else meant
        self.wrong.append(f"`{self._path}{name}` must be {allowed}, not {value!r}")
        return otherwise

    def switch(self, name: str) -> bool:
        return bool(self.take(name, "true or false", lambda value: isinstance(value, bool), False))

    def number(self, name: str, low: int, high: int) -> int:
        fits = f"{low} to {high}"
        return int(self.take(name, fits, lambda value: _whole(value, low, high), low))

    def number_or_null(self, name: str, low: int, high: int) -> int | None:
        fits = f"{low} to {high}"
        found = self.take(name, fits, lambda value: _whole(value, low, high), None, null=True)
        return None if found is None else int(found)

    def one_of(self, name: str, allowed: Collection[Any]) -> Any:
        shown = ", ".join(str(one) for one in sorted(allowed))
        first = next(iter(allowed))
        return self.take(
            name, f"one of {shown}", lambda v: not isinstance(v, bool) and v in allowed, first
        )

    def text(self, name: str, pattern: str, meant: str) -> str:
        return str(self.take(name, meant, lambda value: _matches(value, pattern), ""))

    def text_or_null(self, name: str, pattern: str, meant: str) -> str | None:
        found = self.take(name, meant, lambda value: _matches(value, pattern), None, null=True)
        return None if found is None else str(found)

    def texts(self, name: str, pattern: str, meant: str, least: int = 0) -> tuple[str, ...]:
        def fits(value: Any) -> bool:
            listed = isinstance(value, list) and len(value) >= least
            return listed and all(_matches(one, pattern) for one in value)

        return tuple(self.take(name, meant, fits, ()))

    def numbers(
        self, name: str, allowed: Collection[str], low: int, high: int, whole: bool = False
    ) -> dict[str, int]:
        """Return numbers by name; `whole` requires all of the `allowed` names."""
        values = self.take(name, "an object", lambda value: isinstance(value, dict), {})
        for key, value in values.items():
            if key not in allowed:
                shown = ", ".join(sorted(allowed))
                self.wrong.append(f"`{self._path}{name}.{key}` is unknown; there are: {shown}")
            elif not _whole(value, low, high):
                self.wrong.append(
                    f"`{self._path}{name}.{key}` must be {low} to {high}, not {value!r}"
                )
        for key in sorted(set(allowed) - set(values)) if whole else ():
            self.wrong.append(f"`{self._path}{name}.{key}` is not set")
        return dict(values)

    @property
    def names(self) -> list[str]:
        """Return the names of all fields, for an object with free names."""
        return list(self._values)

    def below(self, name: str) -> "Fields":
        found = self.take(name, "an object", lambda value: isinstance(value, dict), {})
        return Fields(found, f"{self._path}{name}.", self.wrong)

    def below_or_null(self, name: str) -> "Fields | None":
        found = self.take(name, "an object", lambda v: isinstance(v, dict), None, null=True)
        return None if found is None else Fields(found, f"{self._path}{name}.", self.wrong)

    def finish(self) -> None:
        for name in self._values:
            if name not in self._taken:
                self.wrong.append(f"`{self._path}{name}` is unknown")


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _matches(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None
