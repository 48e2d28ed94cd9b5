"""The event that starts a run: what to carry out, and where to report it."""

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

    `secrets` holds values to mask. `secret_variables` names variables of this process that hold
    such values.
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
        secrets = {*event["secrets"]}
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
                task=event["task"],
                payload=event["payload"],
                timeout=timedelta(seconds=event["timeout_seconds"]),
                token=0,
                secrets=frozenset(secrets - {""}),
            ),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise UnreadableEvent(f"The event lacks a field or has a wrong one: {error}") from error
