"""The event that starts a run: what to carry out, and where to report it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from punctual.tasks.contract import Attempt

EVENT_FORMAT = 1
Mode = Literal["wait", "detached"]


class UnreadableEvent(ValueError):
    """The event has another format than this runner reads."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One attempt of a run and its claim.

    The event names values to mask (`secrets`), and variables of this process that hold such values
    (`secret_variables`). `secret_marks` are texts in the task that stand for such variables, so no
    secret of a container stands in its event.
    """

    claim: str
    api: str
    mode: Mode
    lease_seconds_left: float
    keeps_output: bool
    attempt: Attempt

    def __repr__(self) -> str:
        # Omit the claim and the task, so that a logged repr cannot leak them.
        return f"RunEvent({self.attempt!r}, {self.mode!r})"


def read_event(event: Mapping[str, Any], environment: Mapping[str, str]) -> RunEvent:
    """Return the run of an event. `environment` holds the values of its secret variables."""
    if event.get("format") != EVENT_FORMAT:
        raise UnreadableEvent(f"The event must have format {EVENT_FORMAT}")
    try:
        mode = event["mode"]
        if mode not in ("wait", "detached"):
            raise UnreadableEvent("The mode of an event must be wait or detached")
        marks = {mark: environment[name] for mark, name in event.get("secret_marks", {}).items()}
        secrets = {*event["secrets"], *marks.values()}
        secrets |= {environment.get(name, "") for name in event.get("secret_variables", ())}
        return RunEvent(
            claim=event["claim"],
            api=event["api"].rstrip("/"),
            mode=mode,
            lease_seconds_left=float(event["lease_seconds_left"]),
            keeps_output=event["output"] != "discard",
            attempt=Attempt(
                tenant="",  # the environment of a script function serves one tenant
                job_id=event["job_id"],
                run_id=event["run_id"],
                name=event["name"],
                attempt_number=event["attempt_number"],
                scheduled_at=datetime.fromisoformat(event["scheduled_at"]),
                task=_filled(event["task"], marks),
                payload=event["payload"],
                timeout=timedelta(seconds=event["timeout_seconds"]),
                token=0,
                secrets=frozenset(secrets - {""}),
            ),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise UnreadableEvent(f"The event lacks a field or has a wrong one: {error}") from error


def _filled(value: Any, marks: Mapping[str, str]) -> Any:
    """Return the value with secrets in place of their marks. A secret is not searched again."""
    if not marks:
        return value
    if isinstance(value, str):
        return re.sub("|".join(map(re.escape, marks)), lambda match: marks[match[0]], value)
    if isinstance(value, Mapping):
        return {name: _filled(inner, marks) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, marks) for inner in value]
    return value
